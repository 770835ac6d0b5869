package hub

import (
	"context"
	"errors"
	"net/http"
	"regexp"

	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
)

// sendShadow sends the comparison that the agent has to make, if it differs from the one sent last.
func (s *stream) sendShadow(wanted *mirror.Shadow) error {
	if s.protocol < agent.ProtocolShadow {
		return s.explainNoShadow(wanted)
	}
	var out *agent.Shadow
	if wanted != nil {
		out = &agent.Shadow{Version: wanted.Version, Digest: wanted.Digest, State: wanted.State,
			Message: wanted.Message}
	}
	return s.sendList(agent.EventShadow, out, &s.shadows)
}

// explainNoShadow records that the agent's version compares nothing: the ring does not move.
func (s *stream) explainNoShadow(wanted *mirror.Shadow) error {
	if wanted == nil || !wanted.Active() {
		return nil
	}
	why := "its agent has version " + message(s.version) + ", which compares nothing; upgrade " +
		"the agent first, or set gates.skipShadow of the ring (docs/shadow.md)"
	if wanted.State == mirror.ShadowFailed && wanted.Message == why {
		return nil
	}
	return s.explain(func(ctx context.Context) error {
		return s.hub.store.ReportShadow(ctx, s.opening.Lease, wanted.Digest, mirror.ShadowFailed,
			why)
	})
}

const comparisonsRequest = 2 << 10 // bytes

// comparisons serves PathComparisons. An agent gets the Applications of its engine.
func (h *Hub) comparisons(w http.ResponseWriter, r *http.Request) error {
	who, body, err := h.authenticatePost(w, r, agent.PathComparisons, comparisonsRequest)
	if err != nil {
		return err
	}
	var asked agent.ComparisonsRequest
	if err := decode(body, &asked); err != nil {
		return err
	}
	var tasks []mirror.ShadowTask
	err = h.withTimeout(r.Context(), h.reads, func(ctx context.Context) (err error) {
		tasks, err = h.store.AgentShadowTasks(ctx, who.Engine, asked.Digest, asked.Basis,
			asked.After, agent.MaxTasks)
		return err
	})
	if errors.Is(err, mirror.ErrNotFound) {
		return refused(http.StatusNotFound, agent.CodeInvalid,
			"the Applications of the engine are not compared with the manifests of this digest",
			"wait for the next message of the stream")
	}
	if err != nil {
		return err
	}
	out := agent.ComparisonTasks{Tasks: make([]agent.ComparisonTask, len(tasks))}
	for i, t := range tasks {
		out.Tasks[i] = agent.ComparisonTask{Name: t.Name, Inputs: t.Inputs}
	}
	return writeJSON(w, out)
}

// recordShadow records the comparisons of an agent, and then how far it has come. The comparisons
// of a report have one digest, that of the last one: earlier ones are of a former shadow. The store
// takes the tenant and the environment from its own row of the Application.
func (h *Hub) recordShadow(ctx context.Context, lease mirror.Lease, report *agent.Report) error {
	if n := len(report.Comparisons); n > 0 {
		digest := report.Comparisons[n-1].Digest
		results := validItems(report.Comparisons, func(c agent.Comparison) (mirror.ShadowResult,
			bool) {
			result, ok := resultOfComparison(c)
			return result, ok && c.Digest == digest
		})
		if len(results) > 0 {
			if err := h.store.RecordShadow(ctx, lease, digest, results); err != nil {
				return err
			}
		}
	}
	for _, r := range validItems(report.Shadows, shadowReportOf) {
		if err := h.store.ReportShadow(ctx, lease, r.Digest, r.State, r.Message); err != nil {
			return err
		}
	}
	return nil
}

var (
	digestPattern     = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	inputsPattern     = regexp.MustCompile(`^[0-9a-f]{32}$`)
	differencePattern = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// shadowReportOf keeps a report about a possible shadow, in a state that an agent may report.
func shadowReportOf(r agent.ShadowReport) (agent.ShadowReport, bool) {
	r.Message = message(r.Message)
	switch r.State {
	case mirror.ShadowRendering, mirror.ShadowCompared, mirror.ShadowFailed, mirror.ShadowEnded:
		return r, digestPattern.MatchString(r.Digest)
	}
	return r, false
}

// resultOfComparison converts a comparison within the bounds of a shadow; false if it contradicts
// itself. An Application without a valid comparison keeps the shadow from being Compared.
func resultOfComparison(c agent.Comparison) (mirror.ShadowResult, bool) {
	r := mirror.ShadowResult{ShadowTask: mirror.ShadowTask{Name: c.Name, Inputs: c.Inputs},
		Revision: shortText(c.Revision), Unrendered: message(c.Unrendered),
		Error: message(c.Error), Hash: c.Hash, MoreResources: clamp(c.MoreResources, maxObjects)}
	if !validName(c.Name) || !inputsPattern.MatchString(c.Inputs) ||
		!digestPattern.MatchString(c.Digest) ||
		c.Hash != "" && !differencePattern.MatchString(c.Hash) {
		return r, false
	}
	kept := c.Resources[:min(len(c.Resources), mirror.MaxDifferentResources)]
	r.MoreResources = clamp(r.MoreResources+len(c.Resources)-len(kept), maxObjects)
	for _, o := range kept {
		resource, ok := resourceOf(o)
		if !ok {
			return r, false
		}
		r.Resources = append(r.Resources, resource)
	}
	explained := r.Error != "" || len(r.Resources)+r.MoreResources > 0
	failed := r.Error != "" && len(r.Resources)+r.MoreResources > 0
	return r, (r.Hash != "") == explained && !failed && (r.Unrendered == "" || !explained)
}

// maxValue is the size of a value that the comparison has shortened.
const maxValue = mirror.MaxDifferentValue + len("…")

// resourceOf converts a resource that differs; false for an unknown change.
func resourceOf(o mirror.ResourceDifference) (mirror.ResourceDifference, bool) {
	out := mirror.ResourceDifference{Group: plain(o.Group, maxName), Kind: plain(o.Kind, maxName),
		Namespace: plain(o.Namespace, maxName), Name: plain(o.Name, maxName), Change: o.Change,
		MoreFields: clamp(o.MoreFields, maxObjects)}
	switch o.Change {
	case mirror.ResourceAdded, mirror.ResourceRemoved, mirror.ResourceChanged:
	default:
		return out, false
	}
	kept := o.Fields[:min(len(o.Fields), mirror.MaxDifferentFields)]
	out.MoreFields = clamp(out.MoreFields+len(o.Fields)-len(kept), maxObjects)
	for _, f := range kept {
		out.Fields = append(out.Fields, mirror.FieldDifference{Path: plain(f.Path, maxValue),
			Before: plain(f.Before, maxValue), After: plain(f.After, maxValue)})
	}
	return out, true
}
