package argocd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

var _ engine.Actor = (*Engine)(nil)

// annotationAction and the kind is the annotation with the last action of the kind that was begun
// on an Application. It is written together with the action's effect, so that a repeated step finds
// the action begun. The worker begins no other action of the kind before this one has ended.
const annotationAction = "argosy.dev/action-"

const movesText = "the Application moves to another engine; it begins when the move has ended"

// acted is an Application as an action finds it.
type acted struct {
	*entry
	marks     map[string]string // annotations
	refresh   string            // annotationRefresh; Argo CD removes it with the result
	automated bool
	target    string // targetRevision of a single source
	phase     string // of the running or last operation
	operation string // request ID of the running or last operation
	requested bool   // an operation is requested, begun or not
	state     *actedState
}

type actedState struct {
	Phase, Message string
	Operation      struct{ Sync struct{ DryRun bool } }
	SyncResult     struct{ Resources []syncedResource }
}

// syncedResource is the result of one resource in an operation's state.
type syncedResource struct {
	Group, Kind, Namespace, Name string
	Status, Message              string
	HookType, HookPhase          string
}

// Act implements engine.Actor. Each write has the version of the object that the decision is based
// on as its precondition: an action that races with Argo CD decides again.
func (e *Engine) Act(ctx context.Context, q engine.ActionRequest, lease mirror.Lease) (
	engine.ActionProgress, error) {
	var done engine.ActionProgress
	if err := e.ready(); err != nil {
		return done, err
	}
	if q.ID == "" || q.Key.Kind != fleet.ObjectApplication {
		return done, fmt.Errorf("%w: %s of %s needs an Application and an id", engine.ErrRefused,
			q.Kind, q.Key.Name)
	}
	for range attempts {
		out, err := e.actStep(ctx, q, lease)
		if codeOf(err) != http.StatusConflict {
			return out, e.explain(q.Key, err)
		}
	}
	return waiting("the Application changes too quickly; it is tried again"), nil
}

func waiting(why string) engine.ActionProgress {
	return engine.ActionProgress{State: mirror.OperationPending, Message: why}
}

func running(message string) engine.ActionProgress {
	return engine.ActionProgress{State: mirror.OperationRunning, Message: message}
}

func actRefused(format string, args ...any) (engine.ActionProgress, error) {
	return engine.ActionProgress{}, fmt.Errorf("%w: "+format, append([]any{engine.ErrRefused},
		args...)...)
}

func (e *Engine) actStep(ctx context.Context, q engine.ActionRequest, lease mirror.Lease) (
	engine.ActionProgress, error) {
	a, err := e.readActed(ctx, q.Key)
	switch {
	case err != nil:
		return engine.ActionProgress{}, err
	case a == nil:
		return waiting("the Application is not on the engine yet"), nil
	case !a.Ours || a.Tenant != q.Tenant:
		return engine.ActionProgress{}, fmt.Errorf("%w: nothing is done to it", engine.ErrForeign)
	case a.fenced(lease.Epoch):
		return engine.ActionProgress{}, fmt.Errorf("%w: its epoch is %d, this lease's is %d",
			engine.ErrFenced, a.Epoch, lease.Epoch)
	case a.marks[annotationAction+string(q.Kind)] == q.ID:
		if q.Kind == mirror.ActionRestart {
			return e.actRestart(ctx, q, a, lease, true)
		}
		return e.actEnd(ctx, q, a, lease)
	case a.Deleting:
		return actRefused("it is being deleted")
	case a.move != "":
		return waiting(movesText), nil
	case a.Parked || a.skipReconcile:
		return waiting(parkedText), nil
	case q.Kind == mirror.ActionRestart:
		return e.actRestart(ctx, q, a, lease, false)
	}
	patch, out, err := actBegin(q, a)
	if patch == nil || err != nil {
		return out, err
	}
	return out, e.writeAction(ctx, q, a, lease, patch)
}

// writeAction writes the effect of an action together with its mark.
func (e *Engine) writeAction(ctx context.Context, q engine.ActionRequest, a *acted,
	lease mirror.Lease, patch map[string]any) error {
	setAnnotation(patch, annotationAction+string(q.Kind), q.ID)
	setAnnotation(patch, annotationEpoch, strconv.FormatInt(lease.Epoch, 10))
	defer e.cache.expect(q.Key, stamp{lease.Epoch, a.applied})()
	m, err := e.merge(ctx, mirror.Row{Key: q.Key, Tenant: q.Tenant}, patch, a.entry)
	if err != nil {
		return err
	}
	after := *a.entry
	after.ResourceVersion, after.Epoch = m.ResourceVersion, lease.Epoch
	if patch["operation"] != nil {
		after.request, after.Operating = q.ID, true
	}
	e.cache.learn(applications, &after)
	return nil
}

