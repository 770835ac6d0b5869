package argocd

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

const (
	operationUser = "argosy"          // initiatedBy.username of our operations
	operationInfo = "argosy.dev/sync" // names the request in an operation's info
	busyWait      = 2 * time.Second
	parkedWait    = 30 * time.Second
	parkedText    = "the environment's cluster does not respond; the sync starts when it does"
)

// Sync requests one sync at a revision, whether or not the Application is automated. The outcome is
// ApplyApplied once the sync is requested, also for a repeated request, and ApplyPending while
// another operation runs. The result comes as an Observation with the request's ID.
//
// The same write clears the last result: Argo CD merges a new operation with the state of an older
// one, and a full sync would inherit its list of resources, skip all others and report success.
func (e *Engine) Sync(ctx context.Context, q engine.SyncRequest, lease mirror.Lease) (engine.Outcome,
	error) {
	if err := e.ready(); err != nil {
		return engine.Outcome{}, err
	}
	if err := exact("revision", q.Revision, 256); err != nil || q.ID == "" ||
		q.Key.Kind != fleet.ObjectApplication {
		return engine.Outcome{},
			fmt.Errorf("sync of %s: it needs an Application, an id and an exact revision: %w",
				q.Key.Name, err)
	}
	known := e.cache.get(q.Key)
	for range attempts {
		out, err := e.syncStep(ctx, q, lease, known)
		if codeOf(err) != http.StatusConflict {
			return out, e.explain(q.Key, err)
		}
		if known, err = e.refetch(ctx, q.Key); err != nil {
			return engine.Outcome{}, e.explain(q.Key, err)
		}
	}
	return engine.Outcome{State: mirror.ApplyPending,
		Message:    "the Application changes too quickly; it is retried",
		RetryAfter: busyWait}, nil
}

func (e *Engine) syncStep(ctx context.Context, q engine.SyncRequest, lease mirror.Lease,
	known *entry) (engine.Outcome, error) {
	switch {
	case known == nil:
		return engine.Outcome{State: mirror.ApplyPending,
			Message: "the Application is not on the engine yet", RetryAfter: busyWait}, nil
	case !known.Ours || known.Tenant != q.Tenant:
		return engine.Outcome{}, fmt.Errorf("%w: it is not synced", engine.ErrForeign)
	case known.Epoch > lease.Epoch:
		return engine.Outcome{}, fmt.Errorf("%w: its epoch is %d, this lease's is %d",
			engine.ErrFenced, known.Epoch, lease.Epoch)
	case known.requestedSync == q.ID || known.request == q.ID:
		return engine.Outcome{State: mirror.ApplyApplied}, nil
	case known.Deleting:
		return engine.Outcome{}, fmt.Errorf("%w: it is being deleted", engine.ErrRefused)
	case known.Parked:
		return engine.Outcome{State: mirror.ApplyPending, Message: parkedText,
			RetryAfter: parkedWait}, nil
	case known.Operating:
		return engine.Outcome{State: mirror.ApplyPending,
			Message:    "another operation is running; the sync is requested when that has ended",
			RetryAfter: busyWait}, nil
	}
	sync := map[string]any{"revision": q.Revision, "prune": q.Prune}
	if len(known.syncOptions) > 0 {
		// an operation does not inherit them from the policy
		sync["syncOptions"] = known.syncOptions
	}
	patch := map[string]any{"operation": operationOf(q.ID, sync), "status": map[string]any{
		"operationState": nil}}
	setAnnotation(patch, annotationSync, q.ID)
	setAnnotation(patch, annotationEpoch, strconv.FormatInt(lease.Epoch, 10))
	m, err := e.merge(ctx, mirror.Row{Key: q.Key, Tenant: q.Tenant}, patch, known)
	if err != nil {
		return engine.Outcome{}, err
	}
	after := *known
	after.ResourceVersion, after.Epoch, after.requestedSync, after.request, after.Operating =
		m.ResourceVersion, lease.Epoch, q.ID, q.ID, true
	e.cache.put(applications, &after)
	return engine.Outcome{State: mirror.ApplyApplied, Changed: true}, nil
}
