package edge

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

// This file answers reads that people wait for (ADR 0085). The hub names an Application; the agent
// reads it only if it is one of its own rows, and takes everything but the UID from that row.

const (
	// pause between two parts, so that reports keep their share of the hub's limit
	partPause = 50 * time.Millisecond
	partRetry = 500 * time.Millisecond // after a part that the hub could not take
	partTime  = 20 * time.Second       // to send one part
	// lines of a log wait for further ones at most
	logPause = 200 * time.Millisecond
	logBatch = 128 << 10 // bytes of the lines of one part
)

// errWithdrawn ends a read that the hub does not list any more, or whose reader has gone.
var errWithdrawn = errors.New("no reader waits any more")

// inspections are the reads that the agent answers.
type inspections struct {
	f *Follower

	mu      sync.Mutex
	ctx     context.Context                    // of Run; nil before
	known   map[string]context.CancelCauseFunc // the reads of the last list, by ID
	running int
	all     sync.WaitGroup

	pace chan struct{} // held while a part waits
	last time.Time     // when the last part began; guarded by pace
}

func newInspections(f *Follower) *inspections {
	return &inspections{f: f, known: map[string]context.CancelCauseFunc{},
		pace: make(chan struct{}, 1)}
}

// run lets reads begin until ctx ends, and waits for their ends.
func (i *inspections) run(ctx context.Context) error {
	i.mu.Lock()
	i.ctx = ctx
	i.mu.Unlock()
	<-ctx.Done()
	i.mu.Lock()
	i.ctx = nil
	i.mu.Unlock()
	i.all.Wait()
	return context.Cause(ctx)
}

// set begins the new reads of a list, and ends those that are not in it any more. It never blocks.
func (i *inspections) set(list []agent.Inspection) {
	i.mu.Lock()
	defer i.mu.Unlock()
	listed := map[string]bool{}
	for _, in := range list {
		listed[in.ID] = true
	}
	for id, cancel := range i.known {
		if !listed[id] {
			cancel(errWithdrawn)
			delete(i.known, id)
		}
	}
	for _, in := range list {
		if _, known := i.known[in.ID]; !known && i.ctx != nil {
			i.begin(in)
		}
	}
}

// begin starts a read. i.mu is held.
func (i *inspections) begin(in agent.Inspection) {
	limit := mirror.InspectTime
	if in.Kind == agent.InspectLogs {
		limit = mirror.MaxLogTime
	}
	within := min(limit, time.Duration(max(in.Left, 1))*time.Second)
	bounded, cancelTime := context.WithTimeout(i.ctx, within)
	ctx, cancel := context.WithCancelCause(bounded)
	i.known[in.ID] = cancel
	busy := i.running >= agent.MaxInspections
	i.running++
	i.all.Go(func() {
		defer cancelTime()
		defer cancel(nil)
		i.answer(ctx, in, busy)
		i.mu.Lock()
		i.running--
		i.mu.Unlock()
	})
}

// answer answers one read.
func (i *inspections) answer(ctx context.Context, in agent.Inspection, busy bool) {
	out := &answering{inspections: i, id: in.ID, run: randomHex()}
	var err error
	switch {
	case busy:
		err = mirror.ErrInspectBusy
	case in.Kind == agent.InspectLogs:
		err = i.log(ctx, in, out)
	default:
		var value any
		if value, err = i.read(ctx, in); err == nil {
			err = out.value(ctx, value)
		}
	}
	if err != nil && !errors.Is(context.Cause(ctx), errWithdrawn) && !errors.Is(err, errWithdrawn) {
		out.fail(ctx, err)
	}
}

// read returns what the read asks for.
func (i *inspections) read(ctx context.Context, in agent.Inspection) (any, error) {
	app, from, err := i.f.inspected(in.Application)
	if err != nil {
		return nil, err
	}
	switch in.Kind {
	case agent.InspectTree:
		return from.Tree(ctx, app)
	case agent.InspectResource:
		if in.Resource == nil {
			return nil, fmt.Errorf("%w: the read names no resource", mirror.ErrInspectRefused)
		}
		return from.Resource(ctx, app, *in.Resource)
	case agent.InspectDiff:
		return from.Diff(ctx, app)
	case agent.InspectEvents:
		return from.ResourceEvents(ctx, app, in.Resource)
	case agent.InspectSyncs:
		return from.Syncs(ctx, app)
	}
	return nil, fmt.Errorf("%w: the agent does not know the read %q: upgrade the agent",
		mirror.ErrInspectRefused, plain(string(in.Kind)))
}