// actBegin returns the patch with which an action begins; nil if it waits.
func actBegin(q engine.ActionRequest, a *acted) (map[string]any, engine.ActionProgress, error) {
	switch q.Kind {
	case mirror.ActionRefresh:
		patch, kind := map[string]any{}, "normal"
		if q.Options.Hard || a.refresh == "hard" {
			kind = "hard"
		}
		setAnnotation(patch, annotationRefresh, kind)
		return patch, running("Argo CD compares it"), nil
	case mirror.ActionTerminate:
		return actTerminate(q, a)
	case mirror.ActionSync:
		return actSync(q, a)
	}
	out, err := actRefused("this version of Argosy cannot %s an Application of this engine", q.Kind)
	return nil, out, err
}

// actTerminate ends the running operation as Argo CD's API server does (TerminateOperation in
// server/application/application.go of 2.14 and 3.5): it sets the phase of an operation that has
// begun. Argo CD's application-controller then stops the sync and its hooks.
func actTerminate(q engine.ActionRequest, a *acted) (map[string]any, engine.ActionProgress, error) {
	switch {
	case q.Options.Operation != "" && a.operation != q.Options.Operation:
		out, err := actRefused("the operation has ended already")
		return nil, out, err
	case !a.requested && !a.running:
		out, err := actRefused("no operation is running")
		return nil, out, err
	case !a.requested || !a.running:
		return nil, waiting("Argo CD has not begun the operation yet"), nil
	}
	return map[string]any{"status": map[string]any{"operationState": map[string]any{
		"phase": "Terminating"}}}, running("Argo CD ends the operation"), nil
}

// actSync requests a sync. The same write clears the last result, see Sync.
func actSync(q engine.ActionRequest, a *acted) (map[string]any, engine.ActionProgress, error) {
	o := q.Options
	if a.Operating {
		return nil, waiting("another operation is running; the sync begins when that has ended"), nil
	}
	sync := map[string]any{"prune": o.Prune}
	if o.Revision != "" {
		if err := actRevision(o, a); err != nil {
			return nil, engine.ActionProgress{}, err
		}
		sync["revision"] = o.Revision
	}
	if o.DryRun {
		sync["dryRun"] = true
	}
	if len(a.syncOptions) > 0 {
		sync["syncOptions"] = a.syncOptions // an operation does not inherit them from the policy
	}
	if len(o.Resources) > 0 {
		var only []any
		for _, r := range o.Resources {
			resource := map[string]any{"kind": r.Kind, "name": r.Name}
			if r.Group != "" {
				resource["group"] = r.Group
			}
			if r.Namespace != "" {
				resource["namespace"] = r.Namespace
			}
			only = append(only, resource)
		}
		sync["resources"] = only
	}
	return map[string]any{"operation": operationOf(q.ID, sync),
		"status": map[string]any{"operationState": nil}}, running("Argo CD syncs it"), nil
}

// actRevision refuses a revision that the Application's automation would undo, as Argo CD's API
// server does, and one that leaves further sources open.
func actRevision(o mirror.ActionOptions, a *acted) error {
	if err := exact("revision", o.Revision, maxSources*257); err != nil {
		return fmt.Errorf("%w: %w", engine.ErrRefused, err)
	}
	switch {
	case len(a.sources) > 0:
		return fmt.Errorf("%w: it has several sources: leave the revision out", engine.ErrRefused)
	case a.automated && !o.DryRun && o.Revision != a.target:
		return fmt.Errorf("%w: it follows %s by itself and would return to that: roll it back, or "+
			"declare the revision", engine.ErrRefused, a.target)
	}
	return nil
}

// actEnd returns how far a begun action is.
func (e *Engine) actEnd(ctx context.Context, q engine.ActionRequest, a *acted,
	lease mirror.Lease) (engine.ActionProgress, error) {
	done := engine.ActionProgress{State: mirror.OperationSucceeded}
	switch q.Kind {
	case mirror.ActionRefresh:
		if a.refresh != "" {
			return running("Argo CD compares it"), nil
		}
		done.Message = fmt.Sprintf("%s and %s", a.Sync, a.Health)
	case mirror.ActionTerminate:
		if a.phase == "Terminating" {
			return running("Argo CD ends the operation"), nil
		}
		done.Message = "the operation has ended"
		if a.phase != "" {
			done.Message += ": " + a.phase
		}
	case mirror.ActionSync:
		return e.actSynced(ctx, q, a, lease)
	}
	return done, nil
}

