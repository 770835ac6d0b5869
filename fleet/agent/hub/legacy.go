package hub

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

// legacyPath is the older route, for clusters that fetch manifests with nothing but a token in the
// path. It is served only when enabled: proxies log paths, and the hub cannot prevent that. The
// literal "self" is the protocol's and takes precedence.
const legacyPath = "/api/v1/cluster/{token}/applications"

// legacySince is the start of the route's deprecation (RFC 9745): 1 January 2026.
const legacySince = 1767225600

// applications serves the older route: the manifests of the token's engine as one Kubernetes List,
// without those that contain a credential. Every other token gets the response of an unknown path.
// Nothing here logs the request.
func (h *Hub) applications(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	token := r.PathValue("token")
	if r.Method != http.MethodGet || len(token) < minToken || len(token) > maxToken {
		h.notFound(w, r)
		return
	}
	if err := h.admission.admitUnknown(r, h.admission.joins); err != nil {
		h.unavailable(w, err)
		return
	}
	var given registry.Token
	err := h.withTimeout(r.Context(), h.admission.unknownReads,
		func(ctx context.Context) (err error) {
			given, err = h.store.LegacyToken(ctx, token)
			return err
		})
	if errors.Is(err, mirror.ErrNotFound) || (err == nil && !given.Legacy) {
		h.notFound(w, r)
		return
	}
	if err != nil {
		h.unavailable(w, withoutToken(err, token))
		return
	}
	h.writeList(w, r, given)
}

// notFound responds byte for byte like the mux for an unknown path.
func (h *Hub) notFound(w http.ResponseWriter, r *http.Request) {
	w.Header().Del("Cache-Control")
	http.NotFound(w, r)
}

// unavailable responds with 503 and Retry-After.
func (h *Hub) unavailable(w http.ResponseWriter, err error) {
	after := 10 * time.Second
	var over *busyError
	if errors.As(err, &over) {
		after = over.after
	} else {
		h.log.Warn("failed to serve the older route of applications", "error", err)
	}
	w.Header().Set("Retry-After", strconv.Itoa(int(after.Seconds())+1))
	http.Error(w, "not now", http.StatusServiceUnavailable)
}

// errFurther means that the client would apply objects whose namespaces its cluster's owner may not
// have allowed. Only an agent knows.
var errFurther = errors.New("the environment has Applications in other namespaces than Argo CD's " +
	"own, which an agent alone serves (argosy agent run)")

// writeList writes the list. During an emergency stop it writes nothing, because the client would
// apply it.
func (h *Hub) writeList(w http.ResponseWriter, r *http.Request, given registry.Token) {
	if h.stops.Stopped(given.Engine)(given.Tenant) {
		h.unavailable(w, errors.New("writes are stopped"))
		return
	}
	life := h.feed.confirmedLife()
	if life == "" {
		h.unavailable(w, errUnconfirmed)
		return
	}
	w.Header().Set("Deprecation", "@"+strconv.Itoa(legacySince))
	list := struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
	}{"v1", "List", []json.RawMessage{}}
	err := h.snapshots.run(r.Context(), func() error {
		ctx, cancel := context.WithTimeout(r.Context(), snapshotReadTimeout)
		defer cancel()
		return h.reads.run(ctx, func() error {
			_, err := h.store.AgentRows(ctx, given.Engine, func(row mirror.Row) error {
				if err := checkRow(registry.Agent{ID: "of an older route", Engine: given.Engine,
					Tenant: given.Tenant}, row); err != nil {
					return err
				}
				if row.Life != life {
					return errUnconfirmed
				}
				if !row.Unwanted && needsFurther(row) {
					return errFurther
				}
				if !row.Unwanted && !row.Moving && row.Credential == nil {
					list.Items = append(list.Items, row.Manifest.Body)
				}
				return nil
			})
			return err
		})
	})
	if err != nil {
		h.unavailable(w, withoutToken(err, r.PathValue("token")))
		return
	}
	_ = writeJSON(w, list)
}
