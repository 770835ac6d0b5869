package argocd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
)

const (
	attempts     = 5 // of a write that others get in the way of
	deletingWait = 5 * time.Second
)

// Apply brings one object to its row: one server-side apply when it differs or is not there, no
// request when the engine already has it. The secret is the credential of a Cluster or Repository
// row. Outcome.State is ApplyApplied; ApplyConflict when another manager keeps changing it;
// ApplyPending while an older object of that name is still being deleted. Errors are those of
// package engine.
func (e *Engine) Apply(ctx context.Context, row fleet.Row, secret fleet.Secret,
	lease fleet.Lease) (engine.Outcome, error) {
	if err := errors.Join(e.ready(), e.public(row.Key)); err != nil {
		return engine.Outcome{}, err
	}
	w, err := prepare(row, secret, lease)
	if err != nil {
		return engine.Outcome{}, err
	}
	known := e.cache.get(row.Key)
	for range attempts {
		var out engine.Outcome
		out, err = e.step(ctx, w, known)
		if codeOf(err) != http.StatusConflict {
			return out, e.explain(row.Key, err)
		}
		if known, err = e.fetch(ctx, row.Key); err != nil {
			return engine.Outcome{}, e.explain(row.Key, err)
		}
	}
	return engine.Outcome{},
		fmt.Errorf(
			"%s %s: changed by others %d times in a row while it was written; it is tried again",
			row.Key.Kind, row.Key.Name, attempts)
}

// step does what the verdict says, once.
func (e *Engine) step(ctx context.Context, w *want, known *entry) (engine.Outcome, error) {
	switch w.decide(known) {
	case doNothing:
		return engine.Outcome{State: fleet.ApplyApplied}, nil
	case doCreate, doUpdate:
		return e.write(ctx, w, known)
	case doRestore:
		return e.restore(ctx, w, known)
	case isForeign:
		return engine.Outcome{},
			fmt.Errorf(
				"%w: it lacks our labels or carries another tenant's; delete or rename it on "+
					"the engine", engine.ErrForeign)
	case isFenced:
		return engine.Outcome{}, fmt.Errorf("%w: its epoch is %d, this lease's is %d",
			engine.ErrFenced, known.Epoch, w.epoch)
	default:
		return engine.Outcome{State: fleet.ApplyPending, RetryAfter: deletingWait,
			Message: "an older object of this name is being deleted; it is made anew when that " +
				"has ended"}, nil
	}
}

func (e *Engine) write(ctx context.Context, w *want, known *entry) (engine.Outcome, error) {
	body, err := w.patch(known)
	if err != nil {
		return engine.Outcome{}, err
	}
	defer e.cache.expect(w.row.Key, stamp{w.epoch, w.applied})()
	var answer struct{ Metadata liveMetadata }
	err = e.mutate(ctx, w.row.Tenant, request{
		method: http.MethodPatch, path: w.r.object(e.namespace, w.row.Key.Name),
		contentType: applyPatch, accept: metadataOnly, body: body,
		// an apply is strict by itself
		query: url.Values{"fieldManager": {fieldManager}, "force": {"true"}, "fieldValidation": {
			"Ignore"}},
	}, &answer)
	if err != nil {
		return engine.Outcome{}, err
	}
	e.cache.put(w.r, w.written(known, &answer.Metadata, e.name))
	return engine.Outcome{State: fleet.ApplyApplied, Changed: true}, nil
}

// mutate sends a write unless an emergency stop is in force at that very moment.
func (e *Engine) mutate(ctx context.Context, tenant fleet.TenantName, r request, out any) error {
	r.before = func() error {
		if e.options.Stopped(tenant) {
			return engine.ErrStopped
		}
		return nil
	}
	return e.client.do(ctx, r, out)
}