// inspected returns the Application as the agent's own row has it, and what reads it. The UID is
// the hub's: it only refuses an object.
func (f *Follower) inspected(asked mirror.InspectedApplication) (app mirror.InspectedApplication,
	from engine.Inspector, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mirror == nil {
		return app, nil, fmt.Errorf("%w: %w", mirror.ErrInspectUnreachable, ErrNotRead)
	}
	have, ok := f.mirror.rows[fleet.ObjectKey{Engine: f.mirror.engine,
		Kind: fleet.ObjectApplication, Name: asked.Name}]
	if !ok {
		return app, nil, fmt.Errorf("%w: the agent has no Application %s", mirror.ErrNoTree,
			plain(asked.Name))
	}
	var object struct {
		Metadata struct{ Annotations map[string]string }
	}
	if err := json.Unmarshal(have.row.Manifest.Body, &object); err != nil {
		return app, nil, fmt.Errorf("%w: the manifest of %s cannot be decoded",
			mirror.ErrInspectRefused, plain(asked.Name))
	}
	if f.Inspector == nil {
		return app, nil, fmt.Errorf("%w: this agent reads no resources", mirror.ErrInspectRefused)
	}
	return mirror.InspectedApplication{ID: have.row.Application(), Engine: f.mirror.engine,
		Name: asked.Name, Object: cmp.Or(object.Metadata.Annotations["argosy.dev/adopted"],
			asked.Name), UID: asked.UID}, f.Inspector, nil
}

