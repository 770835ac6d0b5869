package mirror

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
)

// ActionKind is what a person asks of one Application (ADR 0088).
type ActionKind string

// Kinds of actions.
const (
	ActionRefresh   ActionKind = "refresh"   // compare it with its sources now
	ActionSync      ActionKind = "sync"      // with DryRun it changes nothing
	ActionTerminate ActionKind = "terminate" // end its running operation
	ActionRestart   ActionKind = "restart"   // replace the Pods of its workloads
	// sync it to a revision with which it was Healthy, and pause its automation until Git asks for
	// another revision (ADR 0089); with End, let automation go on
	ActionRollback ActionKind = "rollback"
)

// ActionKinds are all kinds of actions.
var ActionKinds = []ActionKind{ActionRefresh, ActionSync, ActionTerminate, ActionRestart,
	ActionRollback}

// Operation returns the kind of the action's operation.
func (k ActionKind) Operation() OperationKind {
	switch k {
	case ActionRefresh:
		return OperationRefresh
	case ActionTerminate:
		return OperationTerminate
	case ActionRestart:
		return OperationRestartWorkloads
	case ActionRollback:
		return OperationRollback
	}
	return OperationSync
}

// Bounds of actions.
const (
	// MaxOpenActions is how many actions of one environment may be pending or running.
	MaxOpenActions = 100
	// MaxActionResources is how many resources an action names, and has results for.
	MaxActionResources = 200
	// ActionExpiry is how long an action may wait for its engine before it begins. A person has
	// long gone on after that, and the action would surprise.
	ActionExpiry = 10 * time.Minute
	// ActionAnswer is how long the engine may take for a begun action other than a sync.
	ActionAnswer = 10 * time.Minute
)

// ActionResource names one resource of an Application.
type ActionResource struct {
	Group     string `json:"group,omitempty" maxLength:"253"`
	Kind      string `json:"kind" maxLength:"63" pattern:"^[A-Za-z0-9]+$"`
	Namespace string `json:"namespace,omitempty" maxLength:"63"`
	Name      string `json:"name" maxLength:"253" pattern:"^[^/\\s]+$"`
	// of a restart: only the object of this UID is restarted
	UID string `json:"uid,omitempty" maxLength:"64"`
}

// String returns [group/]Kind/[namespace/]name.
func (r ActionResource) String() string {
	out := r.Kind + "/"
	if r.Group != "" {
		out = r.Group + "/" + out
	}
	if r.Namespace != "" {
		out += r.Namespace + "/"
	}
	return out + r.Name
}

// ActionOptions are the choices of an action. Those of other kinds than its own are zero.
type ActionOptions struct {
	Hard bool `json:"hard,omitempty" doc:"refresh: render the manifests again, without the cache of Argo CD"`
	// of a sync: "" is the revision that the Application follows
	Revision  string           `json:"revision,omitempty" maxLength:"1024" doc:"sync: commit, tag or chart version; none: the declared one. rollback: a revision with which it was Healthy"`
	End       bool             `json:"end,omitempty" doc:"rollback: end the one that is in force"`
	Prune     bool             `json:"prune,omitempty" doc:"sync: delete the resources that the sources no longer have"`
	DryRun    bool             `json:"dryRun,omitempty" doc:"sync: change nothing, and report what would change"`
	Resources []ActionResource `json:"resources,omitempty" maxItems:"200" doc:"sync, restart: these resources alone"`
	// of a terminate: the operation that the person has seen; "" is any that runs
	Operation string `json:"operation,omitempty" maxLength:"253" doc:"terminate: the operation's ID"`
}

// Validate returns why the options do not fit the kind.
func (o ActionOptions) Validate(kind ActionKind) error {
	sync, several := kind == ActionSync, len(o.Resources) > 0
	rollback := kind == ActionRollback
	switch {
	case rollback && (o.Revision == "") != o.End:
		return errors.New("a rollback names a revision, or ends the one in force")
	case o.End && !rollback:
		return errors.New("end belongs to a rollback")
	case o.Hard && kind != ActionRefresh:
		return errors.New("hard belongs to a refresh")
	case o.Revision != "" && !sync && !rollback:
		return errors.New("revision belongs to a sync or a rollback")
	case (o.Prune || o.DryRun) && !sync:
		return errors.New("prune and dryRun belong to a sync")
	case several && !sync && kind != ActionRestart:
		return errors.New("resources belong to a sync or a restart")
	case o.Operation != "" && kind != ActionTerminate:
		return errors.New("operation belongs to a terminate")
	case len(o.Resources) > MaxActionResources:
		return fmt.Errorf("it names %d resources, and at most %d are possible", len(o.Resources),
			MaxActionResources)
	}
	for _, r := range o.Resources {
		if r.Kind == "" || r.Name == "" {
			return errors.New("a resource needs a kind and a name")
		}
		if r.UID != "" && sync {
			return errors.New("a sync names resources without a UID")
		}
	}
	return nil
}

