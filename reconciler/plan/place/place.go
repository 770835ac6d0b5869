// Package place finds out what a revision touches, counts its Applications in and out, and gives
// engines to environments.
package place

import (
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/freeze"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/applied"
	"argosy.dev/argosy/reconciler/plan/effective"
)

// Input is the declarations in effect, and what is known of the engines.
type Input struct {
	Applied  *applied.State
	Declared *effective.Declarations
	Revision fleet.Revision
	Deleted  []fleet.ObjectKey // unwanted objects that workers have proven deleted
	Freed    Freed
	Freezes  *freeze.Calendar // of the applied declarations
	// Resumes is set for the first revision after a loss of the mirror, which has lost the held
	// changes. The freezes of the revision hold each Application that its engine does not show as
	// declared.
	Resumes bool
	// Thawing is the frozen changes that are decided again. A person has released those that are
	// true.
	Thawing map[fleet.ApplicationID]bool

	Steps map[fleet.DeploymentID]mirror.RolloutStep // of rollouts, taken with this plan

	Rollbacks map[fleet.ApplicationID]mirror.Action // requested

	Moves map[fleet.SliceID]mirror.MoveRequest // requested, by the slice that each names

	// Carry returns the manifest with a hash, of an Application that moves while its change waits,
	// as another engine gets it.
	Carry func(hash string, to fleet.ObjectKey, tenant fleet.TenantName) (fleet.Manifest, error)

	Evacuated []fleet.EngineName // that get no environment
	Readmit   []fleet.EngineName // whose evacuation ends

	// Environments are planned even if no declaration of theirs changes.
	Environments []fleet.EnvironmentID

	// After a rebuild: engines that were not read yet, engines behind agents without a report yet,
	// pools whose instances are not known yet, the environments that one of them may have although
	// another engine has objects of them, the engines that reported objects of an environment, and
	// what they have of Applications.
	Unread       []fleet.EngineName
	SilentAgents []fleet.EngineName
	UnreadPools  []string
	Undecided    []fleet.EnvironmentID
	Reported     map[fleet.EnvironmentID][]fleet.EngineName
	Recovered    *mirror.Recovered

	Now time.Time
}

// Freed is the held deletions that an approval or a review frees with this plan.
type Freed map[fleet.ApplicationID]Freeing

// Freeing is how a held deletion is freed.
type Freeing int

// An approved deletion is made. A reviewed deletion is judged by the guards.
const (
	Approved Freeing = iota + 1
	Reviewed
)

// Result is the placements, and the Applications that the next phases write and delete.
type Result struct {
	Layers *applied.Layers // with the placements and counts after the plan

	Placements map[fleet.SliceID]fleet.Placement // new or changed, with alternatives
	Relabelled map[fleet.SliceID]bool            // slices that were split or joined
	Removed    map[fleet.EnvironmentID]bool      // environments that lost their placement
	Clusters   []fleet.ObjectKey                 // rows of environments that left an engine

	Wanted   []Application // to be written
	Frozen   []Application // to be written later, unless they would not change
	Returned []Returned    // to be written as before their rollout
	// manifests for the new engines of moving Applications that rollouts may return to
	LastGood map[fleet.ApplicationID]fleet.Manifest
	Unwanted []Unwanted // to be judged by the guards
	Released []Unwanted // to be deleted, since an approval freed them
	Ended    []fleet.ApplicationID
	SyncRuns []SyncRun
	// Rollbacks are the Applications that are synced to an earlier revision, with the action.
	Rollbacks map[fleet.ApplicationID]mirror.Action

	Begun   []Move                   // moves that begin
	Refused map[fleet.SliceID]string // requested moves, with the reason

	Environments map[fleet.EnvironmentID]bool // whose Cluster may change
	Shares       map[applied.Share]bool       // whose AppProject may change
	Readers      map[applied.Reader]bool      // whose Repository may change

	Sharing  []fleet.Problem // of changes by which a tenant would share another one's clone
	Loosened Loosened        // what may let such changes in

	Blocked      bool // environments stay unplaced until an engine is read or its agent reports
	NeedsEngines bool // an environment that the revision concerns waits for Unread
}

