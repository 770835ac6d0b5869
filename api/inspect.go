package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/printable"
	"argosy.dev/argosy/fleet/view"
)

// Limits of the reads of resources at one replica (ADR 0084). They count apart from other reads, so
// that an engine that does not answer delays nothing but them. Decisions never count.
const (
	inspectsAtOnce = 4  // of one token
	inspectsBurst  = 60 // of one token
	// one further read of one token each
	inspectsEvery   = time.Second / 5
	logStreams      = 8   // of one token
	logStreamsTotal = 256 // of this replica
	// lines of one message; fewer when the container pauses
	logBatch = 256
	// a stream whose client reads nothing for that long ends
	logWrite = 10 * time.Second
)

// inspecting bounds the reads of resources by token.
type inspecting struct {
	from Inspector

	mu      sync.Mutex
	streams int
	of      map[string]*tokenInspects
}

// tokenInspects are the reads of one token.
type tokenInspects struct {
	running, streams int
	tokens           float64 // left of the burst
	at               time.Time
}

// enter admits a read or a stream of a token; leave ends it.
func (i *inspecting) enter(now time.Time, token string, stream bool) (leave func(), ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.forget(now)
	mine := i.of[token]
	if mine == nil {
		mine = &tokenInspects{tokens: inspectsBurst, at: now}
		i.of[token] = mine
	}
	mine.tokens = min(inspectsBurst, mine.tokens+now.Sub(mine.at).Seconds()/
		inspectsEvery.Seconds())
	mine.at = now
	switch {
	case mine.tokens < 1,
		!stream && mine.running >= inspectsAtOnce,
		stream && (mine.streams >= logStreams || i.streams >= logStreamsTotal):
		return nil, false
	}
	mine.tokens--
	count := &mine.running
	if stream {
		count = &mine.streams
		i.streams++
	}
	*count++
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		*count--
		if stream {
			i.streams--
		}
	}, true
}

// forget drops tokens whose burst is full again and that read nothing.
func (i *inspecting) forget(now time.Time) {
	if i.of == nil {
		i.of = map[string]*tokenInspects{}
	}
	if len(i.of) < 1024 {
		return
	}
	for token, t := range i.of {
		if t.running == 0 && t.streams == 0 && now.Sub(t.at) > inspectsBurst*inspectsEvery {
			delete(i.of, token)
		}
	}
}

type (
	// ByResource names one resource of an Application.
	ByResource struct {
		Group     string `query:"group" maxLength:"253" pattern:"^[a-z0-9.-]*$"`
		Kind      string `query:"kind" required:"true" maxLength:"63" pattern:"^[A-Za-z][A-Za-z0-9]*$"`
		Namespace string `query:"namespace" maxLength:"63" pattern:"^[a-z0-9-]*$"`
		Name      string `query:"name" required:"true" minLength:"1" maxLength:"253"`
		UID       string `query:"uid" maxLength:"64" pattern:"^[A-Za-z0-9-]*$" doc:"Refuse another object of the name"`
	}
	// InApplication names the Application.
	InApplication struct {
		DeploymentIn
		Environment fleet.EnvironmentName `path:"environment" maxLength:"63" pattern:"^[a-z0-9-]+$"`
	}
	resourceIn struct {
		InApplication
		ByResource
	}
	resourceEventsIn struct {
		InApplication
		Group     string `query:"group" maxLength:"253" pattern:"^[a-z0-9.-]*$"`
		Kind      string `query:"kind" maxLength:"63" pattern:"^[A-Za-z][A-Za-z0-9]*$" doc:"With name: of this resource only"`
		Namespace string `query:"namespace" maxLength:"63" pattern:"^[a-z0-9-]*$"`
		Name      string `query:"name" maxLength:"253"`
		UID       string `query:"uid" maxLength:"64" pattern:"^[A-Za-z0-9-]*$"`
	}
	logsIn struct {
		InApplication
		Namespace string `query:"namespace" maxLength:"63" pattern:"^[a-z0-9-]*$"`
		Pod       string `query:"pod" required:"true" minLength:"1" maxLength:"253"`
		UID       string `query:"uid" maxLength:"64" pattern:"^[A-Za-z0-9-]*$"`
		Container string `query:"container" maxLength:"63" pattern:"^[a-z0-9-]*$"`
		Follow    bool   `query:"follow"`
		Previous  bool   `query:"previous" doc:"Of the container before its last restart"`
		Since     int    `query:"since" minimum:"0" maximum:"31536000" doc:"Seconds"`
		Tail      int    `query:"tail" minimum:"0" maximum:"10000" doc:"Last lines; 0: 10,000"`
	}
)

