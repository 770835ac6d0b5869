package mirror

import (
	"cmp"
	"encoding/json"
	"errors"
	"time"

	"argosy.dev/argosy/fleet"
)

// ErrMoving means that a move of the environment is requested or under way.
var ErrMoving = errors.New("a move of it is requested or under way")

// MoveStep is the next step of an Application that moves to another engine (ADR 0045).
type MoveStep string

// Steps, in their order. From carries out Check, Freeze and Delete; To carries out Compare, Adopt,
// Enable and Return.
const (
	MoveCheck   MoveStep = "Check"
	MoveCompare MoveStep = "Compare"
	// equal on To; waits until every Application of the environment is
	MoveReady  MoveStep = "Ready"
	MoveFreeze MoveStep = "Freeze"
	MoveAdopt  MoveStep = "Adopt"
	MoveDelete MoveStep = "Delete"
	MoveEnable MoveStep = "Enable"
	// of an undone move instead of Check to Delete: To marks the resources as its own again
	MoveReturn MoveStep = "Return"
	// no step follows; the record stays for people
	MoveDone MoveStep = "Done"
)

// MoveRequest is the decision of a person, a drain or a rebalance to move a slice of an
// environment, by default all of it, to another engine.
type MoveRequest struct {
	Operation   string // its id
	Environment fleet.EnvironmentID
	Slice       fleet.Slice // that is placed; "": the environment is not split
	// the slice is halved in the plan in which the move begins, and its second half moves
	Split  bool
	To     fleet.EngineName
	By     string
	Note   string
	Undo   bool // the environment returns to the engine that it was leaving
	DryRun bool // nothing is recorded but the reasons against it
	// because its engine drains or it is misplaced there; refused if that is no longer so
	Drain     bool
	Rebalance string // the id of the rebalance that requested it; refused with mode Off
	// the environment's engine is evacuated, and takes no part; To is chosen by the plan
	Evacuates bool
}

// ID identifies the placed slice that the request names.
func (m MoveRequest) ID() fleet.SliceID { return m.Environment.Slice(m.Slice) }

// Moving identifies the slice that moves: with Split, one that is not placed before the move.
func (m MoveRequest) Moving() fleet.SliceID {
	if m.Split {
		_, second := m.Slice.Halves()
		return m.Environment.Slice(second)
	}
	return m.ID()
}

// MoveObstacle is a reason against a move that the mirror knows.
type MoveObstacle struct {
	Text   string
	Passes bool // it ends by itself, soon: the first step of the move waits for that
}

// Move is a move that begins, with the Applications that leave the engine.
type Move struct {
	MoveRequest
	From         fleet.EngineName
	Applications []fleet.ApplicationID
}

// ApplicationMove is an Application that moves.
type ApplicationMove struct {
	Application fleet.ApplicationID `json:"application"`
	From        fleet.EngineName    `json:"from"`
	To          fleet.EngineName    `json:"to"`
	Step        MoveStep            `json:"step"`
	Departure   Departure           `json:"departure"`
	Message     string              `json:"message,omitempty"` // why the step waits
	Since       time.Time           `json:"since"`             // of the step
	// a person has undone the move. Until the plan that ends it, no engine carries out a step;
	// after it, From is the engine that the move went to.
	Undo bool `json:"undo,omitempty"`
	// Applications of the environment that the new engine has yet to adopt
	Unadopted int `json:"-"`
	// of MoveEnable: From has an Application of its name again, which would be a second owner
	Recreated bool `json:"-"`
	// of an evacuation: why the fence of From is not proven, while the Application is not frozen
	Unfenced string `json:"-"`
	// requests to the engine for this step, by the replica that ends it
	Calls int `json:"-"`
}

// EndedStep is a step of a move that has ended.
type EndedStep struct {
	Step    MoveStep `json:"step"`
	Seconds float64  `json:"seconds"` // waits included
	Calls   int      `json:"calls"`   // requests to the engine
}

// At is the engine that carries out the next step; empty if none does.
func (m ApplicationMove) At() fleet.EngineName {
	switch {
	case m.Step == MoveReturn, m.Step == MoveEnable:
		return m.To
	case m.Undo:
		return ""
	case m.Step == MoveCompare, m.Step == MoveAdopt:
		return m.To
	case m.Step == MoveReady, m.Step == MoveDone:
		return ""
	}
	return m.From
}

// MayBecome reports whether a step can follow the present one.
func (m ApplicationMove) MayBecome(next MoveStep) bool {
	switch m.Step {
	case MoveCheck:
		return next == MoveCompare || next == MoveReady
	case MoveCompare:
		return next == MoveReady
	case MoveFreeze:
		return next == MoveAdopt && m.Departure.UID != "" || next == MoveCheck ||
			next == MoveDelete && m.Departure.UID == "" && m.Unadopted == 0
	case MoveAdopt:
		return next == MoveDelete || next == MoveFreeze
	case MoveDelete, MoveReturn:
		return next == MoveEnable
	case MoveEnable:
		return next == MoveDone
	}
	return false
}

// Departure is the state of an Application before its move, as its engine had it.
type Departure struct {
	UID string `json:"uid"`
	// the commit, or version of a chart, of each source
	Revisions []string        `json:"revisions"`
	Resources []MovedResource `json:"resources"` // without hooks
	// the start and end of the last operation: a later one makes the departure stale
	LastOperation string `json:"lastOperation,omitempty"`
	// its spec: a later declaration takes effect when the move ends
	Spec json.RawMessage `json:"spec"`
	// why the new engine could not adopt it: it goes back to the old one, and is tried again later
	Returns string `json:"returns,omitempty"`
	// the engine that the Application was on is evacuated: nothing else of it is known
	Evacuated bool `json:"evacuated,omitempty"`
	// that engine has answered since, and ignores the Application: proven by an uncached read
	Frozen bool `json:"frozen,omitempty"`
	// of an adoption, which the new object gets too
	Annotations map[string]string `json:"annotations,omitempty"`
}

// MovedResource is a resource that an Application manages.
type MovedResource struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String returns the kind with the namespace and name.
func (r MovedResource) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Compare orders resources.
func (r MovedResource) Compare(o MovedResource) int {
	return cmp.Or(cmp.Compare(r.Group, o.Group), cmp.Compare(r.Kind, o.Kind),
		cmp.Compare(r.Namespace, o.Namespace), cmp.Compare(r.Name, o.Name))
}

// Heals reports whether the engine restores differences by itself, and with them its marks.
func (d Departure) Heals() bool {
	var spec struct {
		SyncPolicy struct {
			Automated *struct{ SelfHeal bool }
		}
	}
	return json.Unmarshal(d.Spec, &spec) == nil && spec.SyncPolicy.Automated != nil &&
		spec.SyncPolicy.Automated.SelfHeal
}

// Elsewhere are the engines that have an object that the mirror has on another one. They are empty
// unless the database went back in time past the end of a move.
type Elsewhere struct {
	Found  fleet.EngineName // has an object of its name, and no row for it
	Unread fleet.EngineName // may have one: it was not read since
}
