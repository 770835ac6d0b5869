package tracing_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/tracing"
)

var begun = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) *time.Time {
	at := begun.Add(d)
	return &at
}

func walked() view.Trace {
	return view.Trace{Revision: fleet.Revision(strings.Repeat("4", 40)), Author: "Ana", Pull: 7,
		Subject: "broken \xff" + strings.Repeat("x", 5000), CommittedAt: after(-time.Hour),
		DeliveredAt: after(0), FetchedAt: after(time.Second), CheckedAt: after(2 * time.Second),
		PlannedAt: after(3 * time.Second), RecordedAt: after(4 * time.Second),
		AppliedAt:   after(5 * time.Second),
		TraceCounts: view.TraceCounts{Objects: 2, Written: 2, Traced: 2, Synced: 2, Healthy: 1},
		Applications: []view.TraceApplication{
			{Tenant: "acme", Deployment: "web", Environment: "prod", Engine: "eu-1",
				QueuedAt: begun.Add(4 * time.Second), WrittenAt: after(5 * time.Second),
				SyncedAt: after(8 * time.Second), HealthyAt: after(20 * time.Second)},
			{Tenant: "acme", Deployment: "web", Environment: "dev", Engine: "eu-1",
				QueuedAt: begun.Add(4 * time.Second), WrittenAt: after(5 * time.Second),
				SyncedAt: after(9 * time.Second), WaitsFor: "Progressing"}},
		Waits: []view.TraceWait{{Kind: "hold", Tenant: "acme", Text: "x", Since: begun}}}
}

// queue is a Store in memory.
type queue struct {
	mu     sync.Mutex
	traces []view.Trace
	old    int // of the returned ones, these are too old
}

func (q *queue) Take(context.Context, time.Duration) ([]view.Trace, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	taken := q.traces
	q.traces = nil
	return taken, nil
}

func (q *queue) Return(_ context.Context, traces []view.Trace) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.traces = append(q.traces, traces[q.old:]...)
	return q.old, nil
}

// collector is a receiver of the official protobuf.
type collector struct {
	mu     sync.Mutex
	status int
	got    []*tracepb.Span
	header http.Header
	path   string
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	var data tracepb.TracesData
	if err == nil {
		err = proto.Unmarshal(body, &data)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.header, c.path = r.Header, r.URL.Path
	for _, resource := range data.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			c.got = append(c.got, scope.Spans...)
		}
	}
	w.WriteHeader(c.status)
}

type exported struct {
	*tracing.Exporter
	*queue
	*collector
	counts map[string]int
}

