package hub

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

// reportTimeout bounds the processing of one report.
const reportTimeout = 30 * time.Second

// status serves PathStatus. Reports of one agent are processed one at a time, in the order of their
// numbers.
func (h *Hub) status(w http.ResponseWriter, r *http.Request) error {
	who, body, err := h.authenticatePost(w, r, agent.PathStatus, agent.MaxReport)
	if err != nil {
		return err
	}
	session, err := agent.ReadSession(r.Header)
	if err != nil {
		return invalid(err.Error())
	}
	report, err := readReport(body)
	if err != nil {
		return err
	}
	if _, busyAlready := h.reporting.LoadOrStore(who.ID, true); busyAlready {
		r := refused(http.StatusTooManyRequests, agent.CodeBusy,
			"a report of this agent is being processed", "send one at a time")
		r.after = time.Second
		return r
	}
	defer h.reporting.Delete(who.ID)
	lease := mirror.Lease{Name: "engine/" + string(who.Engine), Holder: "agent/" + who.ID + "/" +
		session.Instance, Epoch: report.Epoch}
	ctx, cancel := context.WithTimeout(r.Context(), reportTimeout)
	defer cancel()
	err = h.accept(ctx, lease, who, report)
	h.metrics.reports.WithLabelValues(resultOf(err)).Inc()
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func resultOf(err error) string {
	var r *refusal
	switch {
	case err == nil:
		return "taken"
	case errors.Is(err, mirror.ErrFenced):
		return "superseded"
	case errors.As(err, &r) && r.Code == agent.CodeReplay:
		return "replayed"
	default:
		return "failed"
	}
}

// readReport parses a report and rejects one that exceeds the protocol's limits.
func readReport(body []byte) (*agent.Report, error) {
	var report agent.Report
	if err := decode(body, &report); err != nil {
		return nil, err
	}
	for _, n := range []int{len(report.Acks), len(report.Observed), len(report.Syncs),
		len(report.Own)} {
		if n > agent.MaxItems {
			return nil, refused(http.StatusRequestEntityTooLarge, agent.CodeInvalid,
				"the report has more than "+strconv.Itoa(agent.MaxItems)+" items items of a kind",
				"send it in parts")
		}
	}
	if report.Seq <= 0 || report.Seq > agent.MaxEpoch || report.Epoch <= 0 ||
		report.Epoch > agent.MaxEpoch {
		return nil, invalid("seq and epoch of a report must be positive")
	}
	return &report, nil
}

// accept applies a report. It checks the number first and records it last (see Reports.TakeReport).
func (h *Hub) accept(ctx context.Context, lease mirror.Lease, who registry.Agent,
	report *agent.Report) error {
	last, err := h.store.TakeReport(ctx, lease, report.Seq)
	if errors.Is(err, registry.ErrReplayed) {
		return replayedReport(report.Seq, last)
	}
	if errors.Is(err, mirror.ErrNotFound) {
		return undeclared(5*time.Second + rand.N(5*time.Second))
	}
	if err != nil {
		return err
	}
	part := lease
	part.Report = report.Seq
	err = h.apply(ctx, part, who, report)
	// another replica has accepted it or a later one meanwhile
	if errors.Is(err, registry.ErrReplayed) {
		return replayedReport(report.Seq, max(last, report.Seq))
	}
	if err != nil {
		return err
	}
	return h.store.ReportTaken(ctx, lease, report.Seq)
}

func replayedReport(seq, last int64) error {
	r := refused(http.StatusConflict, agent.CodeReplay,
		fmt.Sprintf("report %d or a later one was accepted already", seq),
		"number the next report above the last accepted one")
	r.ReportSeq = last
	return r
}

// apply stores each part of a report and skips invalid items.
func (h *Hub) apply(ctx context.Context, lease mirror.Lease, who registry.Agent,
	report *agent.Report) error {
	engine := who.Engine
	acks := validItems(report.Acks, func(a agent.Ack) (mirror.Ack, bool) { return ackOf(engine, a) })
	if len(acks) > 0 {
		if err := h.store.Acknowledge(ctx, lease, acks); err != nil {
			return err
		}
	}
	seen := validItems(report.Observed, func(o agent.Observed) (mirror.Observation, bool) {
		return observationOf(engine, o)
	})
	if len(seen) > 0 {
		if err := h.store.Observe(ctx, lease, seen); err != nil {
			return err
		}
	}
	for _, e := range validItems(report.Syncs, syncStatusOf) {
		if err := h.store.UpdateSync(ctx, lease, e.ID, e.State, e.Message); err != nil {
			return err
		}
	}
	if report.Status != nil {
		if err := h.store.ReportAgent(ctx, lease, reportOf(report.Status)); err != nil {
			return err
		}
		if report.Status.Listed != nil {
			if err := h.replaceOrphans(
				ctx, lease, orphansOf(who, report.Status.Listed)); err != nil {
				return err
			}
		}
	}
	if own := validItems(report.Own, ownOf); len(own) > 0 || report.OwnWhole {
		return h.store.RecordOwn(ctx, lease, own, report.OwnWhole)
	}
	return nil
}

// replaceOrphans stores the complete list of an agent's orphans: unlisted ones were deleted.
func (h *Hub) replaceOrphans(ctx context.Context, lease mirror.Lease, found []mirror.Orphan) error {
	name := fleet.EngineName(strings.TrimPrefix(lease.Name, "engine/"))
	gone, err := h.store.OrphanKeys(ctx, name)
	if err != nil {
		return err
	}
	still := map[fleet.ObjectKey]bool{}
	for _, f := range found {
		still[f.Key] = true
	}
	gone = slices.DeleteFunc(gone, func(key fleet.ObjectKey) bool { return still[key] })
	if len(found)+len(gone) == 0 {
		return nil
	}
	return h.store.ReportOrphans(ctx, lease, found, gone)
}

func validItems[In, Out any](in []In, clean func(In) (Out, bool)) []Out {
	var out []Out
	for _, i := range in {
		if o, ok := clean(i); ok {
			out = append(out, o)
		}
	}
	return out
}
