package edge

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// fakeInspector returns what a test sets.
type fakeInspector struct {
	engine.Inspector
	mu    sync.Mutex
	asked []mirror.InspectedApplication
	tree  func(context.Context) (mirror.Tree, error)
	logs  func(context.Context, func([]mirror.LogLine) error) (mirror.LogEnd, error)
}

func (f *fakeInspector) Tree(ctx context.Context, app mirror.InspectedApplication) (mirror.Tree,
	error) {
	f.mu.Lock()
	f.asked = append(f.asked, app)
	f.mu.Unlock()
	return f.tree(ctx)
}

func (f *fakeInspector) Logs(ctx context.Context, _ mirror.InspectedApplication,
	_ mirror.LogRequest, sink func([]mirror.LogLine) error) (mirror.LogEnd, error) {
	return f.logs(ctx, sink)
}

// readers collects the answers at the hub's side.
type readers struct {
	mu     sync.Mutex
	parts  map[string][]agent.InspectionPart
	refuse func(agent.InspectionPart) *agent.Problem
	tries  int
}

// inspected runs a test with an agent that follows and reads resources.
func inspected(t *testing.T, test func(h *hubDouble, s *site, r *readers, from *fakeInspector)) {
	t.Helper()
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		r, from := &readers{parts: map[string][]agent.InspectionPart{}}, &fakeInspector{}
		h.order(func(w http.ResponseWriter, q *http.Request) bool {
			if q.URL.Path != agent.PathInspections {
				return false
			}
			body := readAll(q)
			var p agent.InspectionPart
			if !h.proven(w, q, []byte(body)) || json.Unmarshal([]byte(body), &p) != nil {
				return true
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.tries++
			if r.refuse != nil {
				if problem := r.refuse(p); problem != nil {
					h.refuse(w, problem.Status, *problem)
					return true
				}
			}
			r.parts[p.ID] = append(r.parts[p.ID], p)
			w.WriteHeader(http.StatusNoContent)
			return true
		})
		s.f.Inspector = from
		row := object("web")
		row.Tenant, row.Environment, row.Deployment = "acme", "prod", "web"
		h.put(row)
		s.follow()
		test(h, s, r, from)
	})
}

func (r *readers) of(id string) []agent.InspectionPart {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]agent.InspectionPart{}, r.parts[id]...)
}

// answer decodes the answer of a read; false without its last part.
func (r *readers) answer(t *testing.T, id string, into any) (complete bool) {
	t.Helper()
	var packed bytes.Buffer
	for n, p := range r.of(id) {
		if p.Part != n+1 || len(p.Data) > agent.MaxInspectionPart || p.Run != r.of(id)[0].Run {
			t.Fatalf("part %d has number %d, %d bytes, run %s", n+1, p.Part, len(p.Data), p.Run)
		}
		packed.Write(p.Data)
		complete = p.Last
	}
	if !complete {
		return false
	}
	unpackInto(t, packed.Bytes(), into)
	return true
}

func unpackInto(t *testing.T, data []byte, into any) {
	t.Helper()
	g, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(g).Decode(into); err != nil {
		t.Fatal(err)
	}
}

// failure returns the failure of a read.
func (r *readers) failure(id string) (f agent.InspectionFailure) {
	parts := r.of(id)
	if len(parts) > 0 && parts[len(parts)-1].Failure != nil {
		f = *parts[len(parts)-1].Failure
	}
	return f
}

func (s *site) inspect(list ...agent.Inspection) {
	s.hub.send(message(agent.EventInspect, append([]agent.Inspection{}, list...)))
	wait(time.Second)
}

func treeRead(id string) agent.Inspection {
	return agent.Inspection{ID: id, Kind: agent.InspectTree, Left: 20,
		Application: mirror.InspectedApplication{Engine: testEngine, Name: "web", Object: "web",
			UID: "u1", ID: fleet.ApplicationID{Tenant: "acme", Environment: "prod",
				Deployment: "web"}}}
}

func logRead(id string) agent.Inspection {
	in := treeRead(id)
	in.Kind, in.Log, in.Left = agent.InspectLogs, &mirror.LogRequest{Follow: true}, 900
	return in
}

func TestALargeTreeIsSentInNumberedParts(t *testing.T) {
	inspected(t, func(_ *hubDouble, s *site, r *readers, from *fakeInspector) {
		want := mirror.Tree{}
		random := rand.New(rand.NewPCG(1, 2))
		for range 10_000 {
			want.Nodes = append(want.Nodes, mirror.TreeNode{Parent: -1, Message: fmt.Sprintf(
				"%x%x%x%x", random.Uint64(), random.Uint64(), random.Uint64(), random.Uint64())})
		}
		from.tree = func(context.Context) (mirror.Tree, error) { return want, nil }
		s.inspect(treeRead("r1"))
		wait(time.Second)
		var got mirror.Tree
		if !r.answer(s.T, "r1", &got) || len(got.Nodes) != len(want.Nodes) ||
			got.Nodes[9999].Message != want.Nodes[9999].Message {
			s.Errorf("%d nodes in %d parts", len(got.Nodes), len(r.of("r1")))
		}
		if n := len(r.of("r1")); n < 2 {
			s.Errorf("%d parts: the tree is too small for this test", n)
		}
	})
}

