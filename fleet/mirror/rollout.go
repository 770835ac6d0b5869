package mirror

import (
	"errors"
	"slices"
	"time"

	"argosy.dev/argosy/fleet"
)

// ErrRolloutState means that a rollout is in a state in which the decision has no meaning.
var ErrRolloutState = errors.New("the rollout is in another state")

// RolloutState is the state of a rollout.
type RolloutState string

// States of a rollout. A deployment has at most one rollout that has not ended.
const (
	RolloutRunning   RolloutState = "Running"
	RolloutAwaits    RolloutState = "AwaitsApproval" // of its next wave
	RolloutPaused    RolloutState = "Paused"         // by a person, who resumes it
	RolloutFailed    RolloutState = "Failed"         // a wave failed; a person decides
	RolloutReturning RolloutState = "Returning"      // Applications get their last good state back
	// the last good state is back; the change waits until a person resumes, or another change
	RolloutReturned RolloutState = "Returned"
	RolloutDone     RolloutState = "Done"     // every Application has the change
	RolloutReplaced RolloutState = "Replaced" // by another change, or the change is withdrawn
)

// Ended reports whether the rollout takes no further step.
func (s RolloutState) Ended() bool { return s == RolloutDone || s == RolloutReplaced }

// Moving reports whether time or its Applications alone may change the state.
func (s RolloutState) Moving() bool {
	return s == RolloutRunning || s == RolloutAwaits || s == RolloutReturning
}

// WaveState is the state of one wave of a rollout.
type WaveState string

// States of a wave.
const (
	WaveWaiting  WaveState = "Waiting"
	WaveAwaits   WaveState = "AwaitsApproval"
	WaveRunning  WaveState = "Running"
	WaveSoaking  WaveState = "Soaking"
	WaveDone     WaveState = "Done"
	WaveFailed   WaveState = "Failed"
	WaveReturned WaveState = "Returned"
)

// MemberState is the state of one Application of a rollout.
type MemberState string

// States of an Application of a rollout.
const (
	MemberWaiting   MemberState = "Waiting"   // it is as before
	MemberChanging  MemberState = "Changing"  // it has the change, and is not Healthy yet
	MemberHealthy   MemberState = "Healthy"   // it is Synced and Healthy with the change
	MemberFailed    MemberState = "Failed"    // it did not get Healthy, or no longer is
	MemberReturning MemberState = "Returning" // its last good state is written
	MemberReturned  MemberState = "Returned"  // it is Synced and Healthy with its last good state
	// it is still not Healthy with its last good state, or has none, since the rollout created it
	MemberLeft MemberState = "Left"
)

// Changed reports whether the Application has the change.
func (s MemberState) Changed() bool {
	return s == MemberChanging || s == MemberHealthy || s == MemberFailed
}

// Rollout is a change of a deployment on its way through the waves of its environments. Waves and
// their Applications are those of its begin.
type Rollout struct {
	ID         string               `json:"id"`
	Tenant     fleet.TenantName     `json:"tenant"`
	Deployment fleet.DeploymentName `json:"deployment"`
	State      RolloutState         `json:"state"`
	Message    string               `json:"message,omitempty"` // reason of State, and next step
	Since      time.Time            `json:"since"`             // of State
	Revision   fleet.Revision       `json:"revision"`          // that brought the change
	OnFailure  fleet.RolloutFailure `json:"onFailure"`
	Timeout    fleet.Duration       `json:"timeout"`
	Patience   fleet.Duration       `json:"patience"`
	Waves      []RolloutWave        `json:"waves"`
	Members    []RolloutMember      `json:"members"` // sorted by wave and environment
	BegunAt    time.Time            `json:"begunAt"`
	EndedAt    *time.Time           `json:"endedAt,omitempty"`
	// the last decision of a person that the rollout has taken
	Decided int64 `json:"decided,omitempty"`
}

// Of identifies the deployment that changes.
func (r *Rollout) Of() fleet.DeploymentID {
	return fleet.DeploymentID{Tenant: r.Tenant, Name: r.Deployment}
}

// Member returns the place of an environment's Application in Members, or -1.
func (r *Rollout) Member(env fleet.EnvironmentName) int {
	return slices.IndexFunc(r.Members, func(m RolloutMember) bool { return m.Environment == env })
}

// Accepts reports whether a decision has a meaning in the rollout's state.
func (r *Rollout) Accepts(verb RolloutVerb) bool {
	switch verb {
	case PauseRollout:
		return r.State == RolloutRunning || r.State == RolloutAwaits
	case ResumeRollout:
		return r.State == RolloutPaused || r.State == RolloutFailed ||
			r.State == RolloutReturned
	case AbortRollout:
		return !r.State.Ended() && r.State != RolloutReturning &&
			r.State != RolloutReturned
	case ApproveRollout:
		return r.State == RolloutAwaits
	}
	return false
}

// Copy returns a rollout whose waves and members may be changed.
func (r Rollout) Copy() Rollout {
	r.Waves, r.Members = slices.Clone(r.Waves), slices.Clone(r.Members)
	for i := range r.Waves {
		r.Waves[i].Metrics = slices.Clone(r.Waves[i].Metrics)
	}
	return r
}

// CurrentWave returns the place of the first wave that is not done; -1: all are.
func CurrentWave(waves []RolloutWave) int {
	return slices.IndexFunc(waves, func(w RolloutWave) bool { return w.State != WaveDone })
}

