package mirror

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"argosy.dev/argosy/fleet"
)

// ErrNoRing is returned for a ring that the Fleet does not declare.
var ErrNoRing = errors.New("the fleet has no such ring")

// RingState is how far a ring has come with the version that the Fleet declares.
type RingState string

// States of rings.
const (
	RingDone        RingState = "Done"        // its engines run the version, and the soak is over
	RingMoving      RingState = "Moving"      // engines are being changed
	RingSoaking     RingState = "Soaking"     // all are changed; the gates are checked
	RingWaiting     RingState = "Waiting"     // for an earlier ring
	RingPaused      RingState = "Paused"      // by a person
	RingHalted      RingState = "Halted"      // a gate has failed, or a person has returned it
	RingRendering   RingState = "Rendering"   // its Applications are compared under the version
	RingDiffers     RingState = "Differs"     // the version's differences need an approval
	RingUnavailable RingState = "Unavailable" // its manifests cannot be read, or its shadow fails
)

// InstanceState is how far the Argo CD of a managed engine has come.
type InstanceState string

// States of instances.
const (
	InstanceInstalling InstanceState = "Installing" // its objects are applied, its Pods begin
	InstanceRunning    InstanceState = "Running"    // its Pods are ready and its probe was answered
	InstanceRefused    InstanceState = "Refused"    // a person has to fix something first
	InstanceReleasing  InstanceState = "Releasing"  // Argosy gives it back
	InstanceRemoving   InstanceState = "Removing"   // Argosy removes it: its pool does not need it
)

// Instance is the Argo CD of a managed engine, or the agent alone that follows a ring: then it has
// no Version and no Digest.
type Instance struct {
	Engine  fleet.EngineName `json:"engine"`
	Ring    string           `json:"ring"`
	State   InstanceState    `json:"state" enum:"Installing,Running,Refused,Releasing"`
	Version string           `json:"version"` // that it is to have
	Digest  string           `json:"digest"`  // of the version's manifests
	Message string           `json:"message,omitempty"`
	Since   time.Time        `json:"since"` // of the state
	// AgentVersion and AgentDigest are those that the engine's agent is to have; "" if it stays as
	// it is. AgentDigest may be fleet.PreviousAgent.
	AgentVersion string `json:"agentVersion,omitempty"`
	AgentDigest  string `json:"agentDigest,omitempty"`
	// the last version whose gates have passed; "" without one
	GoodVersion string `json:"goodVersion,omitempty"`
	GoodDigest  string `json:"goodDigest,omitempty"`

	GoodAgentVersion string `json:"goodAgentVersion,omitempty"`
	GoodAgentDigest  string `json:"goodAgentDigest,omitempty"`
	// Applications before the change
	DegradedBefore int `json:"degradedBefore"`
	UnknownBefore  int `json:"unknownBefore"`
	// Size is what the Pods have, as fleet.InstanceSize describes it; "" if Argosy has set none.
	Size string `json:"size,omitempty"`
	// Fresh: Argo CD had reported no Application before the change.
	Fresh bool `json:"fresh,omitempty"`
	// Shadow is the comparison with the ring's next version; nil before the first one.
	Shadow *Shadow `json:"shadow,omitempty"`
}

// Release identifies what the engine is to have: its Argo CD and its agent.
func (i Instance) Release() string { return i.Digest + i.AgentDigest }

// AgentOnly reports whether the instance is an agent alone.
func (i Instance) AgentOnly() bool { return i.Digest == "" }

// Passed reports whether the gates of the release have passed.
func (i Instance) Passed() bool {
	return i.GoodDigest == i.Digest && i.GoodAgentDigest == i.AgentDigest
}

// Ring is what the store keeps of a ring.
type Ring struct {
	Name    string    `json:"name"`
	State   RingState `json:"state" enum:"Done,Moving,Soaking,Waiting,Paused,Halted,Rendering,Differs,Unavailable"`
	Version string    `json:"version"` // that the Fleet declares
	Digest  string    `json:"digest"`
	// of the agents; "" if they stay as they are
	AgentVersion string    `json:"agentVersion,omitempty"`
	AgentDigest  string    `json:"agentDigest,omitempty"`
	Message      string    `json:"message,omitempty"`
	Since        time.Time `json:"since"` // of the state
	// Halted has the digests at which the ring was halted: others in Git begin again.
	Halted      string     `json:"halted,omitempty"`
	PausedAt    *time.Time `json:"pausedAt,omitempty"`
	PausedBy    string     `json:"pausedBy,omitempty"`
	PauseReason string     `json:"pauseReason,omitempty"`
	Engines     []Instance `json:"engines"` // by name
}

// RingDecision is a person's word about a ring.
type RingDecision struct {
	Ring   string `json:"ring" minLength:"1" maxLength:"63"`
	Reason string `json:"reason,omitempty" maxLength:"512"`
	By     string `json:"-"`
}

// RingFacts is what decides about the rings.
type RingFacts struct {
	Now       time.Time // by the clock of the store
	Rings     map[string]Ring
	Instances map[fleet.EngineName]InstanceFacts
	Manifests map[string]bool // digests that the store has
	// Connected are the engines whose agent is connected and reads its Argo CD.
	Connected map[fleet.EngineName]bool
}

// InstanceFacts is what decides about one instance.
type InstanceFacts struct {
	Instance
	Followed bool // the engine is reachable, and a replica holds its lease
	Work     Work
	Degraded int // Applications
	Unknown  int // Applications whose state Argo CD could not compare
}

// RingStep is what the leader records about one ring, in one transaction.
type RingStep struct {
	Name    string
	State   RingState
	Version string
	Digest  string
	Agent   fleet.RingAgent // zero: agents stay as they are
	Message string
	Halted  string
	Targets []InstanceTarget
	Good    []fleet.EngineName // engines whose gates have passed
	Shadows []fleet.EngineName // engines whose Applications are compared under the version
	// EndShadows are the engines of the ring that have a shadow and need none any more.
	EndShadows []fleet.EngineName
}

// InstanceTarget is the version that an engine begins to change to.
type InstanceTarget struct {
	Engine          fleet.EngineName
	Version, Digest string
	Agent           fleet.RingAgent
}

// RingManifests are the files of one version of Argo CD.
type RingManifests struct {
	Version, Digest string
	Files           map[string][]byte
}

// Pack returns the files as JSON of content by path, compressed by gzip.
func (m RingManifests) Pack() ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	err := errors.Join(json.NewEncoder(z).Encode(m.Files), z.Close())
	return out.Bytes(), err
}

// UnpackManifests returns the files that Pack has packed. It fails unless they have the digest.
func UnpackManifests(version, digest string, packed []byte) (RingManifests, error) {
	m := RingManifests{Version: version, Digest: digest}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return m, err
	}
	// base64 adds a third
	err = json.NewDecoder(io.LimitReader(z, 2*fleet.MaxManifestBytes)).Decode(&m.Files)
	if have := fleet.ManifestsDigest(m.Files); err == nil && have != digest {
		err = fmt.Errorf("they have the digest %s", have)
	}
	return m, err
}
