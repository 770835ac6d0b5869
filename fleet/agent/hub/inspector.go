package hub

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

const (
	// reads of this replica that wait at once; further ones are refused
	inspectsAtOnce = 64
	// bytes of a packed answer other than a log, of which maxDecoding are unpacked at once
	maxPacked   = 4 << 20
	maxDecoding = 4
	// statements for reads and their answers at once
	inspectStatements = 4
	// of a reader that waits, because a notification may be lost
	takeInterval = 2 * time.Second
	closeWithin  = 3 * time.Second
)

// Inspector reads the resources of Applications behind agents (ADR 0085): it implements
// engine.Inspector. The request reaches the replica that holds the agent's stream through the
// store, and the answer comes back the same way. It takes no answer for true: sizes, numbers and
// texts are bounded again.
type Inspector struct {
	hub     *Hub
	reads   semaphore // statements
	waiters semaphore
	unpacks semaphore

	mu      sync.Mutex
	waiting map[string]pacing.Signal // by ID of the read
	answers map[string]int           // parts that are being stored, by agent
	total   int
}

func newInspector(h *Hub) *Inspector {
	return &Inspector{hub: h, reads: make(semaphore, inspectStatements),
		waiters: make(semaphore, inspectsAtOnce), waiting: map[string]pacing.Signal{},
		answers: map[string]int{}, unpacks: make(semaphore, maxDecoding)}
}

// Inspector returns the reads of Applications behind agents.
func (h *Hub) Inspector() *Inspector { return h.inspector }

// enter admits a part of an answer of an agent.
func (i *Inspector) enter(agentID string) (leave func(), ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.total >= inspectAnswers || i.answers[agentID] >= inspectAnswersOfAgent {
		return nil, false
	}
	i.total++
	i.answers[agentID]++
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.total--
		if i.answers[agentID]--; i.answers[agentID] == 0 {
			delete(i.answers, agentID)
		}
	}, true
}

// wake makes the reader of a read take its parts.
func (i *Inspector) wake(id string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if s, ok := i.waiting[id]; ok {
		s.Set()
	}
}

// notify wakes the reader's replica. A lost notification delays a part by takeInterval.
func (i *Inspector) notify(ctx context.Context, replica, id string) {
	if err := i.hub.store.Notify(ctx, mirror.NoticeAnswered(replica, id)); err != nil {
		i.hub.log.DebugContext(ctx, "no notification; the reader polls", "error", err)
	}
}

// announce makes the replica of the agent's stream send the open reads.
func (i *Inspector) announce(ctx context.Context, engine fleet.EngineName) {
	if i.hub.feed.inspect(engine) {
		return
	}
	if err := i.hub.store.Notify(ctx, mirror.NoticeInspect(engine)); err != nil {
		i.hub.log.DebugContext(ctx, "no notification; the replicas poll", "error", err)
	}
}

// Tree implements engine.Inspector.
func (i *Inspector) Tree(ctx context.Context, app mirror.InspectedApplication) (mirror.Tree,
	error) {
	return answerOf(ctx, i, app, agent.Inspection{Kind: agent.InspectTree}, boundTree)
}

// Resource implements engine.Inspector.
func (i *Inspector) Resource(ctx context.Context, app mirror.InspectedApplication,
	ref mirror.ResourceRef) (mirror.ResourceDetail, error) {
	return answerOf(ctx, i, app, agent.Inspection{Kind: agent.InspectResource, Resource: &ref},
		boundResource)
}

// Diff implements engine.Inspector.
func (i *Inspector) Diff(ctx context.Context, app mirror.InspectedApplication) (
	mirror.ApplicationDiff, error) {
	return answerOf(ctx, i, app, agent.Inspection{Kind: agent.InspectDiff}, boundDiff)
}

// ResourceEvents implements engine.Inspector.
func (i *Inspector) ResourceEvents(ctx context.Context, app mirror.InspectedApplication,
	ref *mirror.ResourceRef) ([]mirror.ResourceEvent, error) {
	return answerOf(ctx, i, app, agent.Inspection{Kind: agent.InspectEvents, Resource: ref},
		boundEvents)
}

// Syncs implements engine.Inspector.
func (i *Inspector) Syncs(ctx context.Context, app mirror.InspectedApplication) (
	[]mirror.PastSync, error) {
	return answerOf(ctx, i, app, agent.Inspection{Kind: agent.InspectSyncs}, boundSyncs)
}