func (in *InApplication) id() fleet.ApplicationID {
	return fleet.ApplicationID{Tenant: in.Tenant, Deployment: in.Deployment,
		Environment: in.Environment}
}

func (r ByResource) ref() view.ResourceRef {
	return view.ResourceRef{Group: r.Group, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name,
		UID: r.UID}
}

const applicationPath = "/tenants/{tenant}/applications/{deployment}/{environment}"

func (s *Server) registerInspect() {
	read := func(path, id, summary string) huma.Operation {
		return operation(http.MethodGet, applicationPath+path, id, summary+". It is read from the "+
			"engine on demand, and the texts in it come from workloads", "resources", nil)
	}
	huma.Register(s.api, read("/tree", "get-tree",
		"The resources of an Application down to its Pods"),
		func(ctx context.Context, in *InApplication) (*body[view.Tree], error) {
			return inspected(ctx, s, in.id(), s.inspect.tree)
		})
	huma.Register(s.api, read("/diff", "get-diff",
		"The resources that a sync would change, secret values masked"),
		func(ctx context.Context, in *InApplication) (*body[view.ApplicationDiff], error) {
			return inspected(ctx, s, in.id(), s.inspect.diff)
		})
	huma.Register(s.api, read("/syncs", "list-syncs", "The last syncs of an Application"),
		func(ctx context.Context, in *InApplication) (*body[wire.List[view.PastSync]], error) {
			return inspected(ctx, s, in.id(), func(ctx context.Context,
				app view.InspectedApplication) (wire.List[view.PastSync], error) {
				all, err := s.inspect.from.Syncs(ctx, app)
				return wire.List[view.PastSync]{Items: all}, err
			})
		})
	huma.Register(s.api, read("/resource", "get-resource",
		"The live and the desired manifest of one resource, secret values masked"),
		func(ctx context.Context, in *resourceIn) (*body[view.ResourceDetail], error) {
			return inspected(ctx, s, in.id(), func(ctx context.Context,
				app view.InspectedApplication) (view.ResourceDetail, error) {
				return s.inspect.from.Resource(ctx, app, in.ref())
			})
		})
	huma.Register(s.api, read("/resource-events", "list-resource-events",
		"The Kubernetes Events of one resource or of all, newest first"),
		func(ctx context.Context, in *resourceEventsIn) (*body[wire.List[view.ResourceEvent]],
			error) {
			return inspected(ctx, s, in.id(), func(ctx context.Context,
				app view.InspectedApplication) (wire.List[view.ResourceEvent], error) {
				var of *view.ResourceRef
				if in.Kind != "" || in.Name != "" {
					of = &view.ResourceRef{Group: in.Group, Kind: in.Kind,
						Namespace: in.Namespace, Name: in.Name, UID: in.UID}
				}
				all, err := s.inspect.from.ResourceEvents(ctx, app, of)
				return wire.List[view.ResourceEvent]{Items: all}, err
			})
		})
	s.registerLogs(read("/logs", "get-logs",
		"The log of a container (application/x-ndjson), at most 8 MiB and 15 minutes"))
}

func (i *inspecting) tree(ctx context.Context, app view.InspectedApplication) (view.Tree, error) {
	return i.from.Tree(ctx, app)
}

func (i *inspecting) diff(ctx context.Context, app view.InspectedApplication) (
	view.ApplicationDiff, error) {
	return i.from.Diff(ctx, app)
}

