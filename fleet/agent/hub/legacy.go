package hub

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"argosy.dev/argosy/fleet"
)

// legacyPath is the older route, for clusters that fetch manifests with a token in the path and
// nothing else. It is there only where it is switched on: what stands in a path ends up in logs of
// whatever lies between, which no care here can prevent. The literal "self" is the protocol's and
// comes first.
const legacyPath = "/api/v1/cluster/{token}/applications"

// legacySince is from when on the route is deprecated (RFC 9745): 1 January 2026.
const legacySince = 1767225600

// applications answers the older route: the manifests of the token's engine as one Kubernetes List,
// without those that carry a credential. Every token that may not read it is answered like a path
// that does not exist. Nothing here logs the request.
func (h *Hub) applications(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	token := r.PathValue("token")
	if r.Method != http.MethodGet || len(token) < shortestToken || len(token) > longestToken {
		h.notThere(w, r)
		return
	}
	if err := h.stranger(r, h.joins, h.joinsOf, h.limits.JoinRate); err != nil {
		h.later(w, err)
		return
	}
	var given fleet.AgentToken
	err := h.briefly(r.Context(), h.asks, func(ctx context.Context) (err error) {
		given, err = h.store.LegacyToken(ctx, token)
		return err
	})
	if errors.Is(err, fleet.ErrNotFound) || (err == nil && !given.Legacy) {
		h.notThere(w, r)
		return
	}
	if err != nil {
		h.later(w, withoutToken(err, token))
		return
	}
	h.listFor(w, r, given)
}

// notThere answers as the mux does for a path that it does not know, to the byte.
func (h *Hub) notThere(w http.ResponseWriter, r *http.Request) {
	w.Header().Del("Cache-Control")
	http.NotFound(w, r)
}

// later answers 503 with a moment to come back at.
func (h *Hub) later(w http.ResponseWriter, err error) {
	after := 10 * time.Second
	var over *busyError
	if errors.As(err, &over) {
		after = over.after
	} else {
		h.log.Warn("the older route of applications cannot be answered", "error", err)
	}
	w.Header().Set("Retry-After", strconv.Itoa(int(after.Seconds())+1))
	http.Error(w, "not now", http.StatusServiceUnavailable)
}

// listFor writes the list. While writes are stopped nothing is handed out that somebody would
// apply.
func (h *Hub) listFor(w http.ResponseWriter, r *http.Request, given fleet.AgentToken) {
	if h.stops.Stopped(given.Engine)(given.Tenant) {
		h.later(w, errors.New("writes are stopped"))
		return
	}
	life := h.feed.confirmedLife()
	if life == "" {
		h.later(w, errUnconfirmed)
		return
	}
	w.Header().Set("Deprecation", "@"+strconv.Itoa(legacySince))
	list := struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
	}{"v1", "List", []json.RawMessage{}}
	err := h.snapshots.within(r.Context(), func() error {
		ctx, cancel := context.WithTimeout(r.Context(), gatherTime)
		defer cancel()
		return h.reads.within(ctx, func() error {
			_, err := h.store.AgentRows(ctx, given.Engine, func(row fleet.Row) error {
				if err := checkRow(fleet.Agent{ID: "of an older route", Engine: given.Engine,
					Tenant: given.Tenant}, row); err != nil {
					return err
				}
				if row.Life != life {
					return errUnconfirmed
				}
				if !row.Unwanted && row.Credential == nil {
					list.Items = append(list.Items, row.Manifest.Body)
				}
				return nil
			})
			return err
		})
	})
	if err != nil {
		h.later(w, withoutToken(err, r.PathValue("token")))
		return
	}
	_ = writeJSON(w, list)
}
