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
)

// reportTime bounds the taking of one report.
const reportTime = 30 * time.Second

// status answers PathStatus. Reports of one agent are taken one at a time, in the order of their
// numbers.
func (h *Hub) status(w http.ResponseWriter, r *http.Request) error {
	who, body, err := h.proven(w, r, agent.PathStatus, agent.MaxReport)
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
			"a report of this agent is being taken", "send one at a time")
		r.after = time.Second
		return r
	}
	defer h.reporting.Delete(who.ID)
	lease := fleet.Lease{Name: "engine/" + string(who.Engine), Holder: "agent/" + who.ID + "/" +
		session.Instance, Epoch: report.Epoch}
	ctx, cancel := context.WithTimeout(r.Context(), reportTime)
	defer cancel()
	err = h.take(ctx, lease, who, report)
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
	case errors.Is(err, fleet.ErrFenced):
		return "superseded"
	case errors.As(err, &r) && r.Code == agent.CodeReplay:
		return "replayed"
	default:
		return "failed"
	}
}

// readReport reads a report and refuses one that no agent sends.
func readReport(body []byte) (*agent.Report, error) {
	var report agent.Report
	if err := decode(body, &report); err != nil {
		return nil, err
	}
	for _, n := range []int{len(report.Acks), len(report.Observed), len(report.Syncs),
		len(report.Own)} {
		if n > agent.MaxItems {
			return nil, refused(http.StatusRequestEntityTooLarge, agent.CodeInvalid,
				"the report holds more than "+strconv.Itoa(agent.MaxItems)+" of a kind",
				"send it in parts")
		}
	}
	if report.Seq <= 0 || report.Seq > agent.MaxEpoch || report.Epoch <= 0 ||
		report.Epoch > agent.MaxEpoch {
		return nil, invalid("seq and epoch of a report are numbers from 1 on")
	}
	return &report, nil
}

// take applies a report: its order is checked first and kept last (see Store.TakeReport).
func (h *Hub) take(ctx context.Context, lease fleet.Lease, who fleet.Agent,
	report *agent.Report) error {
	last, err := h.store.TakeReport(ctx, lease, report.Seq)
	if errors.Is(err, fleet.ErrReplayed) {
		return replayed(report.Seq, last)
	}
	if errors.Is(err, fleet.ErrNotFound) {
		return undeclared(5*time.Second + rand.N(5*time.Second))
	}
	if err != nil {
		return err
	}
	part := lease
	part.Report = report.Seq
	err = h.apply(ctx, part, who, report)
	if errors.Is(err, fleet.ErrReplayed) { // another replica has taken it, or a later one, since
		return replayed(report.Seq, max(last, report.Seq))
	}
	if err != nil {
		return err
	}
	return h.store.ReportTaken(ctx, lease, report.Seq)
}

func replayed(seq, last int64) error {
	r := refused(http.StatusConflict, agent.CodeReplay,
		fmt.Sprintf("report %d was taken already, or a later one was", seq),
		"number the next one above the last that was taken")
	r.ReportSeq = last
	return r
}

// apply takes each part of a report. Items that make no sense are passed over: the rest counts.
func (h *Hub) apply(ctx context.Context, lease fleet.Lease, who fleet.Agent,
	report *agent.Report) error {
	engine := who.Engine
	acks := sound(report.Acks, func(a agent.Ack) (fleet.Ack, bool) { return ackOf(engine, a) })
	if len(acks) > 0 {
		if err := h.store.Acknowledge(ctx, lease, acks); err != nil {
			return err
		}
	}
	seen := sound(report.Observed, func(o agent.Observed) (fleet.Observation, bool) {
		return observationOf(engine, o)
	})
	if len(seen) > 0 {
		if err := h.store.Observe(ctx, lease, seen); err != nil {
			return err
		}
	}
	for _, e := range sound(report.Syncs, syncEndOf) {
		if err := h.store.UpdateSync(ctx, lease, e.ID, e.State, e.Message); err != nil {
			return err
		}
	}
	if report.Standing != nil {
		if err := h.store.ReportAgent(ctx, lease, reportOf(report.Standing)); err != nil {
			return err
		}
		if report.Standing.Listed != nil {
			if err := h.takeOrphans(ctx, lease, orphansOf(who, report.Standing.Listed)); err != nil {
				return err
			}
		}
	}
	if own := sound(report.Own, ownOf); len(own) > 0 || report.OwnWhole {
		return h.store.RecordOwn(ctx, lease, own, report.OwnWhole)
	}
	return nil
}

// takeOrphans takes the whole list of an agent's strays: what is not on it any more is gone.
func (h *Hub) takeOrphans(ctx context.Context, lease fleet.Lease, found []fleet.Orphan) error {
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

func sound[In, Out any](in []In, clean func(In) (Out, bool)) []Out {
	var out []Out
	for _, i := range in {
		if o, ok := clean(i); ok {
			out = append(out, o)
		}
	}
	return out
}