// actSynced returns the result of a sync. Argo CD takes the state of a dry run, and of a sync of
// single resources, for an attempt to sync everything: automation would skip that revision
// (alreadyAttemptedSync in controller/appcontroller.go). So the state is removed once it is stored.
func (e *Engine) actSynced(ctx context.Context, q engine.ActionRequest, a *acted,
	lease mirror.Lease) (engine.ActionProgress, error) {
	switch {
	case a.operation != q.ID && q.Outcome != "":
		return engine.ActionProgress{State: q.Outcome}, nil
	case a.operation != q.ID:
		return actRefused("another operation has taken its place, and its result is lost")
	case a.state == nil:
		return running("Argo CD has not begun the sync yet"), nil
	case a.requested || a.running:
		return running(clip(a.state.Message, maxText)), nil
	}
	out := engine.ActionProgress{State: mirror.OperationSucceeded,
		Message: clip(a.state.Message, maxText), Results: resultsOf(a.state.SyncResult.Resources)}
	if a.state.Phase != "Succeeded" {
		out.State = mirror.OperationFailed
	}
	switch partial := q.Options.DryRun || len(q.Options.Resources) > 0; {
	case !partial || !a.automated:
		return out, nil
	case q.Outcome == "":
		out.State, out.Outcome = mirror.OperationRunning, out.State
		return out, nil
	}
	return engine.ActionProgress{State: q.Outcome}, e.writeAction(ctx, q, a, lease,
		map[string]any{"status": map[string]any{"operationState": nil}})
}

// resultsOf returns the results by resource, failures first, within bounds.
func resultsOf(all []syncedResource) []mirror.ResourceResult {
	out := make([]mirror.ResourceResult, 0, min(len(all), mirror.MaxActionResources))
	failed := func(r syncedResource) bool {
		return r.Status == "SyncFailed" || r.HookPhase == "Failed" || r.HookPhase == "Error"
	}
	slices.SortStableFunc(all, func(a, b syncedResource) int {
		switch {
		case failed(a) == failed(b):
			return 0
		case failed(a):
			return -1
		}
		return 1
	})
	for _, r := range all[:min(len(all), mirror.MaxActionResources)] {
		result := mirror.ResourceResult{ActionResource: mirror.ActionResource{
			Group: clip(r.Group, 253), Kind: clip(r.Kind, 253), Namespace: clip(r.Namespace, 253),
			Name: clip(r.Name, 253)}, Status: clip(cmp.Or(r.Status, r.HookPhase), 64),
			Message: clip(r.Message, maxText)}
		if r.HookType != "" {
			result.Hook = clip(r.HookType, 64)
			result.Status = clip(cmp.Or(r.HookPhase, r.Status), 64)
		}
		out = append(out, result)
	}
	return out
}

// readActed reads the Application, bypassing the cache; nil if it does not exist.
func (e *Engine) readActed(ctx context.Context, key fleet.ObjectKey) (*acted, error) {
	var raw json.RawMessage
	err := e.client.do(ctx, request{method: http.MethodGet,
		path: e.places.path(applications, e.objectName(key))}, &raw)
	if provesAbsence(err, applications) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	a, err := decodeActed(e.name, e.places, raw)
	if err == nil && a.Key == key {
		e.cache.learn(applications, a.entry)
	}
	if err == nil && a.Key != key {
		a.Ours = false
	}
	return a, err
}

func decodeActed(name fleet.EngineName, in places, raw []byte) (*acted, error) {
	o, err := decodeLive(raw)
	if err != nil {
		return nil, err
	}
	var more struct {
		Operation json.RawMessage
		Spec      struct {
			Source     struct{ TargetRevision string }
			SyncPolicy struct{ Automated json.RawMessage }
		}
		Status struct{ OperationState *actedState }
	}
	if err := json.Unmarshal(raw, &more); err != nil {
		return nil, fmt.Errorf("%w: the Application cannot be read: %w", engine.ErrUnreachable, err)
	}
	a := &acted{entry: newEntry(name, in, applications, o),
		marks: o.Metadata.Annotations, state: more.Status.OperationState,
		refresh:   o.Metadata.Annotations[annotationRefresh],
		automated: automatedBy(more.Spec.SyncPolicy.Automated),
		target:    more.Spec.Source.TargetRevision, requested: o.Operation != nil}
	a.operation = o.Operation.request()
	if a.state != nil {
		a.phase = clip(a.state.Phase, 32)
		a.operation = cmp.Or(a.operation, a.observation.OperationID)
	}
	return a, nil
}

// automatedBy reports whether automation is on: Argo CD 3 has a field that turns it off.
func automatedBy(automated json.RawMessage) bool {
	var on struct{ Enabled *bool }
	if len(automated) == 0 || string(automated) == "null" {
		return false
	}
	return json.Unmarshal(automated, &on) != nil || on.Enabled == nil || *on.Enabled
}