func exporting(t *testing.T, status int, traces ...view.Trace) *exported {
	t.Helper()
	e := &exported{queue: &queue{traces: traces}, collector: &collector{status: status},
		counts: map[string]int{}}
	server := httptest.NewServer(e.collector)
	t.Cleanup(server.Close)
	var err error
	e.Exporter, err = tracing.New(tracing.Config{Store: e.queue, Endpoint: server.URL,
		Version: "v1", Log: slog.New(slog.DiscardHandler), Every: time.Hour,
		Count: func(result string, n int) {
			if n > 0 {
				e.counts[result] += n
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestACollectorGetsTheStepsOfACommit(t *testing.T) {
	e := exporting(t, http.StatusOK, walked())
	if err := e.Export(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e.path != "/v1/traces" || e.header.Get("Content-Type") != "application/x-protobuf" {
		t.Errorf("to %s with %v", e.path, e.header)
	}
	byID, names := map[string]*tracepb.Span{}, map[string]int{}
	for _, s := range e.got {
		byID[string(s.SpanId)] = s
		names[s.Name]++
		if !bytes.Equal(s.TraceId, tracing.TraceID(walked().Revision)) ||
			s.EndTimeUnixNano < s.StartTimeUnixNano || s.StartTimeUnixNano == 0 {
			t.Errorf("span %s: %v", s.Name, s)
		}
	}
	if len(byID) != len(e.got) {
		t.Errorf("%d spans have %d ids", len(e.got), len(byID))
	}
	for name, n := range map[string]int{"commit": 1, "fetched": 1, "checked": 1, "planned": 1,
		"recorded": 1, "applied": 1, "application": 2, "write": 2, "sync": 2, "become healthy": 1} {
		if names[name] != n {
			t.Errorf("%d spans %q, want %d", names[name], name, n)
		}
	}
	for _, s := range e.got {
		parent := byID[string(s.ParentSpanId)]
		if (s.Name == "commit") != (parent == nil) {
			t.Errorf("span %s has parent %v", s.Name, parent)
		}
		if parent != nil && (s.StartTimeUnixNano < parent.StartTimeUnixNano ||
			s.EndTimeUnixNano > parent.EndTimeUnixNano) {
			t.Errorf("span %s is not within %s", s.Name, parent.Name)
		}
		for _, a := range s.Attributes {
			if len(a.Value.GetStringValue()) > 1000 {
				t.Errorf("attribute %s has %d bytes", a.Key, len(a.Value.GetStringValue()))
			}
		}
	}
	if e.counts[tracing.ResultExported] != 1 {
		t.Errorf("counted %v", e.counts)
	}
}

// Any replica writes the same spans, so that a second export adds none to the trace.
func TestASecondExportRepeatsTheSpans(t *testing.T) {
	first, second := exporting(t, http.StatusOK, walked()), exporting(t, http.StatusOK, walked())
	for _, e := range []*exported{first, second} {
		if err := e.Export(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range first.got {
		if !bytes.Equal(s.SpanId, second.got[i].SpanId) ||
			!bytes.Equal(s.TraceId, second.got[i].TraceId) {
			t.Errorf("span %s has other ids", s.Name)
		}
	}
	other := walked()
	other.Revision = fleet.Revision(strings.Repeat("5", 40))
	if bytes.Equal(tracing.TraceID(other.Revision), first.got[0].TraceId) {
		t.Error("two commits have one trace")
	}
}

func TestACollectorThatIsAwayGetsTheCommitsLater(t *testing.T) {
	e := exporting(t, http.StatusServiceUnavailable, walked(), walked())
	e.old = 1
	if err := e.Export(t.Context()); err == nil {
		t.Fatal("no error")
	}
	if e.counts[tracing.ResultRetried] != 1 || e.counts[tracing.ResultDropped] != 1 {
		t.Errorf("counted %v", e.counts)
	}
	e.status = http.StatusOK
	if err := e.Export(t.Context()); err != nil || e.counts[tracing.ResultExported] != 1 {
		t.Errorf("%v, counted %v", err, e.counts)
	}
}

func TestARefusedExportIsDropped(t *testing.T) {
	for _, status := range []int{http.StatusBadRequest, http.StatusUnauthorized,
		http.StatusMovedPermanently} {
		e := exporting(t, status, walked())
		if err := e.Export(t.Context()); err == nil || len(e.traces) > 0 ||
			e.counts[tracing.ResultDropped] != 1 {
			t.Errorf("%d: %v, counted %v", status, err, e.counts)
		}
	}
}

// endless is a connection whose other side never answers.
type endless struct{}

func (endless) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestACollectorThatHangsIsLeftAfterTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, counts := &queue{traces: []view.Trace{walked()}}, map[string]int{}
		e, err := tracing.New(tracing.Config{Store: q, Endpoint: "http://collector:4318",
			Log:   slog.New(slog.DiscardHandler),
			Count: func(result string, n int) { counts[result] += n }})
		if err != nil {
			t.Fatal(err)
		}
		tracing.Through(e, endless{})
		began := time.Now()
		if err := e.Export(t.Context()); err == nil || time.Since(began) > 11*time.Second ||
			counts[tracing.ResultRetried] != 1 {
			t.Errorf("%v after %s, counted %v", err, time.Since(began), counts)
		}
	})
}