// Logs implements engine.Inspector.
func (i *Inspector) Logs(ctx context.Context, app mirror.InspectedApplication,
	request mirror.LogRequest, sink func([]mirror.LogLine) error) (mirror.LogEnd, error) {
	ctx, cancel := context.WithTimeout(ctx, mirror.MaxLogTime)
	defer cancel()
	a, err := i.ask(ctx, app, agent.Inspection{Kind: agent.InspectLogs, Log: &request},
		mirror.MaxLogTime)
	if err != nil {
		return "", err
	}
	defer a.close()
	left, begun := mirror.MaxLogBytes, false
	for {
		within := agent.InspectionSilence
		if !begun {
			within = mirror.InspectTime
		}
		data, last, err := a.next(ctx, within)
		switch {
		case err != nil && begun && ctx.Err() != nil:
			return logTimedOut(ctx), nil
		case err != nil && begun:
			return mirror.LogCut, nil
		case err != nil:
			return "", err
		}
		begun = true
		part, err := unpackLog(data)
		if err != nil {
			return mirror.LogCut, nil
		}
		lines, over := boundLines(part.Lines, left)
		for _, l := range lines {
			left -= len(l.Text)
		}
		if len(lines) > 0 {
			if err := sink(lines); err != nil {
				return mirror.LogCancelled, nil //nolint:nilerr // of the sink: the reader has gone
			}
		}
		switch {
		case over:
			return mirror.LogTooLong, nil
		case last:
			return logEnd(part.End), nil
		}
	}
}

func logTimedOut(ctx context.Context) mirror.LogEnd {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return mirror.LogTimedOut
	}
	return mirror.LogCancelled
}

// logEnd keeps a known reason.
func logEnd(end mirror.LogEnd) mirror.LogEnd {
	switch end {
	case mirror.LogComplete, mirror.LogTooLong, mirror.LogTimedOut:
		return end
	}
	return mirror.LogCut
}

// unpackLog decodes one part of a log.
func unpackLog(data []byte) (part agent.LogPart, err error) {
	if len(data) == 0 {
		return part, nil // the log has no new line
	}
	text, err := unpack(bytes.NewReader(data), agent.MaxLogPart)
	if err != nil {
		return part, err
	}
	return part, json.Unmarshal(text, &part)
}

var errOversized = errors.New("the answer is too large")

// unpack reads a gzip stream of at most most bytes.
func unpack(from io.Reader, most int64) ([]byte, error) {
	r, err := gzip.NewReader(from)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(text)) > most {
		err = errOversized
	}
	return text, err
}

// answerOf asks the agent and decodes its answer.
func answerOf[T any](ctx context.Context, i *Inspector, app mirror.InspectedApplication,
	request agent.Inspection, bound func(*T)) (out T, err error) {
	ctx, cancel := context.WithTimeout(ctx, mirror.InspectTime)
	defer cancel()
	a, err := i.ask(ctx, app, request, mirror.InspectTime)
	if err != nil {
		return out, err
	}
	defer a.close()
	var packed bytes.Buffer
	for {
		data, last, err := a.next(ctx, mirror.InspectTime)
		if err != nil {
			return out, err
		}
		if packed.Len()+len(data) > maxPacked {
			return out, unreadableAnswer(errOversized)
		}
		packed.Write(data)
		if last {
			break
		}
	}
	err = i.unpacks.run(ctx, func() error {
		text, err := unpack(&packed, agent.MaxInspectionAnswer)
		if err == nil {
			err = json.Unmarshal(text, &out)
		}
		bound(&out)
		return err
	})
	if err != nil {
		var none T
		return none, unreadableAnswer(err)
	}
	return out, nil
}

// unreadableAnswer explains an answer that the protocol does not allow. The cause may quote it.
func unreadableAnswer(err error) error {
	if errors.Is(err, errOversized) {
		return fmt.Errorf("%w: the answer of its agent exceeds %d MiB, or %d MiB packed",
			mirror.ErrInspectRefused, agent.MaxInspectionAnswer>>20, maxPacked>>20)
	}
	return fmt.Errorf("%w: the answer of its agent cannot be decoded; upgrade the agent",
		mirror.ErrInspectUnreachable)
}

// asked is a read that waits for its answer.
type asked struct {
	inspector *Inspector
	id        string
	engine    fleet.EngineName
	signal    pacing.Signal
	parts     []registry.InspectionPart // taken and not returned yet
	number    int                       // of the last returned part
	ended     bool                      // the last part was returned
}