// log sends the lines of a log as they come. The container waits while the hub takes none.
func (i *inspections) log(ctx context.Context, in agent.Inspection, out *answering) error {
	app, from, err := i.f.inspected(in.Application)
	if err != nil {
		return err
	}
	if in.Log == nil {
		return fmt.Errorf("%w: the read names no container", mirror.ErrInspectRefused)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lines := make(chan []mirror.LogLine)
	var end mirror.LogEnd
	var readErr error
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(lines)
		end, readErr = from.Logs(ctx, app, *in.Log, func(next []mirror.LogLine) error {
			select {
			case lines <- next:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	})
	err = out.lines(ctx, lines)
	if err != nil {
		cancel(err)
	}
	reader.Wait()
	switch {
	case err != nil:
		return err
	case readErr != nil:
		return readErr
	}
	return out.logPart(ctx, agent.LogPart{End: end}, true)
}

// answering sends one answer in parts.
type answering struct {
	inspections *inspections
	id, run     string
	part        int
}

// value sends a value as gzipped JSON.
func (a *answering) value(ctx context.Context, value any) error {
	packed, err := pack(value)
	if err != nil {
		return err
	}
	for {
		n := min(len(packed), agent.MaxInspectionPart)
		last := n == len(packed)
		if err := a.send(ctx, agent.InspectionPart{Data: packed[:n], Last: last}); err != nil {
			return err
		}
		if packed = packed[n:]; last {
			return nil
		}
	}
}

func pack(value any) ([]byte, error) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if err := json.NewEncoder(w).Encode(value); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// lines sends lines until the channel is closed, and an empty part while there are none.
func (a *answering) lines(ctx context.Context, from <-chan []mirror.LogLine) error {
	beat := time.NewTicker(agent.InspectionBeat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-beat.C:
			if err := a.send(ctx, agent.InspectionPart{}); err != nil {
				return err
			}
		case first, ok := <-from:
			if !ok {
				return nil
			}
			if err := a.batches(ctx, gather(ctx, first, from)); err != nil {
				return err
			}
			beat.Reset(agent.InspectionBeat)
		}
	}
}

// gather waits a little for further lines.
func gather(ctx context.Context, lines []mirror.LogLine, from <-chan []mirror.LogLine) (
	all []mirror.LogLine) {
	all = append(all, lines...)
	size := sizeOf(all)
	pause := time.NewTimer(logPause)
	defer pause.Stop()
	for size < logBatch {
		select {
		case <-ctx.Done():
			return all
		case <-pause.C:
			return all
		case more, ok := <-from:
			if !ok {
				return all
			}
			all, size = append(all, more...), size+sizeOf(more)
		}
	}
	return all
}

// lineOverhead is the JSON of a line without its text.
const lineOverhead = 64

func sizeOf(lines []mirror.LogLine) (bytes int) {
	for _, l := range lines {
		bytes += len(l.Text) + lineOverhead
	}
	return bytes
}

// batches sends lines in parts of about logBatch bytes.
func (a *answering) batches(ctx context.Context, lines []mirror.LogLine) error {
	for len(lines) > 0 {
		n, size := 0, 0
		for n < len(lines) && (n == 0 || size < logBatch) {
			size += len(lines[n].Text) + lineOverhead
			n++
		}
		if err := a.logPart(ctx, agent.LogPart{Lines: lines[:n]}, false); err != nil {
			return err
		}
		lines = lines[n:]
	}
	return nil
}

func (a *answering) logPart(ctx context.Context, part agent.LogPart, last bool) error {
	packed, err := pack(part)
	if err != nil {
		return err
	}
	return a.send(ctx, agent.InspectionPart{Data: packed, Last: last})
}

// failWithin is the time to send a failure after the read's own time is over.
const failWithin = 2 * time.Second

// fail sends why there is no answer.
func (a *answering) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		var cancel func()
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), failWithin)
		defer cancel()
	}
	code := agent.CodeUnreachable
	for _, c := range []agent.InspectionCode{agent.CodeNoTree, agent.CodeNotInTree,
		agent.CodeRefused, agent.CodeInspectBusy} {
		if errors.Is(err, c.Error()) {
			code = c
		}
	}
	if sent := a.send(ctx, agent.InspectionPart{Failure: &agent.InspectionFailure{Code: code,
		Message: cut(err.Error())}}); sent != nil && !errors.Is(sent, errWithdrawn) {
		a.inspections.f.Log.Debug("failed to answer a read", "error", sent)
	}
}

// send sends the next part. It repeats a part that the hub could not take, until ctx ends.
func (a *answering) send(ctx context.Context, part agent.InspectionPart) error {
	a.part++
	part.ID, part.Run, part.Part = a.id, a.run, a.part
	for {
		if err := a.inspections.waitPace(ctx); err != nil {
			return err
		}
		err := a.inspections.f.Client.answer(ctx, part)
		var r *Refusal
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &r) && (r.Code == agent.CodeEnded || r.Code == agent.CodeInvalid ||
			r.Status == http.StatusNotFound):
			return errWithdrawn // also at a hub that was rolled back to a version without reads
		}
		if !pacing.Sleep(ctx, partRetry) {
			return context.Cause(ctx)
		}
	}
}

// waitPace waits until the next part may begin.
func (i *inspections) waitPace(ctx context.Context) error {
	select {
	case i.pace <- struct{}{}:
		defer func() { <-i.pace }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if wait := partPause - time.Since(i.last); wait > 0 && !pacing.Sleep(ctx, wait) {
		return context.Cause(ctx)
	}
	i.last = time.Now()
	return nil
}

func randomHex() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// answer sends a part of an answer over a connection of its own: on a slow network it delays
// neither reports nor the stream.
func (c *Client) answer(ctx context.Context, part agent.InspectionPart) error {
	body, err := json.Marshal(part)
	if err != nil {
		return fmt.Errorf("POST %s: %w", agent.PathInspections, err)
	}
	ctx, cancel := context.WithTimeout(ctx, partTime)
	defer cancel()
	return c.authorized(ctx, func(token string, keys agent.PrivateKeys) error {
		request, err := c.newRequest(ctx, http.MethodPost, agent.PathInspections, keys, token, body,
			body)
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		return c.exchangeOver(c.answers, request, nil)
	})
}
