package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

// movesBytes bounds the departures of one message. The others follow when some have moved on.
const movesBytes = agent.MaxEvent / 2

// sendMoves sends all Applications that move to or from the engine, if they differ from those sent
// last.
func (s *stream) sendMoves() error {
	if !s.sendable(nil) {
		return nil // the confirmation of the rows sends them
	}
	var found registry.Moves
	err := s.read(func(ctx context.Context) (err error) {
		found, err = s.hub.store.AgentMoves(ctx, s.engine())
		return err
	})
	if err != nil || found.Life != s.opening.Lease.Life {
		return err
	}
	s.hub.feed.note(&s.moving, len(found.All) > 0)
	all, size := agent.Moves{Rows: found.Rows, Moves: []agent.Move{}}, 0
	for _, m := range found.All {
		if m.From != s.engine() && m.To != s.engine() {
			return fmt.Errorf("the move of %s is not of engine %s: nothing is sent", m.Application,
				s.engine())
		}
		move := agent.Move{Tenant: m.Application.Tenant, Environment: m.Application.Environment,
			Deployment: m.Application.Deployment, From: m.From, To: m.To, Step: m.Step,
			Since: m.Since, Undo: m.Undo, Unadopted: m.Unadopted}
		if m.At() != s.engine() {
			move.Message = m.Message
		} else if size < movesBytes {
			text, err := json.Marshal(m.Departure)
			if err != nil {
				return err
			}
			size += len(text)
			move.Departure = &m.Departure
		}
		all.Moves = append(all.Moves, move)
	}
	return s.sendList(agent.EventMoves, all, &s.moves)
}

// recordStep records what an agent reports of a step. The store decides which step is next and
// which engine carries it out: a report of another step, or of another engine's step, changes
// nothing.
func (h *Hub) recordStep(ctx context.Context, lease mirror.Lease, engine fleet.EngineName,
	r agent.MoveReport) error {
	id := fleet.ApplicationID{Tenant: r.Tenant, Environment: r.Environment,
		Deployment: r.Deployment}
	m, moves, err := h.store.ApplicationMove(ctx, lease, id)
	if err != nil || !moves || m.At() != engine || m.Step != r.Step || !m.Since.Equal(r.Since) {
		return err
	}
	if r.Next == "" {
		return h.store.DelayMove(ctx, lease, m, message(r.Message))
	}
	if m.Calls = clamp(r.Calls, maxObjects); m.MayBecome(r.Next) && r.Next == mirror.MoveDone {
		return h.store.EndMove(ctx, lease, m)
	}
	row, found, err := h.store.LeasedRow(ctx, lease,
		fleet.ObjectKey{Engine: engine, Kind: fleet.ObjectApplication, Name: r.Name})
	if err != nil {
		return err
	}
	why := ""
	switch {
	case !found || row.Application() != id:
		return nil
	case m.Step == mirror.MoveCheck:
		m.Departure, why = departureOf(r.Departure, row)
	case m.Step == mirror.MoveAdopt && r.Next == mirror.MoveFreeze:
		m.Departure.Returns = message(r.Returns)
	}
	empty := m.Step == mirror.MoveCheck && (m.Departure.UID == "") != (r.Next == mirror.MoveReady)
	if why == "" && (empty || !m.MayBecome(r.Next)) {
		why = "step " + shortText(string(r.Next)) + ", which cannot be next"
	}
	if why != "" {
		return h.store.DelayMove(ctx, lease, m, "the agent of engine "+string(engine)+" reports "+
			why+"; upgrade the agent and the control plane")
	}
	return h.store.AdvanceMove(ctx, lease, m, r.Next, row)
}

// moveReportOf keeps a report about a possible Application.
func moveReportOf(r agent.MoveReport) (agent.MoveReport, bool) {
	ok := validName(string(r.Tenant)) && validName(string(r.Environment)) &&
		validName(string(r.Deployment)) &&
		(r.Next == "" || r.Next == mirror.MoveDone || validName(r.Name))
	return r, ok
}

var (
	uidPattern = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)
	// a commit, a digest or the version of a chart, as Argo CD resolves them: no branch, no range
	revisionPattern = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64}|sha256:[0-9a-f]{64}|` +
		`v?[0-9]+(\.[0-9]+){0,2}([-+][0-9A-Za-z.+-]{1,64})?)$`)
	groupPattern = regexp.MustCompile(`^[0-9A-Za-z.-]{0,253}$`)
	kindPattern  = regexp.MustCompile(`^[0-9A-Za-z]{1,63}$`)
)

const maxRevisions = 100

// departureOf returns the departure that an agent reports, or what is wrong with it. Its spec comes
// from the control plane's own row: nothing that an agent sends becomes part of an Application of
// another engine, except the revisions of its sources. The new engine compares all resources
// itself.
func departureOf(reported *mirror.Departure, row mirror.Row) (mirror.Departure, string) {
	var object struct{ Spec json.RawMessage }
	switch d := reported; {
	case d == nil || d.UID == "":
		return mirror.Departure{}, ""
	case !uidPattern.MatchString(d.UID):
		return mirror.Departure{}, "an invalid UID"
	case len(d.Revisions) == 0 || len(d.Revisions) > maxRevisions:
		return mirror.Departure{}, fmt.Sprintf("%d revisions", len(d.Revisions))
	case len(d.Resources) > agent.MaxDeparture:
		return mirror.Departure{}, fmt.Sprintf("%d resources; at most %d can move",
			len(d.Resources), agent.MaxDeparture)
	case json.Unmarshal(row.Manifest.Body, &object) != nil || len(object.Spec) == 0:
		return mirror.Departure{}, "an Application without a declared spec"
	}
	for _, revision := range reported.Revisions {
		if !revisionPattern.MatchString(revision) {
			return mirror.Departure{}, "revision " + shortText(revision) +
				", which is no commit, digest or version"
		}
	}
	for _, r := range reported.Resources {
		if !groupPattern.MatchString(r.Group) || !kindPattern.MatchString(r.Kind) ||
			!validName(r.Name) || r.Namespace != "" && !validName(r.Namespace) ||
			strings.ContainsAny(r.Namespace+r.Name, " ") {
			return mirror.Departure{}, "an invalid resource"
		}
	}
	return mirror.Departure{UID: reported.UID, Revisions: reported.Revisions,
		Resources: reported.Resources, LastOperation: shortText(reported.LastOperation),
		Spec: object.Spec}, ""
}
