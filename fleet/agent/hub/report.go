package hub

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/printable"
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
		len(report.Own), len(report.Actions), len(report.Moves), len(report.Instances),
		len(report.Comparisons),
		len(report.Shadows)} {
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
	free := errors.Is(err, mirror.ErrNotFound)
	if err == nil {
		part := lease
		part.Report = report.Seq
		if err = h.apply(ctx, part, who, report); err == nil {
			err = h.store.ReportTaken(ctx, lease, report.Seq)
		}
		if errors.Is(err, registry.ErrReplayed) { // another replica has accepted it meanwhile
			last = max(last, report.Seq)
		}
		// A rebuild of the mirror may have taken the lease away since the first check. Then no
		// other process has taken over, and this one does not end.
		if errors.Is(err, mirror.ErrFenced) {
			_, now := h.store.TakeReport(ctx, lease, report.Seq)
			free = errors.Is(now, mirror.ErrNotFound)
		}
	}
	switch {
	case errors.Is(err, registry.ErrReplayed):
		return replayedReport(report.Seq, last)
	case free:
		return undeclared(5*time.Second + rand.N(5*time.Second))
	}
	return err
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
	acks := validItems(report.Acks, func(a agent.Ack) (mirror.Ack, bool) {
		return ackOf(engine, a)
	})
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
	for _, r := range validItems(report.Moves, moveReportOf) {
		if err := h.recordStep(ctx, lease, engine, r); err != nil {
			return err
		}
	}
	for _, r := range validItems(report.Instances, instanceReportOf) {
		if err := h.recordInstance(ctx, lease, r); err != nil {
			return err
		}
	}
	if err := h.recordShadow(ctx, lease, report); err != nil {
		return err
	}
	for _, e := range validItems(report.Syncs, syncStatusOf) {
		if err := h.store.UpdateSync(ctx, lease, e.ID, e.State, e.Message); err != nil {
			return err
		}
	}
	for _, u := range validItems(report.Actions, actionStatusOf) {
		if err := h.store.UpdateAction(ctx, lease, u); err != nil {
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
	resolved, err := h.store.OrphanKeys(ctx, name)
	if err != nil {
		return err
	}
	still := map[fleet.ObjectKey]bool{}
	for _, f := range found {
		still[f.Key] = true
	}
	resolved = slices.DeleteFunc(resolved, func(key fleet.ObjectKey) bool { return still[key] })
	if len(found)+len(resolved) == 0 {
		return nil
	}
	return h.store.ReportOrphans(ctx, lease, found, resolved)
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

// plain turns untrusted text into one line of printable characters, at most most bytes long.
// Readers must still escape it.
func plain(text string, most int) string {
	if len(text) > most {
		text = text[:most] // Map below drops a cut character at the end
	}
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r), unicode.IsControl(r):
			return ' '
		case r == utf8.RuneError, !printable.Is(r):
			return -1
		}
		return r
	}, text)
}

func message(text string) string { return plain(text, agent.MaxMessage) }

const (
	maxName    = 253 // bytes of an object's name (RFC 1123 subdomain)
	maxText    = 256 // bytes of revisions, UIDs and versions
	maxURL     = 2048
	maxObjects = 1 << 20
)

func shortText(text string) string { return plain(text, maxText) }

// validName reports whether text can be the name of an object. Invalid names are neither stored nor
// looked up.
func validName(name string) bool {
	return validID(name) && !strings.Contains(name, "/")
}

// validID reports whether a text can be the ID of a sync or an action.
func validID(id string) bool {
	return id != "" && len(id) <= maxName && plain(id, maxName) == id
}

func clamp(n, most int) int { return max(0, min(n, most)) }

// ackOf converts an agent's acknowledgement of one row; false without a valid key. An unknown state
// becomes a failure with an explanation, and never a removal.
func ackOf(engine fleet.EngineName, a agent.Ack) (mirror.Ack, bool) {
	if !validName(a.Name) || a.Seq < 0 || !knownKind(a.Kind) {
		return mirror.Ack{}, false
	}
	ack := mirror.Ack{Key: fleet.ObjectKey{Engine: engine, Kind: a.Kind, Name: a.Name}, Seq: a.Seq,
		State:   a.State,
		Message: message(a.Message), Removed: a.Removed, Hash: shortText(a.Hash)}
	switch a.State {
	case mirror.ApplyPending, mirror.ApplyApplied, mirror.ApplyFailed, mirror.ApplyConflict,
		mirror.ApplyDeleting, mirror.ApplyHeld:
	case "":
		if !a.Removed {
			return mirror.Ack{}, false
		}
	default:
		ack.State, ack.Removed = mirror.ApplyFailed, false
		ack.Message = message("the agent reports " + shortText(string(a.State)) +
			", which this version does not know: " + a.Message)
	}
	return ack, true
}

