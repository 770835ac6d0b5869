package hub

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

var (
	shop = mirror.InspectedApplication{Engine: "plant", Name: "acme-web", Object: "acme-web",
		UID: "u1"}
	answerRun = strings.Repeat("a", 32)
)

// twoReplicas runs a test with the agent's stream at the first replica and readers at the second.
func twoReplicas(t *testing.T, test func(t *testing.T, o, readers *testHub, d *testAgent)) {
	t.Helper()
	bubbled(t, func(t *testing.T, o *testHub, d *testAgent) {
		readers := o.replica(func(c *Config) { c.Replica = "replica-2" })
		defer readers.run()()
		o.store.do(func() {
			o.store.notify = func(by string) {
				for _, h := range []*testHub{o, readers} {
					if e, ok := mirror.Inspect(by); ok {
						h.hub.Inspect(e)
					}
					if replica, id, ok := mirror.Answered(by); ok {
						h.hub.Answered(replica, id)
					}
				}
			}
		})
		test(t, o, readers, d)
	})
}

// pendingRead is the outcome of a read that runs.
type pendingRead[T any] struct {
	done  chan struct{}
	value T
	err   error
}

func readInBackground[T any](read func() (T, error)) *pendingRead[T] {
	r := &pendingRead[T]{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.value, r.err = read()
	}()
	return r
}

func (r *pendingRead[T]) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// listed returns the reads that the stream sent last.
func (w *testStream) listed() (list []agent.Inspection) {
	w.last(agent.EventInspect, &list)
	return list
}

// part posts a part of an answer.
func (d *testAgent) part(o *testHub, p agent.InspectionPart) *httptest.ResponseRecorder {
	if p.Run == "" {
		p.Run = answerRun
	}
	body, err := json.Marshal(p)
	if err != nil {
		d.o.t.Fatal(err)
	}
	return o.serve(d.post(agent.PathInspections, body))
}

func packed(t testing.TB, value any) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if err := json.NewEncoder(w).Encode(value); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestAReadReachesTheAgentAtAnotherReplicaAndItsAnswerComesBack(t *testing.T) {
	twoReplicas(t, func(t *testing.T, o, readers *testHub, d *testAgent) {
		w := d.stream(0)
		advance(time.Second)
		read := readInBackground(func() (mirror.Tree, error) {
			return readers.hub.Inspector().Tree(t.Context(), shop)
		})
		synctest.Wait()
		list := w.listed()
		if len(list) != 1 || list[0].Kind != agent.InspectTree || list[0].Application != shop ||
			list[0].Left <= 0 || time.Duration(list[0].Left)*time.Second > mirror.InspectTime {
			t.Fatalf("the agent is sent %+v", list)
		}
		text := packed(t, mirror.Tree{Nodes: []mirror.TreeNode{
			{ResourceRef: mirror.ResourceRef{Kind: "Pod", Name: "web-1"}, Parent: -1}}})
		half := len(text) / 2
		// an agent that reconnects may send the parts to either replica
		for i, p := range []agent.InspectionPart{{Part: 1, Data: text[:half]},
			{Part: 1, Data: text[:half]}, {Part: 2, Data: text[half:], Last: true}} {
			p.ID = list[0].ID
			if got := d.part([]*testHub{o, o, readers}[i], p); got.Code != http.StatusNoContent {
				t.Fatalf("part %d: %d %s", p.Part, got.Code, got.Body)
			}
		}
		synctest.Wait()
		if !read.ended() || read.err != nil || len(read.value.Nodes) != 1 ||
			read.value.Nodes[0].Name != "web-1" {
			t.Fatalf("%v %+v, %v", read.ended(), read.value, read.err)
		}
		if n := o.store.readCount(); n != 0 {
			t.Errorf("%d reads are left", n)
		}
		advance(2 * pollInterval)
		if list := w.listed(); len(list) != 0 {
			t.Errorf("the agent is still sent %+v", list)
		}
		w.cancel()
		<-w.ended
	})
}