// Action is one request of a person for one Application. The worker of its engine carries it out
// under its lease; the operation of the same ID shows the result.
type Action struct {
	ID string `json:"id"` // of its operation
	// by the client: equal requests are one action
	Request     string                `json:"request"`
	Kind        ActionKind            `json:"kind"`
	Key         fleet.ObjectKey       `json:"key"`
	Tenant      fleet.TenantName      `json:"tenant"`
	Environment fleet.EnvironmentName `json:"environment"`
	Deployment  fleet.DeploymentName  `json:"deployment"`
	Options     ActionOptions         `json:"options"`
	By          string                `json:"by"`
	Note        string                `json:"note,omitempty"`
	State       OperationState        `json:"state"`
	Message     string                `json:"message,omitempty"`
	RequestedAt time.Time             `json:"requestedAt"`
	// Late reports that the time to begin, or of a begun action the time for the engine's answer,
	// is over by the store's clock. A begun sync is never late.
	Late    bool             `json:"late,omitempty"`
	Results []ResourceResult `json:"results,omitempty"`
	// the state in which a running action ends, once its results are stored
	Outcome OperationState `json:"-"`
}

// Application returns the identity of the action's Application.
func (a Action) Application() fleet.ApplicationID {
	return fleet.ApplicationID{Tenant: a.Tenant, Deployment: a.Deployment,
		Environment: a.Environment}
}

// ResourceResult is what an operation did to one resource, or would do.
type ResourceResult struct {
	ActionResource
	// Synced, SyncFailed, Pruned, PruneSkipped, Restarted, RestartFailed or the phase of a hook
	Status  string `json:"status"`
	Hook    string `json:"hook,omitempty"`    // the phase in which it runs
	Message string `json:"message,omitempty"` // of Argo CD or the API server; at most 1 KiB
}

// ActionUpdate is how far an engine is with an action.
type ActionUpdate struct {
	ID      string
	State   OperationState
	Message string
	Results []ResourceResult // nil: unchanged
	Outcome OperationState   // see Action.Outcome; "": unchanged
}

// rollbackHold begins the names of the holds of rollbacks.
const rollbackHold = "rollback-"

// RollbackHold returns the name under which a rollback holds automation, by its operation.
func RollbackHold(operation string) fleet.SyncRunName {
	return fleet.SyncRunName(rollbackHold + operation)
}

// RollbackOf returns the operation of the rollback that holds automation under a name; "" if a
// SyncRun does. A SyncRun of such a name ends with its file, as others do.
func RollbackOf(hold fleet.SyncRunName) string {
	operation, ok := strings.CutPrefix(string(hold), rollbackHold)
	if !ok {
		return ""
	}
	return operation
}

// HealthyRevision is a revision with which an Application was Synced and Healthy.
type HealthyRevision struct {
	Revision string    `json:"revision" doc:"of its sources, joined by commas if there are several"`
	FirstAt  time.Time `json:"firstAt" doc:"when it was first Healthy with it"`
	LastAt   time.Time `json:"lastAt" doc:"when it was last reported so, within an hour"`
	Runs     bool      `json:"runs,omitempty" doc:"whether it is the revision that runs"`
}

// HealthyBefore returns the revision that a rollback without a choice leads to: the last one with
// which the Application was Healthy, of those before the one that runs. It never leads forward: a
// later one was left for a reason. all is newest first; "": there is none, or while a rollback is
// in force it is not known which one runs.
func HealthyBefore(all []HealthyRevision, rolledBack bool) string {
	var runs *HealthyRevision
	for i := range all {
		if all[i].Runs {
			runs = &all[i]
		}
	}
	if rolledBack && runs == nil {
		return ""
	}
	for _, r := range all {
		if !r.Runs && (runs == nil || r.FirstAt.Before(runs.FirstAt)) {
			return r.Revision
		}
	}
	return ""
}

// MaxHealthyRevisions is how many healthy revisions of an Application are listed and kept.
const MaxHealthyRevisions = 20

// RestartedWorkload is a workload of an Application that a restart replaces the Pods of.
type RestartedWorkload struct {
	ResourceRef
	Pods int
}

// Restartable returns the workloads in a tree whose Pods a restart replaces: those that the sources
// declare, and that exist. A workload that another one makes is restarted through that one.
func Restartable(t Tree) []RestartedWorkload {
	var out []RestartedWorkload
	at := map[int]int{} // index in out, by node
	for i, n := range t.Nodes {
		if n.Parent >= 0 && n.Parent < i {
			if w, below := at[n.Parent]; below {
				at[i] = w
				if n.Kind == "Pod" && n.Group == "" {
					out[w].Pods++
				}
				continue
			}
		}
		if n.Managed && !n.Hook && n.UID != "" && restarts(n.ResourceRef) {
			at[i] = len(out)
			out = append(out, RestartedWorkload{ResourceRef: n.ResourceRef})
		}
	}
	return out
}

func restarts(r ResourceRef) bool {
	switch r.Group + "/" + r.Kind {
	case "apps/Deployment", "apps/StatefulSet", "apps/DaemonSet":
		return true
	}
	return false
}