// inspected reads something of an Application in the caller's scope.
func inspected[T any](ctx context.Context, s *Server, id fleet.ApplicationID,
	read func(context.Context, view.InspectedApplication) (T, error)) (*body[T], error) {
	out, err := inspectAs(ctx, s, callerOf(ctx), id, read)
	if err != nil {
		return nil, err
	}
	return &body[T]{out}, nil
}

// inspectAs is inspected for a caller, also of the page.
func inspectAs[T any](ctx context.Context, s *Server, caller view.Token, id fleet.ApplicationID,
	read func(context.Context, view.InspectedApplication) (T, error)) (out T, err error) {
	app, err := s.inspectedApplication(ctx, caller, id)
	if err != nil {
		return out, err
	}
	leave, ok := s.inspect.enter(s.now(), caller.ID, false)
	if !ok {
		return out, tooManyInspects()
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, mirror.InspectTime)
	defer cancel()
	out, err = read(ctx, app)
	if err != nil {
		return out, s.answer(ctx, subjectf("application %s", id), err)
	}
	return out, nil
}

func tooManyInspects() *wire.Refusal {
	return problem(http.StatusTooManyRequests, "",
		"this token reads the resources of too many Applications at once",
		"ask again in a few seconds, fewer at a time")
}

// inspectedApplication returns the Application if it is in the caller's scope and its engine has
// it.
func (s *Server) inspectedApplication(ctx context.Context, caller view.Token,
	id fleet.ApplicationID) (app view.InspectedApplication, err error) {
	subject := subjectf("application %s", id)
	found, _, err := s.reader.Applications(ctx, caller.Scope(), view.Filter{Tenant: id.Tenant,
		Deployment: id.Deployment, Environment: id.Environment}, view.Page{Limit: 1})
	switch {
	case err != nil:
		return app, s.answer(ctx, subject, err)
	case len(found) == 0:
		return app, notFound(subject)
	case s.inspect.from == nil:
		return app, problem(http.StatusServiceUnavailable, subject,
			"this control plane reads no resources of Applications", "ask the platform")
	case found[0].Engine == "":
		return app, problem(http.StatusConflict, subject, "no engine serves it",
			"see `argosy explain environment "+id.In().String()+"`")
	}
	return found[0].Inspected(), nil
}

// inspectProblem returns the answer for an error of an Inspector, or nil for any other error. These
// errors are made for tenants: they name the tenant's own objects and the next step.
func inspectProblem(subject string, err error) *wire.Refusal {
	status, next := 0, ""
	switch {
	case errors.Is(err, mirror.ErrNoTree):
		status, next = http.StatusConflict, "refresh the Application, and ask again"
	case errors.Is(err, mirror.ErrNotInTree):
		status, next = http.StatusNotFound, "list its resources with `argosy tree`"
	case errors.Is(err, mirror.ErrInspectRefused):
		status = http.StatusConflict
	case errors.Is(err, mirror.ErrInspectBusy):
		status, next = http.StatusTooManyRequests, "ask again in a few seconds"
	case errors.Is(err, mirror.ErrInspectUnreachable):
		status, next = http.StatusGatewayTimeout, "workloads are not affected; try again"
	default:
		return nil
	}
	return problem(status, subject, err.Error(), next)
}

func (s *Server) registerLogs(op huma.Operation) {
	op.Responses = map[string]*huma.Response{"200": {
		Description: "One LogMessage on each line, empty lines in between. The last one has `end`.",
		Content: map[string]*huma.MediaType{"application/x-ndjson": {
			Schema: s.api.OpenAPI().Components.Schemas.Schema(
				reflect.TypeFor[wire.LogMessage](), true, "LogMessage")}},
	}}
	huma.Register(s.api, op, func(ctx context.Context, in *logsIn) (*huma.StreamResponse, error) {
		caller := callerOf(ctx)
		app, err := s.inspectedApplication(ctx, caller, in.id())
		if err != nil {
			return nil, err
		}
		leave, ok := s.inspect.enter(s.now(), caller.ID, true)
		if !ok {
			return nil, tooManyInspects()
		}
		return &huma.StreamResponse{Body: func(hc huma.Context) {
			defer leave()
			r, w := unwrap(hc)
			s.logs(w, r, app, view.LogRequest{Pod: view.ResourceRef{Kind: "Pod",
				Namespace: in.Namespace, Name: in.Pod, UID: in.UID}, Container: in.Container,
				Follow: in.Follow, Previous: in.Previous,
				Since: time.Duration(in.Since) * time.Second, Tail: in.Tail}, bearer(
				r.Header.Get("Authorization")))
		}}, nil
	})
}