// ask opens a read. The caller closes it.
func (i *Inspector) ask(ctx context.Context, app mirror.InspectedApplication,
	request agent.Inspection, within time.Duration) (*asked, error) {
	select {
	case i.waiters <- struct{}{}:
	default:
		return nil, fmt.Errorf("%w: wait until some have ended", mirror.ErrInspectBusy)
	}
	var random [16]byte
	if _, err := rand.Read(random[:]); err != nil {
		i.waiters.release()
		return nil, err
	}
	a := &asked{inspector: i, id: hex.EncodeToString(random[:]), engine: app.Engine,
		signal: pacing.NewSignal()}
	request.Application = app
	text, err := json.Marshal(request)
	if err == nil {
		i.mu.Lock()
		i.waiting[a.id] = a.signal
		i.mu.Unlock()
		err = i.statement(ctx, func(ctx context.Context) error {
			return i.hub.store.OpenInspection(ctx, registry.Inspection{ID: a.id,
				Engine: app.Engine, Application: app, Replica: i.hub.replica, Request: text,
				Left: within})
		})
	}
	if err != nil {
		a.forget()
		return nil, err
	}
	i.announce(ctx, a.engine)
	return a, nil
}

// statement runs a statement of the store with a deadline.
func (i *Inspector) statement(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return i.reads.run(ctx, func() error { return f(ctx) })
}

// next returns the data of the next part, and whether it is the last one. It waits for at most
// within.
func (a *asked) next(ctx context.Context, within time.Duration) (data []byte, last bool,
	err error) {
	patience := time.NewTimer(within)
	defer patience.Stop()
	poll := time.NewTicker(takeInterval)
	defer poll.Stop()
	for len(a.parts) == 0 {
		if err := a.take(ctx); err != nil {
			return nil, false, a.explain(ctx, err)
		}
		if len(a.parts) > 0 {
			break
		}
		select {
		case <-ctx.Done():
			return nil, false, a.explain(ctx, ctx.Err())
		case <-patience.C:
			return nil, false, a.explain(ctx, context.DeadlineExceeded)
		case <-poll.C:
		case <-a.signal:
		}
	}
	part := a.parts[0]
	a.parts = a.parts[1:]
	a.number++
	if part.Part != a.number {
		return nil, false, fmt.Errorf("%w: a part of the answer was lost; try again",
			mirror.ErrInspectUnreachable)
	}
	a.ended = part.Last
	if part.Failure != nil {
		return nil, false, failureOf(part.Failure)
	}
	return part.Data, part.Last, nil
}

func (a *asked) take(ctx context.Context) error {
	return a.inspector.statement(ctx, func(ctx context.Context) (err error) {
		a.parts, err = a.inspector.hub.store.TakeInspection(ctx, a.id)
		return err
	})
}

// explain is why no answer has come.
func (a *asked) explain(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, registry.ErrInspectionEnded):
		return fmt.Errorf("%w: the control plane's database has restarted; try again",
			mirror.ErrInspectUnreachable)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: its agent has not answered within %s", mirror.ErrInspectUnreachable,
			mirror.InspectTime)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

// failureOf is the error of an agent. Its text comes from the cluster.
func failureOf(text []byte) error {
	var f agent.InspectionFailure
	if err := json.Unmarshal(text, &f); err != nil {
		return mirror.ErrInspectUnreachable
	}
	return &agentError{kind: f.Code.Error(), text: message(f.Message)}
}

// agentError is an error of package mirror with an agent's text.
type agentError struct {
	kind error
	text string
}

func (e *agentError) Error() string {
	if e.text == "" {
		return e.kind.Error()
	}
	return e.text
}

func (e *agentError) Unwrap() error { return e.kind }

// close ends the read, also at the agent.
func (a *asked) close() {
	a.forget()
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	err := a.inspector.statement(ctx, func(ctx context.Context) error {
		return a.inspector.hub.store.CloseInspection(ctx, a.id)
	})
	if err != nil {
		a.inspector.hub.log.DebugContext(ctx, "failed to end a read; it ends by itself", "error",
			err)
	}
	if !a.ended {
		a.inspector.announce(ctx, a.engine)
	}
}

func (a *asked) forget() {
	a.inspector.mu.Lock()
	delete(a.inspector.waiting, a.id)
	a.inspector.mu.Unlock()
	a.inspector.waiters.release()
}