func TestAReadWhoseReaderLeavesEndsAtTheAgent(t *testing.T) {
	twoReplicas(t, func(t *testing.T, o, readers *testHub, d *testAgent) {
		w := d.stream(0)
		advance(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		read := readInBackground(func() (mirror.Tree, error) {
			return readers.hub.Inspector().Tree(ctx, shop)
		})
		synctest.Wait()
		list := w.listed()
		if len(list) != 1 {
			t.Fatalf("sent %+v", list)
		}
		cancel()
		synctest.Wait()
		if !errors.Is(read.err, context.Canceled) {
			t.Errorf("%v", read.err)
		}
		if list := w.listed(); len(list) != 0 {
			t.Errorf("the agent is still sent %+v", list)
		}
		wantRefusal(t, d.part(o, agent.InspectionPart{ID: list[0].ID, Part: 1}), http.StatusGone,
			agent.CodeEnded)
		w.cancel()
		<-w.ended
	})
}

// A replica that dies leaves its reads behind: they end without it, and nothing of them stays.
func TestAReadOfADeadReplicaEndsByItself(t *testing.T) {
	twoReplicas(t, func(t *testing.T, o, _ *testHub, d *testAgent) {
		w := d.stream(0)
		advance(time.Second)
		id := strings.Repeat("1", 32)
		if err := o.store.OpenInspection(t.Context(), registry.Inspection{ID: id,
			Engine: "plant", Application: shop, Replica: "dead", Left: time.Minute,
			Request: json.RawMessage(`{"kind":"logs"}`)}); err != nil {
			t.Fatal(err)
		}
		advance(2 * pollInterval) // its notification was lost
		if list := w.listed(); len(list) != 1 || list[0].ID != id {
			t.Fatalf("sent %+v", list)
		}
		advance(registry.InspectionAlive + pollInterval)
		if list := w.listed(); len(list) != 0 {
			t.Errorf("the agent is still sent %+v", list)
		}
		advance(2 * sweepEvery)
		if n := o.store.readCount(); n != 0 {
			t.Errorf("%d reads are left", n)
		}
		w.cancel()
		<-w.ended
	})
}

func TestAnAgentCannotAnswerTheReadOfAnother(t *testing.T) {
	twoReplicas(t, func(t *testing.T, o, readers *testHub, d *testAgent) {
		other := o.newAgent("mill", "")
		w := d.stream(0)
		advance(time.Second)
		read := readInBackground(func() (mirror.Tree, error) {
			return readers.hub.Inspector().Tree(t.Context(), shop)
		})
		synctest.Wait()
		id := w.listed()[0].ID
		forged := agent.InspectionPart{ID: id, Part: 1, Last: true, Data: packed(t, mirror.Tree{
			More: 666})}
		wantRefusal(t, other.part(o, forged), http.StatusGone, agent.CodeEnded)
		synctest.Wait()
		if read.ended() {
			t.Fatalf("another agent has answered: %+v, %v", read.value, read.err)
		}
		forged.Data = packed(t, mirror.Tree{More: 1})
		if got := d.part(o, forged); got.Code != http.StatusNoContent {
			t.Errorf("%d %s", got.Code, got.Body)
		}
		synctest.Wait()
		if !read.ended() || read.err != nil || read.value.More != 1 {
			t.Errorf("%+v, %v", read.value, read.err)
		}
		w.cancel()
		<-w.ended
	})
}

// A process that starts again does not continue the answer of the one before: a reader never gets
// parts of two answers.
func TestPartsOfAnAnswerComeInOrderAndFromOneProcess(t *testing.T) {
	twoReplicas(t, func(t *testing.T, o, readers *testHub, d *testAgent) {
		w := d.stream(0)
		advance(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		read := readInBackground(func() (mirror.Tree, error) {
			return readers.hub.Inspector().Tree(ctx, shop)
		})
		synctest.Wait()
		id := w.listed()[0].ID
		for _, c := range []struct {
			part   agent.InspectionPart
			status int
			code   string
		}{
			{agent.InspectionPart{ID: id, Part: 2}, http.StatusConflict, agent.CodeInvalid},
			{agent.InspectionPart{ID: id, Part: 1}, http.StatusNoContent, ""},
			{agent.InspectionPart{ID: id, Part: 1, Run: strings.Repeat("b", 32)}, http.StatusGone,
				agent.CodeEnded},
			{agent.InspectionPart{ID: id, Part: 3}, http.StatusConflict, agent.CodeInvalid},
			{agent.InspectionPart{ID: id, Part: 0}, http.StatusBadRequest, agent.CodeInvalid},
			{agent.InspectionPart{ID: "../" + id, Part: 2}, http.StatusBadRequest,
				agent.CodeInvalid},
			{agent.InspectionPart{ID: strings.Repeat("0", 32), Part: 1}, http.StatusGone,
				agent.CodeEnded},
		} {
			got := d.part(o, c.part)
			if c.code == "" {
				if got.Code != c.status {
					t.Errorf("part %+v: %d %s", c.part, got.Code, got.Body)
				}
				continue
			}
			wantRefusal(t, got, c.status, c.code)
		}
		big := d.part(o, agent.InspectionPart{ID: id, Part: 2,
			Data: make([]byte, agent.MaxInspectionPart+1)})
		wantRefusal(t, big, http.StatusRequestEntityTooLarge, agent.CodeInvalid)
		cancel()
		<-read.done
		w.cancel()
		<-w.ended
	})
}

func TestAnAnswerThatIsNotOneIsRefusedWithAReason(t *testing.T) {
	bomb := packed(t, strings.Repeat("0", agent.MaxInspectionAnswer+1))
	for name, c := range map[string]struct {
		data []byte
		want error
		text string
	}{
		"no gzip":    {[]byte("{}"), mirror.ErrInspectUnreachable, "upgrade the agent"},
		"no tree":    {packed(t, "tree"), mirror.ErrInspectUnreachable, "upgrade the agent"},
		"gzip bomb":  {bomb, mirror.ErrInspectRefused, "exceeds 16 MiB"},
		"incomplete": {packed(t, mirror.Tree{})[:12], mirror.ErrInspectUnreachable, "decoded"},
	} {
		t.Run(name, func(t *testing.T) {
			twoReplicas(t, func(t *testing.T, o, readers *testHub, d *testAgent) {
				w := d.stream(0)
				advance(time.Second)
				read := readInBackground(func() (mirror.Tree, error) {
					return readers.hub.Inspector().Tree(t.Context(), shop)
				})
				synctest.Wait()
				got := d.part(o, agent.InspectionPart{ID: w.listed()[0].ID, Part: 1,
					Data: c.data, Last: true})
				if got.Code != http.StatusNoContent {
					t.Fatalf("%d %s", got.Code, got.Body)
				}
				synctest.Wait()
				if !read.ended() || !errors.Is(read.err, c.want) ||
					!strings.Contains(read.err.Error(), c.text) {
					t.Errorf("%v", read.err)
				}
				w.cancel()
				<-w.ended
			})
		})
	}
}

// An agent that sends parts without an end fills neither the database nor the reader's memory.
func TestAnAnswerWithoutAnEndIsCutOff(t *testing.T) {
	twoReplicas(t, func(t *testing.T, o, readers *testHub, d *testAgent) {
		w := d.stream(0)
		advance(time.Second)
		read := readInBackground(func() (mirror.Tree, error) {
			return readers.hub.Inspector().Tree(t.Context(), shop)
		})
		synctest.Wait()
		id, noise := w.listed()[0].ID, make([]byte, agent.MaxInspectionPart)
		accepted := 0
		for n := 1; !read.ended() && n < 1000; n++ {
			if got := d.part(o, agent.InspectionPart{ID: id, Part: n, Data: noise}); got.Code ==
				http.StatusNoContent {
				accepted++
			}
			synctest.Wait()
		}
		if most := maxPacked/agent.MaxInspectionPart + 1; accepted > most {
			t.Errorf("%d parts were accepted, at most %d may", accepted, most)
		}
		if !errors.Is(read.err, mirror.ErrInspectRefused) {
			t.Errorf("%v", read.err)
		}
		w.cancel()
		<-w.ended
	})
}

func TestAPartWaitsUntilTheReaderHasTakenTheEarlierOnes(t *testing.T) {
	twoReplicas(t, func(t *testing.T, o, _ *testHub, d *testAgent) {
		id := strings.Repeat("1", 32)
		if err := o.store.OpenInspection(t.Context(), registry.Inspection{ID: id,
			Engine: "plant", Application: shop, Replica: "slow", Left: time.Minute,
			Request: json.RawMessage(`{"kind":"logs"}`)}); err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= registry.MaxInspectionParts; n++ {
			if got := d.part(o, agent.InspectionPart{ID: id, Part: n}); got.Code !=
				http.StatusNoContent {
				t.Fatalf("part %d: %d %s", n, got.Code, got.Body)
			}
		}
		next := agent.InspectionPart{ID: id, Part: registry.MaxInspectionParts + 1}
		got := d.part(o, next)
		wantRefusal(t, got, http.StatusTooManyRequests, agent.CodeBusy)
		if got.Header().Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		if _, err := o.store.TakeInspection(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if got := d.part(o, next); got.Code != http.StatusNoContent {
			t.Errorf("%d %s", got.Code, got.Body)
		}
	})
}

func TestAnEarlierAgentIsNamedWithItsVersion(t *testing.T) {
	twoReplicas(t, func(t *testing.T, o, readers *testHub, d *testAgent) {
		s := d.session(0)
		s.Protocol, s.Version = agent.ProtocolInspect-1, "v0.5.0"
		r := d.get(agent.PathStream, 0)
		s.Set(r.Header)
		w := o.stream(d.proven(r, agent.PathStream, s.Bytes()))
		advance(time.Second)
		read := readInBackground(func() (mirror.Tree, error) {
			return readers.hub.Inspector().Tree(t.Context(), shop)
		})
		synctest.Wait()
		if !read.ended() || !errors.Is(read.err, mirror.ErrInspectRefused) || !strings.Contains(
			read.err.Error(), "its agent has version v0.5.0, which reads no resources; upgrade") {
			t.Errorf("%v %v", read.ended(), read.err)
		}
		var list []agent.Inspection
		if w.last(agent.EventInspect, &list) {
			t.Errorf("it is sent %+v", list)
		}
		w.cancel()
		<-w.ended
	})
}

func TestAFailureOfAnAgentKeepsItsKindAndIsPrintable(t *testing.T) {
	for code, want := range map[agent.InspectionCode]error{
		agent.CodeNoTree: mirror.ErrNoTree, agent.CodeNotInTree: mirror.ErrNotInTree,
		agent.CodeRefused: mirror.ErrInspectRefused, agent.CodeInspectBusy: mirror.ErrInspectBusy,
		agent.CodeUnreachable: mirror.ErrInspectUnreachable,
		"something new":       mirror.ErrInspectUnreachable,
	} {
		t.Run(string(code), func(t *testing.T) {
			twoReplicas(t, func(t *testing.T, o, readers *testHub, d *testAgent) {
				w := d.stream(0)
				advance(time.Second)
				read := readInBackground(func() ([]mirror.PastSync, error) {
					return readers.hub.Inspector().Syncs(t.Context(), shop)
				})
				synctest.Wait()
				d.part(o, agent.InspectionPart{ID: w.listed()[0].ID, Part: 1,
					Failure: &agent.InspectionFailure{Code: code,
						Message: "\x1b[31mred\u202e" + strings.Repeat("x", 5000)}})
				synctest.Wait()
				if !read.ended() || !errors.Is(read.err, want) {
					t.Fatalf("%v %v", read.ended(), read.err)
				}
				if text := read.err.Error(); strings.ContainsAny(text, "\x1b\u202e") ||
					len(text) > agent.MaxMessage {
					t.Errorf("%d bytes: %q", len(text), text)
				}
				w.cancel()
				<-w.ended
			})
		})
	}
}

func TestLinesOfALogComeOneAfterTheOther(t *testing.T) {
	twoReplicas(t, func(t *testing.T, o, readers *testHub, d *testAgent) {
		w := d.stream(0)
		advance(time.Second)
		var lines []string
		read := readInBackground(func() (mirror.LogEnd, error) {
			return readers.hub.Inspector().Logs(t.Context(), shop, mirror.LogRequest{Follow: true,
				Pod: mirror.ResourceRef{Kind: "Pod", Name: "web-1"}},
				func(next []mirror.LogLine) error {
					for _, l := range next {
						lines = append(lines, l.Text)
					}
					return nil
				})
		})
		synctest.Wait()
		in := w.listed()[0]
		if in.Kind != agent.InspectLogs || in.Log == nil || in.Log.Pod.Name != "web-1" ||
			!in.Log.Follow {
			t.Fatalf("sent %+v", in)
		}
		for n := 1; n <= 20; n++ { // longer than a silent log lasts, with empty parts
			p := agent.InspectionPart{ID: in.ID, Part: n}
			if n%2 == 1 {
				p.Data = packed(t, agent.LogPart{Lines: []mirror.LogLine{{Text: "line"}}})
			}
			if got := d.part(o, p); got.Code != http.StatusNoContent {
				t.Fatalf("part %d: %d %s", n, got.Code, got.Body)
			}
			advance(agent.InspectionBeat)
			if want := (n + 1) / 2; len(lines) != want {
				t.Fatalf("after part %d: %d lines", n, len(lines))
			}
		}
		d.part(o, agent.InspectionPart{ID: in.ID, Part: 21, Last: true,
			Data: packed(t, agent.LogPart{End: mirror.LogComplete})})
		synctest.Wait()
		if !read.ended() || read.err != nil || read.value != mirror.LogComplete {
			t.Errorf("%q, %v", read.value, read.err)
		}
		w.cancel()
		<-w.ended
	})
}

func TestALogEndsWithItsReason(t *testing.T) {
	line := packed(t, agent.LogPart{Lines: []mirror.LogLine{{Text: "line"}}})
	many := agent.LogPart{}
	for range 64 {
		many.Lines = append(many.Lines, mirror.LogLine{Text: strings.Repeat("x",
			mirror.MaxLogLineBytes)})
	}
	lots := packed(t, many)
	gone := errors.New("the reader has gone")
	for name, c := range map[string]struct {
		parts  func(post func([]byte))
		sink   error
		within time.Duration
		want   mirror.LogEnd
	}{
		"a silent agent": {func(post func([]byte)) { post(line) }, nil,
			agent.InspectionSilence + pollInterval, mirror.LogCut},
		"a part that is none": {func(post func([]byte)) { post(line); post([]byte("x")) }, nil, 0,
			mirror.LogCut},
		"a reader that has gone": {func(post func([]byte)) { post(line) }, gone, 0,
			mirror.LogCancelled},
		"a log without an end": {func(post func([]byte)) {
			for range 100 {
				post(lots)
			}
		}, nil, 0, mirror.LogTooLong},
	} {
		t.Run(name, func(t *testing.T) {
			twoReplicas(t, func(t *testing.T, o, readers *testHub, d *testAgent) {
				w := d.stream(0)
				advance(time.Second)
				size := 0
				read := readInBackground(func() (mirror.LogEnd, error) {
					return readers.hub.Inspector().Logs(t.Context(), shop, mirror.LogRequest{},
						func(next []mirror.LogLine) error {
							for _, l := range next {
								size += len(l.Text)
							}
							return c.sink
						})
				})
				synctest.Wait()
				id, n := w.listed()[0].ID, 0
				c.parts(func(data []byte) {
					n++
					d.part(o, agent.InspectionPart{ID: id, Part: n, Data: data})
					synctest.Wait()
				})
				advance(c.within)
				if !read.ended() || read.err != nil || read.value != c.want {
					t.Errorf("%v %q, %v", read.ended(), read.value, read.err)
				}
				if size > mirror.MaxLogBytes {
					t.Errorf("%d bytes", size)
				}
				advance(pollInterval)
				if list := w.listed(); len(list) != 0 {
					t.Errorf("the agent is still sent %+v", list)
				}
				w.cancel()
				<-w.ended
			})
		})
	}
}

func TestAnAgentThatDoesNotAnswerIsNamed(t *testing.T) {
	twoReplicas(t, func(t *testing.T, o, readers *testHub, d *testAgent) {
		w := d.stream(0)
		advance(time.Second)
		read := readInBackground(func() (mirror.Tree, error) {
			return readers.hub.Inspector().Tree(t.Context(), shop)
		})
		advance(mirror.InspectTime)
		if !read.ended() || !errors.Is(read.err, mirror.ErrInspectUnreachable) ||
			!strings.Contains(read.err.Error(), "its agent has not answered within 20s") {
			t.Errorf("%v", read.err)
		}
		w.cancel()
		<-w.ended
	})
}

func TestTheLossOfTheDatabaseEndsARead(t *testing.T) {
	twoReplicas(t, func(t *testing.T, o, readers *testHub, d *testAgent) {
		read := readInBackground(func() (mirror.Tree, error) {
			return readers.hub.Inspector().Tree(t.Context(), shop)
		})
		synctest.Wait()
		o.store.do(func() { clear(o.store.reads) })
		advance(2 * takeInterval)
		if !read.ended() || !errors.Is(read.err, mirror.ErrInspectUnreachable) {
			t.Errorf("%v", read.err)
		}
	})
}

// A storm of requests for one engine is refused beyond its limit, and leaves nothing behind.
func TestAStormOfReadsIsRefusedBeyondTheLimit(t *testing.T) {
	twoReplicas(t, func(t *testing.T, o, readers *testHub, d *testAgent) {
		w := d.stream(0)
		advance(time.Second)
		var all []*pendingRead[mirror.Tree]
		for range 200 {
			all = append(all, readInBackground(func() (mirror.Tree, error) {
				return readers.hub.Inspector().Tree(t.Context(), shop)
			}))
		}
		synctest.Wait()
		if n := len(w.listed()); n != agent.MaxInspections {
			t.Errorf("the agent is sent %d reads", n)
		}
		refused := 0
		for _, r := range all {
			if r.ended() && errors.Is(r.err, mirror.ErrInspectBusy) {
				refused++
			}
		}
		if refused != 200-agent.MaxInspections {
			t.Errorf("%d are refused", refused)
		}
		advance(mirror.InspectTime + time.Second)
		for _, r := range all {
			if !r.ended() {
				t.Fatal("a read has not ended")
			}
		}
		if n := o.store.readCount(); n != 0 {
			t.Errorf("%d reads are left", n)
		}
		w.cancel()
		<-w.ended
	})
}

func TestAgentsWithoutReadsCostNoQuery(t *testing.T) {
	bubbled(t, func(t *testing.T, o *testHub, d *testAgent) {
		w := d.stream(0)
		advance(time.Minute)
		for _, call := range []string{"AgentInspections", "TakeInspection", "AnswerInspection"} {
			if n := o.store.count()[call]; n != 0 {
				t.Errorf("%s was called %d times", call, n)
			}
		}
		w.cancel()
		<-w.ended
	})
}

// The store of reads fails: rows and syncs are sent all the same.
func TestRowsDoNotWaitForReads(t *testing.T) {
	bubbled(t, func(t *testing.T, o *testHub, d *testAgent) {
		w := d.stream(0)
		advance(time.Second)
		hangs := make(chan struct{})
		o.store.failWith(func(call string) error {
			if call == "AgentInspections" {
				<-hangs
			}
			return nil
		})
		o.hub.Inspect("plant")
		o.store.put(application("plant", "acme", "late"))
		o.hub.Wake()
		close(hangs)
		advance(time.Second)
		if rows := w.rows(agent.EventRows); len(rows) != 1 {
			t.Errorf("%d rows", len(rows))
		}
		o.store.failWith(nil)
		w.cancel()
		<-w.ended
	})
}

func TestAnAnswerKeepsItsBounds(t *testing.T) {
	var tree mirror.Tree
	for i := range mirror.MaxTreeNodes + 7 {
		tree.Nodes = append(tree.Nodes, mirror.TreeNode{Parent: i + 1, Depth: -3})
	}
	tree.Nodes[0] = mirror.TreeNode{Parent: 5, Message: strings.Repeat("é",
		mirror.MaxMessageBytes), Images: make([]string, 1000), Restarts: -1}
	tree.Nodes[1] = mirror.TreeNode{Parent: 0}
	boundTree(&tree)
	if len(tree.Nodes) != mirror.MaxTreeNodes || tree.More != 7 {
		t.Errorf("%d nodes, %d more", len(tree.Nodes), tree.More)
	}
	for i, n := range tree.Nodes {
		if n.Parent >= i || n.Parent < -1 || (n.Parent < 0) != (n.Depth == 0) {
			t.Fatalf("node %d: parent %d, depth %d", i, n.Parent, n.Depth)
		}
	}
	first := tree.Nodes[0]
	if len(first.Message) > mirror.MaxMessageBytes || len(first.Images) != mirror.MaxImages ||
		first.Restarts != 0 || tree.Nodes[1].Depth != 1 {
		t.Errorf("%d bytes, %d images, %d restarts", len(first.Message), len(first.Images),
			first.Restarts)
	}
	diff := mirror.ApplicationDiff{Resources: make([]mirror.ResourceDiff, mirror.MaxDiffs+1)}
	for i := range diff.Resources {
		diff.Resources[i].Diff = strings.Repeat("-", 1<<14)
	}
	boundDiff(&diff)
	size := 0
	for _, r := range diff.Resources {
		size += len(r.Diff)
	}
	if len(diff.Resources) != mirror.MaxDiffs || diff.More != 1 || size > mirror.MaxDiffBytes ||
		!diff.Resources[mirror.MaxDiffs-1].Truncated {
		t.Errorf("%d resources of %d bytes, %d more", len(diff.Resources), size, diff.More)
	}
	detail := mirror.ResourceDetail{Live: strings.Repeat("l", mirror.MaxManifestBytes+1),
		Containers: make([]mirror.Container, 10_000)}
	boundResource(&detail)
	if len(detail.Live) != mirror.MaxManifestBytes || !detail.Truncated ||
		len(detail.Containers) != maxContainers {
		t.Errorf("%d bytes, %v, %d containers", len(detail.Live), detail.Truncated,
			len(detail.Containers))
	}
	events := make([]mirror.ResourceEvent, mirror.MaxEvents+1)
	boundEvents(&events)
	syncs := []mirror.PastSync{{Results: make([]mirror.SyncResult, mirror.MaxSyncResults+2)}}
	boundSyncs(&syncs)
	if len(events) != mirror.MaxEvents || len(syncs[0].Results) != mirror.MaxSyncResults ||
		syncs[0].More != 2 {
		t.Errorf("%d events, %d results, %d more", len(events), len(syncs[0].Results),
			syncs[0].More)
	}
}

func FuzzAnswersOfAgentsKeepTheirBounds(f *testing.F) {
	f.Add([]byte(`{"nodes":[{"kind":"Pod","name":"a","parent":3,"depth":9}],"more":-4}`))
	f.Add([]byte(`{"nodes":null,"more":1e9}`))
	f.Add([]byte(`[{"message":"\ud800","resource":{"kind":"x"}}]`))
	f.Add([]byte(`{"lines":[{"text":"\u0000"}],"end":"Complete"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var tree mirror.Tree
		if json.Unmarshal(text, &tree) == nil {
			boundTree(&tree)
			for i, n := range tree.Nodes {
				if n.Parent >= i || n.Parent < -1 || len(n.Message) > mirror.MaxMessageBytes {
					t.Fatalf("node %d: %+v", i, n)
				}
			}
		}
		var events []mirror.ResourceEvent
		if json.Unmarshal(text, &events) == nil {
			boundEvents(&events)
		}
		if part, err := unpackLog(text); err == nil && len(text) > 0 {
			kept, _ := boundLines(part.Lines, mirror.MaxLogBytes)
			for _, l := range kept {
				if len(l.Text) > mirror.MaxLogLineBytes {
					t.Fatalf("%d bytes", len(l.Text))
				}
			}
		}
	})
}
