package hub

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/registry"
)

const (
	// to read the open reads of an engine for its stream, which sends nothing else meanwhile
	inspectReadTimeout = 2 * time.Second
	// parts of answers that are stored at once, of all agents and of one; further ones are refused
	inspectAnswers        = 16
	inspectAnswersOfAgent = 4
)

// Inspect makes this replica send the open reads of an engine to its agent, if the agent is
// connected here. It never blocks.
func (h *Hub) Inspect(engine fleet.EngineName) { h.feed.inspect(engine) }

// Answered wakes the reader of a read on this replica. It never blocks.
func (h *Hub) Answered(replica, id string) {
	if replica == h.replica {
		h.inspector.wake(id)
	}
}

// sendInspections sends the open reads of the engine's Applications if they differ from those sent
// last. For an agent of an earlier version it answers them with the reason.
func (s *stream) sendInspections() error {
	h := s.hub
	var open []registry.Inspection
	ctx, cancel := context.WithTimeout(s.ctx, inspectReadTimeout)
	defer cancel()
	err := h.inspector.reads.run(ctx, func() (err error) {
		open, err = h.store.AgentInspections(ctx, s.engine())
		return err
	})
	if err != nil {
		return storeError{err}
	}
	h.feed.note(&s.inspecting, len(open) > 0)
	if s.protocol < agent.ProtocolInspect {
		for _, in := range open {
			h.answerFor(s, in)
		}
		return nil
	}
	list := make([]agent.Inspection, 0, len(open))
	var ids strings.Builder
	for _, in := range open {
		var request agent.Inspection
		if err := json.Unmarshal(in.Request, &request); err != nil {
			continue // of a later version, during an upgrade
		}
		request.ID, request.Left = in.ID, max(1, int(in.Left/time.Second))
		list = append(list, request)
		ids.WriteString(in.ID + " ")
	}
	if ids.String() == s.inspections {
		return nil
	}
	if err := s.out.message(agent.EventInspect, -1, list); err != nil {
		return err
	}
	s.inspections = ids.String()
	return nil
}

// answerFor answers a read in place of an agent of an earlier version.
func (h *Hub) answerFor(s *stream, in registry.Inspection) {
	why, err := json.Marshal(agent.InspectionFailure{Code: agent.CodeRefused,
		Message: "its agent has version " + message(s.version) + ", which reads no resources; " +
			"upgrade the agent (docs/agents.md)"})
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, inspectReadTimeout)
	defer cancel()
	if err := h.storePart(ctx, s.engine(), registry.InspectionPart{ID: in.ID, Run: "hub", Part: 1,
		Last: true, Failure: why}); err != nil {
		h.log.DebugContext(ctx, "failed to answer a read for an agent of an earlier version",
			"engine", s.engine(), "error", err)
	}
}

// inspections serves PathInspections.
func (h *Hub) inspections(w http.ResponseWriter, r *http.Request) error {
	who, body, err := h.authenticatePost(w, r, agent.PathInspections, agent.MaxInspectionBody)
	if err != nil {
		return err
	}
	part, err := readPart(body)
	if err != nil {
		return err
	}
	leave, ok := h.inspector.enter(who.ID)
	if !ok {
		return busy("too many answers at once", time.Second)
	}
	defer leave()
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	err = h.storePart(ctx, who.Engine, part)
	switch {
	case errors.Is(err, registry.ErrInspectionEnded):
		return refused(http.StatusGone, agent.CodeEnded, "no reader waits for this answer",
			"stop answering it")
	case errors.Is(err, registry.ErrInspectionOrder):
		return refused(http.StatusConflict, agent.CodeInvalid, "not the next part of this answer",
			"number the parts 1, 2, …")
	case errors.Is(err, registry.ErrInspectionFull):
		r := refused(http.StatusTooManyRequests, agent.CodeBusy,
			"the reader has not taken the earlier parts yet", "wait for the time in Retry-After")
		r.after = time.Second
		return r
	case err != nil:
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// readPart parses a part and rejects one that exceeds the protocol's limits.
func readPart(body []byte) (registry.InspectionPart, error) {
	var p agent.InspectionPart
	if err := decode(body, &p); err != nil {
		return registry.InspectionPart{}, err
	}
	part := registry.InspectionPart{ID: p.ID, Run: p.Run, Part: p.Part, Data: p.Data,
		Last: p.Last || p.Failure != nil}
	switch {
	case !isHex128(p.ID), !isHex128(p.Run), p.Part <= 0, p.Part > maxParts:
		return part, invalid("id and run must be 32 hexadecimal digits, and part positive")
	case len(p.Data) > agent.MaxInspectionPart:
		return part, tooLarge()
	}
	if f := p.Failure; f != nil {
		part.Data = nil
		text, err := json.Marshal(agent.InspectionFailure{Code: agent.InspectionCode(plain(
			string(f.Code), maxText)), Message: message(f.Message)})
		if err != nil {
			return part, invalid("failure is invalid")
		}
		part.Failure = text
	}
	return part, nil
}

const maxParts = 1 << 20

func isHex128(id string) bool {
	if len(id) != 32 {
		return false
	}
	for _, c := range []byte(id) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// storePart stores a part and wakes its reader.
func (h *Hub) storePart(ctx context.Context, engine fleet.EngineName,
	part registry.InspectionPart) error {
	replica := ""
	err := h.inspector.reads.run(ctx, func() (err error) {
		replica, err = h.store.AnswerInspection(ctx, engine, part)
		return err
	})
	switch {
	case err != nil:
		return err
	case replica == h.replica:
		h.inspector.wake(part.ID)
	default:
		h.inspector.notify(ctx, replica, part.ID)
	}
	return nil
}
