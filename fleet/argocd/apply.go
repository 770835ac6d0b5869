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
	"argosy.dev/argosy/fleet/mirror"
)

const (
	attempts     = 5 // of a write that conflicts with other writers
	deletingWait = 5 * time.Second
)

// Apply makes one object match its row. It sends one server-side apply if the object differs or is
// missing, and no request if it matches. The secret is the credential of a Cluster or Repository
// row. Outcome.State is ApplyApplied; ApplyConflict if another manager keeps changing the object;
// or ApplyPending while an older object of that name is being deleted. Errors are those of package
// engine.
func (e *Engine) Apply(ctx context.Context, row mirror.Row, secret fleet.Secret,
	lease mirror.Lease) (engine.Outcome, error) {
	if err := errors.Join(e.ready(), e.checkPublic(row.Key)); err != nil {
		return engine.Outcome{}, err
	}
	w, err := prepare(row, secret, lease)
	if err != nil {
		return engine.Outcome{}, err
	}
	known := e.cache.get(row.Key)
	for range attempts {
		var out engine.Outcome
		out, err = e.applyOnce(ctx, w, known)
		if codeOf(err) != http.StatusConflict {
			return out, e.explain(row.Key, err)
		}
		if known, err = e.refetch(ctx, row.Key); err != nil {
			return engine.Outcome{}, e.explain(row.Key, err)
		}
	}
	return engine.Outcome{},
		fmt.Errorf(
			"%s %s: other writers changed it %d times in a row during the write; it is retried",
			row.Key.Kind, row.Key.Name, attempts)
}

// applyOnce carries out one decision.
func (e *Engine) applyOnce(ctx context.Context, w *desired, known *entry) (engine.Outcome, error) {
	switch w.decide(known) {
	case doNothing:
		return engine.Outcome{State: mirror.ApplyApplied}, nil
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
		return engine.Outcome{State: mirror.ApplyPending, RetryAfter: deletingWait,
			Message: "an older object of this name is being deleted; it is recreated when that " +
				"has ended"}, nil
	}
}

func (e *Engine) write(ctx context.Context, w *desired, known *entry) (engine.Outcome, error) {
	body, err := w.patch(known)
	if err != nil {
		return engine.Outcome{}, err
	}
	defer e.cache.expect(w.row.Key, stamp{w.epoch, w.applied})()
	var answer struct{ Metadata liveMetadata }
	err = e.mutate(ctx, w.row.Tenant, request{
		method: http.MethodPatch, path: w.r.object(e.namespace, w.row.Key.Name),
		contentType: applyPatch, accept: metadataOnly, body: body,
		// server-side apply is strict anyway
		query: url.Values{"fieldManager": {fieldManager}, "force": {"true"}, "fieldValidation": {
			"Ignore"}},
	}, &answer)
	if err != nil {
		return engine.Outcome{}, err
	}
	e.cache.put(w.r, w.written(known, &answer.Metadata, e.name))
	return engine.Outcome{State: mirror.ApplyApplied, Changed: true}, nil
}

// mutate sends a write unless an emergency stop is in force at that moment.
func (e *Engine) mutate(ctx context.Context, tenant fleet.TenantName, r request, out any) error {
	r.precheck = func() error {
		if e.options.Stopped(tenant) {
			return engine.ErrStopped
		}
		return nil
	}
	return e.client.do(ctx, r, out)
}

// read reads one object from the API server, bypassing the cache; nil if it does not exist.
func (e *Engine) read(ctx context.Context, key fleet.ObjectKey) (*liveObject, error) {
	r := resourceOf(key.Kind)
	var raw json.RawMessage
	err := e.client.do(ctx, request{method: http.MethodGet, path: r.object(e.namespace, key.Name)},
		&raw)
	if e.provesAbsence(err, r) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	o, err := decodeLive(raw)
	if err == nil && o.Metadata.UID == "" {
		err = fmt.Errorf("%w: the response is not an object", engine.ErrUnreachable)
	}
	return o, err
}

// provesAbsence reports whether a failed read proves that the object does not exist. A 404 of a
// server without this kind, or of a proxy, proves nothing.
func (e *Engine) provesAbsence(err error, r *resource) bool {
	var s *statusError
	return errors.As(err, &s) && s.Code == http.StatusNotFound && s.Reason == "NotFound" &&
		s.named == r.plural
}

// refetch refreshes the cache's entry of one object with an uncached read; nil if the object does
// not exist.
func (e *Engine) refetch(ctx context.Context, key fleet.ObjectKey) (*entry, error) {
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

// ready returns why writes are forbidden now.
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

// checkPublic rejects objects that are stored in a Secret if Secrets are off limits.
func (e *Engine) checkPublic(key fleet.ObjectKey) error {
	if e.options.Public && resourceOf(key.Kind) == secrets {
		return fmt.Errorf(
			"%s %s: %w: this agent writes no Secrets; install it without --no-secrets, or "+
				"declare no credential", key.Kind, key.Name, engine.ErrRefused)
	}
	return nil
}

// explain maps an API server's error to one of package engine. It does not repeat the server's
// message about a Secret, which may quote values.
func (e *Engine) explain(key fleet.ObjectKey, err error) error {
	if err == nil {
		return nil
	}
	subject := string(key.Kind) + " " + key.Name
	var s *statusError
	if !errors.As(err, &s) {
		return fmt.Errorf("%s: %w", subject, err)
	}
	message := s.Message
	if resourceOf(key.Kind) == secrets {
		message = "(not shown: it may quote the secret)"
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
			"namespace %s is being deleted; decide whether to restore its Argo CD before "+
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
		clip(message, maxText/2), next)
}