// RolloutWave is one wave of a rollout.
type RolloutWave struct {
	Name          string         `json:"name"`
	MaxConcurrent string         `json:"maxConcurrent,omitempty"`
	Soak          fleet.Duration `json:"soak,omitempty"`
	Approval      bool           `json:"approval,omitempty"`
	State         WaveState      `json:"state"`
	Since         time.Time      `json:"since"` // of State
	ApprovedBy    string         `json:"approvedBy,omitempty"`
	// that are good before the wave is done
	Metrics []RolloutMetric `json:"metrics,omitempty"`
}

// MetricState is the state of a metric of a wave.
type MetricState string

// States of a metric. An unknown one never lets a wave go on: the server did not answer, or not
// with exactly one number for each environment.
const (
	MetricWaiting MetricState = "Waiting" // it is not measured yet
	MetricGood    MetricState = "Good"
	MetricBad     MetricState = "Bad"
	MetricUnknown MetricState = "Unknown"
)

// RolloutMetric is a metric of a wave, measured while the wave soaks.
type RolloutMetric struct {
	Name       string      `json:"name"`
	State      MetricState `json:"state"`
	Since      time.Time   `json:"since"`         // of State
	Bad        int         `json:"bad,omitempty"` // measurements in a row
	MeasuredAt *time.Time  `json:"measuredAt,omitempty"`
	Message    string      `json:"message,omitempty"` // why it is bad or unknown
}

// MetricKey is a metric of a wave of a rollout.
type MetricKey struct {
	Rollout string
	Wave    int // place in Waves
	Name    string
}

// MetricResult is one measurement of a metric in all environments of its wave.
type MetricResult struct {
	At       time.Time // by the store's clock
	State    MetricState
	Message  string
	For      fleet.Duration // of the metric, as the Fleet declares it now
	Failures int
}

// RolloutMember is one Application of a rollout.
type RolloutMember struct {
	Environment fleet.EnvironmentName `json:"environment"`
	Wave        int                   `json:"wave"` // place in Waves
	Key         fleet.ObjectKey       `json:"key"`
	Hash        string                `json:"manifest"`         // hash of that with the change
	Before      *RolloutBefore        `json:"before,omitempty"` // nil: the rollout creates it
	State       MemberState           `json:"state"`
	Since       time.Time             `json:"since"`             // of State
	Message     string                `json:"message,omitempty"` // what is missing, or went wrong
	BadSince    *time.Time            `json:"badSince,omitempty"`
}

// RolloutBefore is the last good state of an Application. The store keeps its manifest.
type RolloutBefore struct {
	Hash       string               `json:"manifest"` // hash of the manifest
	Deletion   fleet.DeletionPolicy `json:"deletion,omitempty"`
	RepoURLs   fleet.RepoURLs       `json:"repoURLs,omitempty"`
	Namespaces string               `json:"namespaces,omitempty"` // that it uses
	Creates    bool                 `json:"creates,omitempty"`    // CreateNamespace
}

// RolloutManifest is the manifest of the last good state of a member.
type RolloutManifest struct {
	Rollout     fleet.DeploymentID
	Environment fleet.EnvironmentName
	Manifest    fleet.Manifest
}

// RolloutStatus is what is known of an Application of a rollout.
type RolloutStatus struct {
	Hash           string // of the row
	Apply          ApplyState
	ApplyMessage   string
	Compared       string // hash of the manifest that the engine's Argo CD compared last
	Sync           SyncState
	Health         HealthState
	OperationPhase string
	Message        string
	// why the row does not follow the rollout now: a freeze holds it
	Frozen string
	// since when its cluster or agent is silent; nil: it is not
	SilentSince *time.Time
}

// RolloutFacts is what the store knows of rollouts.
type RolloutFacts struct {
	Now       time.Time // by the store's clock
	Status    map[fleet.ObjectKey]RolloutStatus
	Decisions map[string][]RolloutDecision // by the rollout's ID, in their order
	Metrics   map[MetricKey]MetricResult   // the latest measurements
}

// RolloutVerb is a decision of a person about a rollout.
type RolloutVerb string

// Decisions about rollouts.
const (
	PauseRollout   RolloutVerb = "pause"   // no further Application changes
	ResumeRollout  RolloutVerb = "resume"  // it goes on; a failed or returned one tries again
	AbortRollout   RolloutVerb = "abort"   // every Application gets its last good state back
	ApproveRollout RolloutVerb = "approve" // the wave that awaits approval begins
)

// RolloutDecision is the decision of a person about the rollout of a deployment.
type RolloutDecision struct {
	N          int64                `json:"-"` // increases
	Tenant     fleet.TenantName     `json:"tenant" minLength:"1" maxLength:"63" pattern:"^[a-z0-9-]+$"`
	Deployment fleet.DeploymentName `json:"deployment" minLength:"1" maxLength:"253"`
	Verb       RolloutVerb          `json:"-"`
	Wave       string               `json:"-"` // of ApproveRollout
	Reason     string               `json:"reason,omitempty" maxLength:"1024" doc:"For the record"`
	By         string               `json:"-"`
}

// RolloutStep is the next step of a rollout, for the plan that takes it.
type RolloutStep struct {
	Rollout Rollout
	// Before has the manifests of the members that begin to return.
	Before map[fleet.EnvironmentName]fleet.Manifest
}