func knownKind(k fleet.ObjectKind) bool {
	switch k {
	case fleet.ObjectProject, fleet.ObjectCluster, fleet.ObjectRepository, fleet.ObjectApplication:
		return true
	}
	return false
}

func syncState(s mirror.SyncState) mirror.SyncState {
	switch s {
	case mirror.SyncSynced, mirror.SyncOutOfSync:
		return s
	}
	return mirror.SyncUnknown
}

func healthState(s mirror.HealthState) mirror.HealthState {
	switch s {
	case mirror.HealthHealthy, mirror.HealthProgressing, mirror.HealthDegraded,
		mirror.HealthSuspended,
		mirror.HealthMissing:
		return s
	}
	return mirror.HealthUnknown
}

// phase returns a known phase of an Argo CD operation, and "" for any other text.
func phase(p string) string {
	switch p {
	case "Running", "Succeeded", "Failed", "Error", "Terminating":
		return p
	}
	return ""
}

// withUnknown prepends values that this version does not know to a message, so that people see
// them.
func withUnknown(text string, words ...string) string {
	for i := 0; i < len(words); i += 2 {
		if words[i] != words[i+1] && words[i] != "" {
			text = strings.TrimSuffix("the agent reports "+shortText(words[i])+
				", which this version does not know: "+text, ": ")
		}
	}
	return message(text)
}

func observationOf(engine fleet.EngineName, o agent.Observed) (mirror.Observation, bool) {
	if !validName(o.Name) {
		return mirror.Observation{}, false
	}
	sync, health := syncState(o.Sync), healthState(o.Health)
	var images mirror.Images
	if o.Images != nil {
		images = mirror.ImagesOf(o.Images)
	}
	return mirror.Observation{
		Key: fleet.ObjectKey{Engine: engine, Kind: fleet.ObjectApplication, Name: o.Name},
		UID: shortText(o.UID), Sync: sync, Health: health,
		SyncedRevision: shortText(o.SyncedRevision),
		OperationPhase: phase(o.OperationPhase), OperationID: shortText(o.OperationID),
		OperationRevision: shortText(o.OperationRevision),
		OperationError:    message(o.OperationError),
		Message: withUnknown(o.Message, string(o.Sync), string(sync), string(o.Health),
			string(health), o.OperationPhase, phase(o.OperationPhase)),
		Resources: clamp(o.Resources, maxObjects), ReconciledAt: plausibleTime(o.ReconciledAt),
		ResourceVersion: shortText(o.ResourceVersion), Compared: shortText(o.Compared),
		Images: images, Deleted: o.Gone,
	}, true
}

// plausibleTime returns the time in UTC, and zero for a year that no cluster reports.
func plausibleTime(t time.Time) time.Time {
	if year := t.UTC().Year(); year < 2000 || year > 9998 {
		return time.Time{}
	}
	return t.UTC()
}

// syncStatusOf converts the state of a sync. An unknown state ends no sync.
func syncStatusOf(e agent.SyncStatus) (agent.SyncStatus, bool) {
	if !validID(e.ID) {
		return agent.SyncStatus{}, false
	}
	if !e.State.OfEngine() {
		e.Message, e.State = withUnknown(e.Message, string(e.State), ""), mirror.OperationRunning
		return e, true
	}
	e.Message = message(e.Message)
	return e, true
}

func reportOf(s *agent.AgentStatus) registry.Report {
	return registry.Report{
		Reachable: s.Reachable, Message: message(s.Message), Unfit: message(s.Unfit),
		ArgoCD: plain(s.ArgoCD, 64), Version: plain(s.Version, 64),
		PendingDeletions: clamp(s.PendingDeletions, maxObjects),
		HeldDeletions:    clamp(s.HeldDeletions, maxObjects), Orphans: clamp(s.Orphans, maxObjects),
		Own: clamp(s.Own, maxObjects), Environments: environmentsOf(s.Environments),
		Reach: reachOf(s.Unreachable), Work: workOf(s.Work),
		Load: loadOf(s.Load),
	}
}

// loadOf converts a measured load; nil if the agent sent none.
func loadOf(l *mirror.Load) *mirror.Load {
	if l == nil {
		return nil
	}
	sane := l.Sane()
	sane.At, sane.Message = plausibleTime(l.At), message(l.Message)
	return &sane
}