// read is an uncached read of one object, nil when there is none.
func (e *Engine) read(ctx context.Context, key fleet.ObjectKey) (*liveObject, error) {
	r := resourceOf(key.Kind)
	var raw json.RawMessage
	err := e.client.do(ctx, request{method: http.MethodGet, path: r.object(e.namespace, key.Name)},
		&raw)
	if e.absent(err, r) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	o, err := decodeLive(raw)
	if err == nil && o.Metadata.UID == "" {
		err = fmt.Errorf("%w: the answer is no object", engine.ErrUnreachable)
	}
	return o, err
}

// absent reports whether a read proves that the object is not there. A 404 of a server that does
// not know the kind at all, or of a proxy, is no proof.
func (e *Engine) absent(err error, r *resource) bool {
	var s *statusError
	return errors.As(err, &s) && s.Code == http.StatusNotFound && s.Reason == "NotFound" &&
		s.named == r.plural
}

// fetch refreshes the cache's view of one object by an uncached read, nil when there is none.
func (e *Engine) fetch(ctx context.Context, key fleet.ObjectKey) (*entry, error) {
	o, err := e.read(ctx, key)
	if o == nil || err != nil {
		return nil, err
	}
	fresh := e.entryOf(resourceOf(key.Kind), o)
	if fresh.Key.Kind != key.Kind {
		fresh.Ours = false
	}
	if resourceOf(key.Kind) != secrets || fresh.Ours {
		e.cache.put(resourceOf(key.Kind), fresh)
	}
	return fresh, nil
}

// ready reports why nothing may be written now.
func (e *Engine) ready() error {
	if why := e.unfit.Load(); why != nil {
		return *why
	}
	if !e.fit.Load() {
		return fmt.Errorf("%w: engine %s has not passed its preflight yet", engine.ErrUnfit, e.name)
	}
	if !e.Synced() {
		return fmt.Errorf("%w: engine %s", engine.ErrUnknown, e.name)
	}
	return nil
}

// public refuses what is kept in a Secret where Secrets are left alone.
func (e *Engine) public(key fleet.ObjectKey) error {
	if e.options.Public && resourceOf(key.Kind) == secrets {
		return fmt.Errorf(
			"%s %s: %w: Secrets are left alone here; install the agent without --no-secrets, or "+
				"declare no credential", key.Kind, key.Name, engine.ErrRefused)
	}
	return nil
}

// explain puts an API server's refusal in the words of package engine. What the server says of a
// Secret is not repeated: it quotes values.
func (e *Engine) explain(key fleet.ObjectKey, err error) error {
	if err == nil {
		return nil
	}
	subject := string(key.Kind) + " " + key.Name
	var s *statusError
	if !errors.As(err, &s) {
		return fmt.Errorf("%s: %w", subject, err)
	}
	said := s.Message
	if resourceOf(key.Kind) == secrets {
		said = "(not shown: it may quote the secret)"
	}
	sentinel, next := engine.ErrRefused, ""
	switch {
	case s.Code == http.StatusTooManyRequests || s.Code >= 500 &&
		s.Code != http.StatusInternalServerError:
		sentinel, next = engine.ErrUnreachable, "it is tried again"
	case s.Code == http.StatusRequestEntityTooLarge:
		sentinel = engine.ErrTooLarge
	case slices.Contains(s.Causes, "NamespaceTerminating"):
		next = fmt.Sprintf(
			"namespace %s is being deleted; decide whether its Argo CD is to come back before "+
				"anything else is written", e.namespace)
	case s.Code == http.StatusForbidden:
		next = fmt.Sprintf("grant it to the control plane in namespace %s", e.namespace)
	case s.Code == http.StatusNotFound:
		next = fmt.Sprintf("is Argo CD installed in namespace %s?", e.namespace)
	}
	if next != "" {
		next = "; " + next
	}
	return fmt.Errorf("%s: %w: %d %s: %s%s", subject, sentinel, s.Code, s.Reason,
		clip(said, maxText/2), next)
}