// The control plane names an Application: the agent reads only its own, and under its own row's
// identity and object, whatever the request has.
func TestTheAgentReadsOnlyItsOwnApplicationsUnderTheirOwnNames(t *testing.T) {
	inspected(t, func(h *hubDouble, s *site, r *readers, from *fakeInspector) {
		from.tree = func(context.Context) (mirror.Tree, error) { return mirror.Tree{}, nil }
		adopted := object("adopted")
		adopted.Tenant, adopted.Environment, adopted.Deployment = "acme", "prod", "old"
		adopted = manifest(adopted, `{"kind":"Application","metadata":{"name":"shop",`+
			`"annotations":{"argosy.dev/adopted":"shop"}}}`)
		h.put(adopted)
		wait(time.Second)
		forged := treeRead("r1")
		forged.Application.Object = "kube-system-secrets"
		forged.Application.ID.Tenant = "globex"
		of := treeRead("r2")
		of.Application.Name, of.Application.Object = "adopted", "elsewhere/other"
		foreign := treeRead("r3")
		foreign.Application.Name = "somebody-elses"
		s.inspect(forged, of, foreign)
		if len(from.asked) != 2 {
			s.Fatalf("read %+v", from.asked)
		}
		for _, app := range from.asked {
			want := mirror.InspectedApplication{Engine: testEngine, Name: "web", Object: "web",
				UID: "u1", ID: fleet.ApplicationID{Tenant: "acme", Environment: "prod",
					Deployment: "web"}}
			if app.Name == "adopted" {
				want.Name, want.Object, want.ID.Deployment = "adopted", "shop", "old"
			}
			if app != want {
				s.Errorf("read %+v, want %+v", app, want)
			}
		}
		if f := r.failure("r3"); f.Code != agent.CodeNoTree || !strings.Contains(f.Message,
			"the agent has no Application somebody-elses") {
			s.Errorf("%+v", f)
		}
	})
}

func TestAReadThatLeavesTheListEndsAtTheAgent(t *testing.T) {
	inspected(t, func(_ *hubDouble, s *site, r *readers, from *fakeInspector) {
		ended := make(chan error, 1)
		from.tree = func(ctx context.Context) (mirror.Tree, error) {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return mirror.Tree{}, ctx.Err()
		}
		s.inspect(treeRead("r1"))
		s.inspect()
		select {
		case err := <-ended:
			if !errors.Is(err, errWithdrawn) {
				s.Errorf("%v", err)
			}
		default:
			s.Error("the read goes on")
		}
		if parts := r.of("r1"); len(parts) != 0 {
			s.Errorf("sent %+v", parts)
		}
	})
}

// The same list comes again with each session: a read is answered once.
func TestAReadIsAnsweredOnceThoughTheStreamReconnects(t *testing.T) {
	inspected(t, func(h *hubDouble, s *site, r *readers, from *fakeInspector) {
		from.tree = func(ctx context.Context) (mirror.Tree, error) {
			time.Sleep(2 * time.Second)
			return mirror.Tree{More: 1}, ctx.Err()
		}
		s.inspect(treeRead("r1"))
		h.send("") // the stream ends
		wait(5 * time.Second)
		s.inspect(treeRead("r1"))
		s.inspect(treeRead("r1"))
		var got mirror.Tree
		if len(from.asked) != 1 || !r.answer(s.T, "r1", &got) || got.More != 1 {
			s.Errorf("read %d times: %+v", len(from.asked), r.of("r1"))
		}
	})
}

func TestAReadEndsAtItsTime(t *testing.T) {
	inspected(t, func(_ *hubDouble, s *site, r *readers, from *fakeInspector) {
		from.tree = func(ctx context.Context) (mirror.Tree, error) {
			<-ctx.Done()
			return mirror.Tree{}, fmt.Errorf("%w: Argo CD", mirror.ErrInspectUnreachable)
		}
		long := treeRead("r1")
		long.Left = 100_000
		s.inspect(long)
		wait(mirror.InspectTime)
		if f := r.failure("r1"); f.Code != agent.CodeUnreachable {
			s.Errorf("%+v", f)
		}
	})
}

func TestAnAgentAnswersAFewReadsAtATime(t *testing.T) {
	inspected(t, func(_ *hubDouble, s *site, r *readers, from *fakeInspector) {
		from.tree = func(ctx context.Context) (mirror.Tree, error) {
			<-ctx.Done()
			return mirror.Tree{}, ctx.Err()
		}
		var list []agent.Inspection
		for n := range agent.MaxInspections + 3 {
			list = append(list, treeRead(fmt.Sprintf("r%d", n)))
		}
		s.inspect(list...)
		busy := 0
		for _, in := range list {
			if r.failure(in.ID).Code == agent.CodeInspectBusy {
				busy++
			}
		}
		if len(from.asked) != agent.MaxInspections || busy != 3 {
			s.Errorf("%d are read, %d are refused", len(from.asked), busy)
		}
	})
}