// workOf converts a valid state of an engine; zero if the agent sent none.
func workOf(w *mirror.Work) mirror.Work {
	if w == nil || w.State != "" && w.State != mirror.Working && !w.Faulty() {
		return mirror.Work{}
	}
	since := plausibleTime(w.Since)
	if since.IsZero() {
		return mirror.Work{}
	}
	return mirror.Work{State: w.State, Since: since, Message: message(w.Message)}
}

// reachOf converts the valid unreachable environments; nil if the agent sent no list.
func reachOf(reported []agent.Unreachable) []mirror.Reach {
	if reported == nil {
		return nil
	}
	all := []mirror.Reach{}
	for _, u := range reported[:min(len(reported), mirror.MaxReach)] {
		since := plausibleTime(u.Since)
		if !validName(string(u.Environment.Tenant)) || !validName(string(u.Environment.Name)) ||
			since.IsZero() {
			continue
		}
		reason := u.Reason
		switch reason {
		case mirror.UnreachableTimeout, mirror.UnreachableRefused, mirror.UnreachableDenied:
		default:
			reason = mirror.UnreachableError
		}
		all = append(all, mirror.Reach{Environment: u.Environment, Unreachable: &mirror.Unreachable{
			Reason: reason, Message: message(u.Message), Since: since,
			Parked: clamp(u.Parked, maxObjects),
		}})
	}
	return all
}

// environmentsOf keeps the valid environments; nil if the agent sent no list.
func environmentsOf(reported []fleet.EnvironmentID) []fleet.EnvironmentID {
	if reported == nil {
		return nil
	}
	all := []fleet.EnvironmentID{}
	for _, id := range reported[:min(len(reported), mirror.MaxOrphanEnvironments)] {
		if validName(string(id.Tenant)) && validName(string(id.Name)) {
			all = append(all, id)
		}
	}
	return all
}

// orphansOf converts the valid orphans of the agent's engine. Those of a tenant's own agent all
// belong to the tenant.
func orphansOf(who registry.Agent, reported []agent.Orphan) []mirror.Orphan {
	var all []mirror.Orphan
	for _, s := range reported[:min(len(reported), mirror.MaxListedOrphans)] {
		if !validName(s.Name) || !knownKind(s.Kind) || s.UID == "" || s.Epoch < 0 ||
			s.Epoch > agent.MaxEpoch {
			continue
		}
		orphan := mirror.Orphan{
			Key:         fleet.ObjectKey{Engine: who.Engine, Kind: s.Kind, Name: s.Name},
			Tenant:      fleet.TenantName(shortText(string(s.Tenant))),
			Environment: fleet.EnvironmentName(shortText(string(s.Environment))),
			Deployment:  fleet.DeploymentName(shortText(string(s.Deployment))),
			UID:         shortText(s.UID), Revision: fleet.Revision(shortText(string(s.Revision))),
			Epoch: s.Epoch,
			Pure:  s.Pure}
		if who.Tenant != "" {
			orphan.Tenant = who.Tenant
		}
		all = append(all, orphan)
	}
	return all
}

func ownOf(o mirror.OwnApplication) (mirror.OwnApplication, bool) {
	if !validName(o.Name) || !validName(o.Namespace) {
		return o, false
	}
	sync, health := syncState(o.Sync), healthState(o.Health)
	o.Message = withUnknown(o.Message, string(o.Sync), string(sync), string(o.Health),
		string(health),
		o.OperationPhase, phase(o.OperationPhase))
	o.Sync, o.Health, o.OperationPhase = sync, health, phase(o.OperationPhase)
	o.UID, o.Project, o.SyncedRevision, o.OperationID, o.TargetRevision = shortText(o.UID),
		shortText(o.Project), shortText(o.SyncedRevision), shortText(o.OperationID),
		shortText(o.TargetRevision)
	o.RepoURL, o.Path = withoutCredential(plain(o.RepoURL, maxURL)), plain(o.Path, maxURL)
	o.Resources = clamp(o.Resources, maxObjects)
	return o, true
}

// withoutCredential removes possible passwords from a URL: the user, the query and the fragment. An
// agent removes them too, but a malicious one does not. Of a non-URL (git@host:path) it keeps only
// the text after the last "@".
func withoutCredential(raw string) string {
	if u, err := url.Parse(raw); err == nil && u.Host != "" {
		u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
		return plain(u.String(), maxURL)
	}
	if i := strings.IndexAny(raw, "?#"); i >= 0 {
		raw = raw[:i]
	}
	return raw[strings.LastIndexByte(raw, '@')+1:]
}

// withoutToken redacts a token in an error that is logged.
func withoutToken(err error, token string) error {
	return errors.New(strings.ReplaceAll(err.Error(), token, "redacted"))
}