// Application is an Application with the deployment that it is rendered from: the one in effect, or
// the last one in effect if its deletion is held.
type Application struct {
	ID         fleet.ApplicationID
	Key        fleet.ObjectKey
	Deployment *fleet.Declaration
	Use        applied.Use
	Freed      bool        // its deletion was held, and is no longer wanted
	Freeze     freeze.Hold // of Frozen
	Passes     bool        // a person has released it from a freeze
	// Rollout is set for those of Frozen that go in waves.
	Rollout *fleet.Rollout
	// Moves is set for those of Frozen whose slice begins to move. Carried is the manifest that
	// they have, for the new engine; nil: they have no row, or one on that engine.
	Moves   bool
	Carried *fleet.Manifest
	// Lost is set for those of Frozen that may exist without a row, since the mirror was lost. They
	// count as their declaration has them.
	Lost bool
}

// Returned is an Application that gets its last good state back.
type Returned struct {
	ID       fleet.ApplicationID
	Key      fleet.ObjectKey
	Rollout  mirror.Rollout
	Member   mirror.RolloutMember
	Manifest fleet.Manifest
}

// Unwanted is an existing Application that no declaration asks for any more.
type Unwanted struct {
	ID  fleet.ApplicationID
	Key fleet.ObjectKey
	Was *applied.Held // its hold until now
}

// Compute places the environments that need an engine and verifies those that the revision touches.
// Every replica decides alike: environments come in the order of their names.
func Compute(in Input) (*Result, error) {
	s := &scope{
		Input: in, Layers: in.Applied.Draft(), after: in.Declared.After,
		out: &Result{
			Placements:   map[fleet.SliceID]fleet.Placement{},
			Environments: map[fleet.EnvironmentID]bool{},
			Shares:       map[applied.Share]bool{},
			Readers:      map[applied.Reader]bool{},
		},
		applications: map[fleet.ApplicationID]bool{},
		synced:       map[fleet.ApplicationID]bool{},
		moving:       map[fleet.ApplicationID]bool{},
		admitted:     map[fleet.ApplicationID]bool{},
		carried:      map[fleet.ApplicationID]*fleet.Manifest{},
		shared:       applied.SharedRepositories(in.Declared.Fleet),
		joinable:     map[fleet.EnvironmentID]bool{},
		arriving:     map[fleet.EngineName]int{},
	}
	s.out.Layers = s.Layers
	s.find()
	s.join()
	p := placer{s}
	p.readmit()
	p.move()
	p.join()
	if err := p.classify(); err != nil {
		return nil, err
	}
	if err := p.placeWaiting(); err != nil {
		return nil, err
	}
	p.join()
	p.findCredentialConflicts()
	p.rejectSharing()
	p.verify()
	return s.out, nil
}

// scope is what the revision touches.
type scope struct {
	Input
	*applied.Layers
	after        *catalog.Changeset
	out          *Result
	applications map[fleet.ApplicationID]bool // touched; whether wanted
	synced       map[fleet.ApplicationID]bool // touched by a SyncRun alone
	moving       map[fleet.ApplicationID]bool // begin to move
	admitted     map[fleet.ApplicationID]bool // change by a step of their rollout
	// whose change waits for its wave while their slice begins to move; nil: without a row there
	carried  map[fleet.ApplicationID]*fleet.Manifest
	shrunk   []fleet.EnvironmentID        // have fewer Applications from now on
	shared   applied.Scopes               // repositories that the platform shares
	reshared bool                         // they change
	retry    bool                         // unplaced environments may find an engine now
	arriving map[fleet.EngineName]int     // Applications of evacuated slices, not counted yet
	joinable map[fleet.EnvironmentID]bool // two halves of a slice may be on one engine
}

// placer counts the touched Applications, and gives engines to environments.
type placer struct{ *scope }

// Agent reports whether an environment in effect has an agent alone. Such an environment deploys to
// itself: its engine is its own cluster, by its declaration alone. Nothing is decided, and nothing
// has to be recovered after a rebuild.
func Agent(view *catalog.View, id fleet.EnvironmentID) bool {
	env := view.Environment(id)
	return env != nil && env.Environment.OwnCluster()
}

const (
	ownManaged    = "its own cluster: the agent on it applies"
	ownAutonomous = "its own cluster: its own Applications are the truth, and the agent on it shows them"
)

// onOwnCluster is the placement of an environment with an agent.
func onOwnCluster(
	id fleet.EnvironmentID, spec *fleet.EnvironmentSpec, applications int,
) fleet.Placement {
	p := fleet.Placement{
		Environment: id, Engine: fleet.AgentEngine(id), Reason: ownManaged,
		Alternatives: []fleet.Alternative{}, Applications: applications,
	}
	if spec.Agent.Autonomous() {
		p.Reason = ownAutonomous
	}
	return p
}