func TestFailuresOfReadsKeepTheirKind(t *testing.T) {
	inspected(t, func(_ *hubDouble, s *site, r *readers, from *fakeInspector) {
		for err, want := range map[error]agent.InspectionCode{
			mirror.ErrNoTree: agent.CodeNoTree, mirror.ErrNotInTree: agent.CodeNotInTree,
			mirror.ErrInspectRefused:     agent.CodeRefused,
			mirror.ErrInspectBusy:        agent.CodeInspectBusy,
			mirror.ErrInspectUnreachable: agent.CodeUnreachable,
			errors.New("something"):      agent.CodeUnreachable,
		} {
			from.tree = func(context.Context) (mirror.Tree, error) {
				return mirror.Tree{}, fmt.Errorf("Argo CD: %w", err)
			}
			id := string(want) + err.Error()
			s.inspect(treeRead(id))
			if f := r.failure(id); f.Code != want || !strings.Contains(f.Message, err.Error()) {
				s.Errorf("%v: %+v", err, f)
			}
		}
		unknown := treeRead("new")
		unknown.Kind = "screenshot"
		s.inspect(unknown)
		if f := r.failure("new"); f.Code != agent.CodeRefused || !strings.Contains(f.Message,
			"upgrade the agent") {
			s.Errorf("%+v", f)
		}
		s.f.Inspector = nil
		s.inspect(treeRead("none"))
		if f := r.failure("none"); f.Code != agent.CodeRefused {
			s.Errorf("%+v", f)
		}
	})
}

func TestLinesOfALogAreSentAsTheyCome(t *testing.T) {
	inspected(t, func(_ *hubDouble, s *site, r *readers, from *fakeInspector) {
		lines := make(chan string)
		from.logs = func(ctx context.Context, sink func([]mirror.LogLine) error) (mirror.LogEnd,
			error) {
			for {
				select {
				case <-ctx.Done():
					return mirror.LogCancelled, ctx.Err()
				case text, ok := <-lines:
					if !ok {
						return mirror.LogComplete, nil
					}
					if err := sink([]mirror.LogLine{{Text: text}}); err != nil {
						return mirror.LogCancelled, err
					}
				}
			}
		}
		s.inspect(logRead("r1"))
		for n := range 3 {
			lines <- fmt.Sprintf("line %d", n)
			wait(time.Second)
			if got := logOf(s.T, r.of("r1")); len(got.Lines) != n+1 {
				s.Fatalf("after line %d: %+v", n, got)
			}
		}
		before := len(r.of("r1"))
		wait(2*agent.InspectionBeat + time.Second) // the reader learns that the agent is there
		if n := len(r.of("r1")) - before; n != 2 {
			s.Errorf("%d empty parts", n)
		}
		close(lines)
		wait(time.Second)
		if got := logOf(s.T, r.of("r1")); got.End != mirror.LogComplete {
			s.Errorf("%+v", got)
		}
	})
}

func logOf(t *testing.T, parts []agent.InspectionPart) (all agent.LogPart) {
	t.Helper()
	for _, p := range parts {
		if len(p.Data) > 0 {
			var part agent.LogPart
			unpackInto(t, p.Data, &part)
			all.Lines = append(all.Lines, part.Lines...)
			all.End = part.End
		}
	}
	return all
}

// A container that writes without an end waits for the reader: the agent keeps no lines for it, and
// sends no more requests than the hub admits.
func TestALogWaitsForItsReader(t *testing.T) {
	inspected(t, func(_ *hubDouble, s *site, r *readers, from *fakeInspector) {
		written, text := 0, strings.Repeat("x", 4096)
		from.logs = func(ctx context.Context, sink func([]mirror.LogLine) error) (mirror.LogEnd,
			error) {
			for ctx.Err() == nil {
				if err := sink([]mirror.LogLine{{Text: text}}); err != nil {
					return mirror.LogCancelled, err
				}
				written++
			}
			return mirror.LogCancelled, ctx.Err()
		}
		r.refuse = func(p agent.InspectionPart) *agent.Problem {
			if p.Part > 2 {
				return &agent.Problem{Status: http.StatusTooManyRequests, Code: agent.CodeBusy}
			}
			return nil
		}
		s.inspect(logRead("r1"))
		wait(time.Minute)
		if most := 4 * (logBatch/len(text) + 1); written > most {
			s.Errorf("%d lines are read for two parts, at most %d may", written, most)
		}
		r.mu.Lock()
		tries := r.tries
		r.refuse = func(agent.InspectionPart) *agent.Problem {
			return &agent.Problem{Status: http.StatusGone, Code: agent.CodeEnded}
		}
		r.mu.Unlock()
		if most := int(time.Minute/partRetry) + 10; tries > most {
			s.Errorf("%d requests within a minute, at most %d may be", tries, most)
		}
		wait(2 * partRetry)
		stopped := written
		wait(time.Minute)
		if written != stopped {
			s.Errorf("%d lines are read after the reader has gone", written-stopped)
		}
	})
}