// logs sends lines until the log or the client ends, or the token is not valid any more.
func (s *Server) logs(w http.ResponseWriter, r *http.Request, app view.InspectedApplication,
	request view.LogRequest, plaintext string) {
	ctx, cancel := context.WithTimeout(r.Context(), mirror.MaxLogTime)
	defer cancel()
	out := &logWriter{w: w, control: http.NewResponseController(w)}
	if err := out.control.SetReadDeadline(time.Time{}); err != nil &&
		!errors.Is(err, http.ErrNotSupported) {
		return // the client has disconnected
	}
	ended := make(chan struct{})
	var beats sync.WaitGroup
	beats.Go(func() { s.beat(ctx, cancel, ended, out, plaintext) })
	end, err := s.inspect.from.Logs(ctx, app, request, func(lines []view.LogLine) error {
		for len(lines) > 0 {
			n := min(len(lines), logBatch)
			if err := out.send(wire.LogMessage{Lines: lines[:n]}); err != nil {
				return err
			}
			lines = lines[n:]
		}
		return nil
	})
	close(ended)
	beats.Wait()
	if err == nil {
		_ = out.send(wire.LogMessage{End: end}) // the client may be gone
		return
	}
	var refusal *wire.Refusal
	errors.As(s.answer(ctx, subjectf("log of Pod %s", request.Pod.Name), err), &refusal)
	out.refuse(refusal)
}

// beat keeps a quiet stream open and ends one whose token has ended.
func (s *Server) beat(ctx context.Context, cancel func(), ended <-chan struct{}, out *logWriter,
	plaintext string) {
	tick := time.NewTicker(streamBeat)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-ctx.Done():
			return
		case <-s.feed.done:
			cancel()
			return
		case <-tick.C:
			_, err := s.tokens.VerifyToken(ctx, plaintext)
			if errors.Is(err, mirror.ErrNotFound) || out.blank() != nil {
				cancel()
				return
			}
		}
	}
}

// logWriter writes messages as lines of JSON, each with a deadline of its own. It is safe for
// concurrent use.
type logWriter struct {
	mu      sync.Mutex
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
	err     error
}

func (o *logWriter) send(m wire.LogMessage) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.write(append(printable.JSON(text), '\n'))
}

// blank sends an empty line.
func (o *logWriter) blank() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.write([]byte{'\n'})
}

// refuse answers with a problem, or with a message if the stream has begun.
func (o *logWriter) refuse(p *wire.Refusal) {
	o.mu.Lock()
	begun := o.begun
	o.mu.Unlock()
	if begun {
		_ = o.send(wire.LogMessage{Refused: p}) // the client may be gone
		return
	}
	writeProblem(o.w, p)
}

func (o *logWriter) write(text []byte) error {
	if o.err != nil {
		return o.err
	}
	if o.err = o.control.SetWriteDeadline(time.Now().Add(logWrite)); errors.Is(o.err,
		http.ErrNotSupported) {
		o.err = nil
	}
	if o.err != nil {
		return o.err
	}
	if !o.begun {
		o.begun = true
		o.w.Header().Set("Content-Type", "application/x-ndjson")
		o.w.Header().Set("X-Accel-Buffering", "no") // a buffering proxy would delay every line
		o.w.WriteHeader(http.StatusOK)
	}
	if _, o.err = o.w.Write(text); o.err == nil {
		o.err = o.control.Flush()
	}
	return o.err
}
