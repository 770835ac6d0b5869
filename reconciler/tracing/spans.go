// Package tracing exports the ways of commits as OpenTelemetry spans, by OTLP over HTTP.
//
// Rules of this package:
//   - the ids are derived from the commit, so that every replica writes the same spans into the
//     same trace, and a repeated export repeats them;
//   - the spans are made from the store after the steps, apart from the path of a commit;
//   - an export is bounded in time and size.
package tracing

import (
	"crypto/sha256"
	"strconv"
	"strings"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

const (
	scope         = "argosy.dev/argosy/reconciler/tracing"
	maxText       = 1000 // bytes of an attribute
	eventOfWaits  = "wait"
	nameOfCommit  = "commit"
	nameOfOneApp  = "application"
	attributeRoot = "argosy."
)

// TraceID is the id of the trace of a commit.
func TraceID(revision fleet.Revision) []byte { return derived("trace", revision, 16) }

func spanID(revision fleet.Revision, path string) []byte {
	return derived("span "+path, revision, 8)
}

func derived(of string, revision fleet.Revision, size int) []byte {
	sum := sha256.Sum256([]byte("argosy " + of + " " + string(revision)))
	return sum[:size]
}

// Spans returns the spans of traces: for each commit a root, a child for each step between two
// times, and a child for each Application with its own steps.
func Spans(traces []view.Trace, version string) *tracepb.TracesData {
	var spans []*tracepb.Span
	for i := range traces {
		spans = append(spans, commitSpans(&traces[i])...)
	}
	return &tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource: &resourcepb.Resource{Attributes: []*commonpb.KeyValue{
			text("service.name", "argosy"), text("service.version", version)}},
		ScopeSpans: []*tracepb.ScopeSpans{{
			Scope: &commonpb.InstrumentationScope{Name: scope, Version: version}, Spans: spans}},
	}}}
}

// writer appends the spans of one commit.
type writer struct {
	trace *view.Trace
	spans []*tracepb.Span
	end   time.Time
}

func commitSpans(t *view.Trace) []*tracepb.Span {
	w := &writer{trace: t}
	root := w.add("", nameOfCommit, time.Time{}, time.Time{})
	var before time.Time
	for _, s := range t.Steps() {
		if s.Name == "committed" {
			continue // by the clock of the committer
		}
		if before.IsZero() {
			root.StartTimeUnixNano, w.end = nanoseconds(s.At), s.At
		} else {
			w.add("", s.Name, before, s.At)
		}
		before = s.At
	}
	for i := range t.Applications {
		w.addApplication(&t.Applications[i])
	}
	if w.end.IsZero() {
		return nil // it has no step
	}
	root.EndTimeUnixNano = nanoseconds(w.end)
	root.Attributes = []*commonpb.KeyValue{text("argosy.revision", string(t.Revision)),
		text("argosy.author", t.Author), text("argosy.subject", t.Subject),
		number("argosy.objects", t.Objects), number("argosy.applications", t.Traced),
		number("argosy.healthy", t.Healthy), truth("argosy.complete", t.Complete())}
	if t.Pull > 0 {
		root.Attributes = append(root.Attributes, number("argosy.pull", t.Pull))
	}
	for _, wait := range t.Waits {
		root.Events = append(root.Events, &tracepb.Span_Event{Name: eventOfWaits,
			TimeUnixNano: nanoseconds(wait.Since), Attributes: []*commonpb.KeyValue{
				text("argosy.kind", wait.Kind), text("argosy.tenant", string(wait.Tenant)),
				text("argosy.text", wait.Text)}})
	}
	return w.spans
}

// addApplication adds the span of an Application, from its row in the mirror to its last step, with
// a child for each step.
func (w *writer) addApplication(a *view.TraceApplication) {
	path := a.ID().String() + " " + string(a.Engine)
	whole := w.add(path, nameOfOneApp, a.QueuedAt, a.QueuedAt)
	whole.ParentSpanId = spanID(w.trace.Revision, "/"+nameOfCommit)
	before := a.QueuedAt
	for _, s := range []struct {
		name string
		at   *time.Time
	}{{"write", a.WrittenAt}, {"sync", a.SyncedAt}, {"become healthy", a.HealthyAt}} {
		if s.at == nil {
			break
		}
		child := w.add(path, s.name, before, *s.at)
		child.ParentSpanId = whole.SpanId
		before = *s.at
	}
	whole.EndTimeUnixNano = nanoseconds(before)
	for name, value := range map[string]string{"tenant": string(a.Tenant),
		"deployment": string(a.Deployment), "environment": string(a.Environment),
		"engine": string(a.Engine), "waitsFor": a.WaitsFor} {
		if value != "" {
			whole.Attributes = append(whole.Attributes, text(attributeRoot+name, value))
		}
	}
}

func (w *writer) add(path, name string, from, to time.Time) *tracepb.Span {
	s := &tracepb.Span{TraceId: TraceID(w.trace.Revision), Name: name,
		SpanId: spanID(w.trace.Revision, path+"/"+name), Kind: tracepb.Span_SPAN_KIND_INTERNAL,
		StartTimeUnixNano: nanoseconds(from), EndTimeUnixNano: nanoseconds(to)}
	if name != nameOfCommit {
		s.ParentSpanId = spanID(w.trace.Revision, "/"+nameOfCommit)
	}
	if to.After(w.end) {
		w.end = to
	}
	w.spans = append(w.spans, s)
	return s
}

func nanoseconds(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(max(0, t.UnixNano()))
}

func text(key, value string) *commonpb.KeyValue {
	value = strings.ToValidUTF8(value[:min(len(value), maxText)], "")
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{
		Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
}

func number(key string, n int) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{
		Value: &commonpb.AnyValue_IntValue{IntValue: int64(n)}}}
}

func truth(key string, b bool) *commonpb.KeyValue { return text(key, strconv.FormatBool(b)) }
