package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/access"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

type (
	actIn struct {
		InApplication
		Body wire.ActionRequest
	}
	previewIn struct {
		InApplication
		Revision string `query:"revision" maxLength:"1024"`
		Prune    bool   `query:"prune"`
		Hard     bool   `query:"hard"`
		End      bool   `query:"end"`
	}
	actionsIn struct {
		Paging
		InApplication
		ByName
	}
)

// actionSummaries describe the routes of actions.
var actionSummaries = map[mirror.ActionKind]string{
	mirror.ActionRefresh:   "Make Argo CD compare an Application with its sources now",
	mirror.ActionSync:      "Sync an Application, or with dryRun report what a sync would change",
	mirror.ActionTerminate: "End the running operation of an Application",
	mirror.ActionRollback: "Sync an Application to a revision with which it was Healthy, and pause " +
		"its automation until Git asks for another revision; with end, let automation go on",
	mirror.ActionRestart: "Replace the Pods of an Application's workloads, a few at a time",
}

// registerActions registers what people ask of single Applications (ADR 0088). Each action has a
// route that shows what it would do.
func (s *Server) registerActions() {
	for _, kind := range mirror.ActionKinds {
		act := operation(http.MethodPost, applicationPath+"/"+string(kind),
			string(kind)+"-application", actionSummaries[kind]+". The engine's worker carries it "+
				"out, and its operation shows the result", "actions",
			[]guard{s.may(access.Verb(kind), access.Application)})
		act.DefaultStatus = http.StatusAccepted
		huma.Register(s.api, act, func(ctx context.Context, in *actIn) (
			*body[wire.ActionRequested], error) {
			return s.act(ctx, kind, in)
		})
		huma.Register(s.api, operation(http.MethodGet, applicationPath+"/preview/"+string(kind),
			"preview-"+string(kind), "What this would do, before anybody asks for it: "+
				actionSummaries[kind], "actions", nil),
			func(ctx context.Context, in *previewIn) (*body[wire.ActionPreview], error) {
				return s.preview(ctx, kind, in)
			})
	}
	huma.Register(s.api, operation(http.MethodGet, applicationPath+"/actions", "list-actions",
		"What people asked of an Application, newest first, with the result of each resource; "+
			"name is the operation's ID", "actions", nil),
		func(ctx context.Context, in *actionsIn) (*body[wire.List[mirror.Action]], error) {
			all, next, err := s.reader.Actions(ctx, callerOf(ctx).Scope(), view.Filter{
				Tenant: in.Tenant, Deployment: in.Deployment, Environment: in.Environment,
				Name: in.Name}, in.page())
			if err != nil {
				return nil, s.answer(ctx, subjectf("actions of application %s", in.id()), err)
			}
			if all == nil {
				all = []mirror.Action{}
			}
			out := wire.List[mirror.Action]{Items: all, Next: next}
			return &body[wire.List[mirror.Action]]{out}, nil
		})
}

// act records the request. A refused one is no operation.
func (s *Server) act(ctx context.Context, kind mirror.ActionKind, in *actIn) (
	*body[wire.ActionRequested], error) {
	caller, id := callerOf(ctx), in.id()
	subject := subjectf("application %s", id)
	app, err := single(ctx, s.deciding.Applications, caller.Scope(), view.Filter{Tenant: id.Tenant,
		Deployment: id.Deployment, Environment: id.Environment})
	if err != nil {
		return nil, s.answer(ctx, subject, err)
	}
	if err := in.Body.Validate(kind); err != nil {
		return nil, problem(http.StatusUnprocessableEntity, subject, err.Error(),
			"see /openapi.json for what this request takes")
	}
	refusal, err := s.actRefusal(ctx, kind, app)
	if err != nil {
		return nil, s.answer(ctx, subject, err)
	}
	if refusal != nil {
		return nil, refusal
	}
	made, err := s.decider.RequestAction(ctx, caller.Scope(), mirror.Action{Kind: kind,
		Request: in.Body.Request, Tenant: id.Tenant, Deployment: id.Deployment,
		Environment: id.Environment, Options: in.Body.ActionOptions, By: caller.Subject(),
		Note: in.Body.Note})
	switch {
	case errors.Is(err, mirror.ErrMoving):
		return nil, problem(http.StatusConflict, subject, "it moves to another engine",
			"wait until the move has ended: `argosy describe move "+id.In().String()+"`")
	case errors.Is(err, mirror.ErrNeverHealthy):
		return nil, problem(http.StatusConflict, subject, err.Error(),
			"choose one of `argosy rollback "+id.String()+" --list`")
	case errors.Is(err, mirror.ErrNotRolledBack):
		return nil, problem(http.StatusConflict, subject, err.Error(),
			"see `argosy describe application "+id.String()+"`")
	case errors.Is(err, mirror.ErrAgentCannotAct):
		return nil, problem(http.StatusConflict, subject, mirror.ErrAgentCannotAct.Error(),
			"see `argosy get agents`; start the agent, or upgrade it")
	case errors.Is(err, mirror.ErrTooManyActions):
		return nil, problem(http.StatusTooManyRequests, subject, err.Error(),
			"ask again when some have ended: list them with `argosy get operations`")
	case err != nil:
		return nil, s.answer(ctx, subject, err)
	case made.Kind != kind:
		return nil, problem(http.StatusConflict, subject, "this request was a "+
			string(made.Kind), "give each request an ID of its own")
	}
	return &body[wire.ActionRequested]{wire.ActionRequested{Operation: made.ID, State: made.State,
		Message: made.Message}}, nil
}

// actRefusal returns why an action cannot be requested now; nil if it can.
func (s *Server) actRefusal(ctx context.Context, kind mirror.ActionKind, app view.Application) (
	*wire.Refusal, error) {
	subject := subjectf("application %s", app.ID())
	stops, err := s.deciding.Stops(ctx, view.Scope{})
	if err != nil {
		return nil, err
	}
	for _, stop := range stops {
		if stop.Covers(app.Tenant, app.Engine) {
			return problem(http.StatusConflict, subject, "an emergency stop is in force",
				"see `argosy get stops`; `argosy resume` ends it"), nil
		}
	}
	switch {
	case app.Engine == "":
		return problem(http.StatusConflict, subject, "no engine serves it",
			"see `argosy explain environment "+app.ID().In().String()+"`"), nil
	case kind == mirror.ActionTerminate && !operating(app):
		return problem(http.StatusConflict, subject, "no operation of it is running",
			"see `argosy describe application "+app.ID().String()+"`"), nil
	}
	return nil, nil
}

// operating reports whether an operation may be running: the last report of the engine is a moment
// old, so that only an ended one is refused.
func operating(app view.Application) bool {
	return !slices.Contains([]string{"Succeeded", "Failed", "Error"}, app.OperationPhase)
}

// preview shows what an action would do. Anybody who may read the Application may see it.
func (s *Server) preview(ctx context.Context, kind mirror.ActionKind, in *previewIn) (
	*body[wire.ActionPreview], error) {
	caller, id := callerOf(ctx), in.id()
	app, err := single(ctx, s.reader.Applications, caller.Scope(), view.Filter{Tenant: id.Tenant,
		Deployment: id.Deployment, Environment: id.Environment})
	if err != nil {
		return nil, s.answer(ctx, subjectf("application %s", id), err)
	}
	refusal, err := s.actRefusal(ctx, kind, app)
	if err != nil {
		return nil, s.answer(ctx, subjectf("application %s", id), err)
	}
	p := wire.ActionPreview{Action: kind, Application: id.String(), Engine: app.Engine,
		Target: app.TargetRevision, Synced: app.SyncedRevision,
		Resources: []wire.PreviewedResource{}}
	may := caller.May(access.Verb(kind), access.Application, id.Tenant)
	if !may.Allowed {
		refusal = forbidden(caller, "", may)
	}
	if refusal != nil {
		p.Refused = refusal.Detail + ": " + refusal.Next
	}
	switch kind {
	case mirror.ActionRefresh:
		p.Does = "Argo CD compares it with its sources now"
		if in.Hard {
			p.Does = "Argo CD renders its manifests again, and compares them"
		}
		p.Does += "; if it is automated and differs, a sync follows"
	case mirror.ActionTerminate:
		p.Does = "Argo CD ends the running operation; resources that it has changed stay changed"
	case mirror.ActionSync:
		s.previewSync(ctx, in, &p)
	case mirror.ActionRestart:
		s.previewRestart(ctx, in, &p)
	case mirror.ActionRollback:
		if err := s.previewRollback(ctx, in, app, &p); err != nil {
			return nil, s.answer(ctx, subjectf("application %s", id), err)
		}
	}
	return &body[wire.ActionPreview]{p}, nil
}

func (s *Server) previewSync(ctx context.Context, in *previewIn, p *wire.ActionPreview) {
	revision := in.Revision
	if revision == "" {
		revision = p.Target
	}
	p.Does = "Argo CD applies the manifests of " + revision
	if in.Revision != "" && in.Revision != p.Target {
		p.Note = "the list is the comparison with " + p.Target + ", not with " + in.Revision +
			"; a dry run shows the changes of another revision"
	}
	diff, err := inspectAs(ctx, s, callerOf(ctx), in.id(), s.inspect.diff)
	if err != nil {
		p.Note = "the resources that would change are unknown: " + reasonOf(err)
		return
	}
	p.ComparedAt = diff.ComparedAt
	for _, r := range diff.Resources {
		if r.Change == mirror.ResourcePruned && !in.Prune {
			p.Kept++
			continue
		}
		p.Add(r.ResourceRef, string(r.Change))
	}
	p.More += diff.More
}

func (s *Server) previewRestart(ctx context.Context, in *previewIn, p *wire.ActionPreview) {
	p.Does = "the workloads replace their Pods, a few at a time, by their own strategies"
	tree, err := inspectAs(ctx, s, callerOf(ctx), in.id(), s.inspect.tree)
	if err != nil {
		p.Note = "the Pods that would be replaced are unknown: " + reasonOf(err)
		return
	}
	p.ComparedAt = tree.ComparedAt
	for _, w := range mirror.Restartable(tree) {
		p.Add(w.ResourceRef, fmt.Sprintf("Restart %d Pods", w.Pods))
	}
	if len(p.Resources) == 0 && p.Refused == "" {
		p.Refused = "it has no Deployment, StatefulSet or DaemonSet of its own"
	}
}

// previewRollback shows what a rollback does, or without a revision what it may lead to.
func (s *Server) previewRollback(ctx context.Context, in *previewIn, app view.Application,
	p *wire.ActionPreview) (err error) {
	if p.Healthy, err = s.reader.HealthyRevisions(ctx, callerOf(ctx).Scope(),
		in.id()); err != nil {
		return err
	}
	p.Before = mirror.HealthyBefore(p.Healthy, mirror.RollbackOf(app.Hold) != "")
	refuse := func(why string) {
		if p.Refused == "" {
			p.Refused = why
		}
	}
	switch {
	case in.End:
		p.Does = "automation goes on, and Argo CD syncs it to " + app.TargetRevision
		if mirror.RollbackOf(app.Hold) == "" {
			refuse(mirror.ErrNotRolledBack.Error())
		}
		return nil
	case in.Revision == "":
		p.Does = "Argo CD syncs it to a revision with which it was Healthy"
		refuse("it needs one of the listed revisions")
		return nil
	}
	p.Does = "Argo CD syncs it to " + in.Revision + ", and its automation is paused until Git asks " +
		"for another revision than " + app.TargetRevision
	p.Note = "it stays OutOfSync until then; to make the rollback lasting, change its " +
		"targetRevision in Git"
	if s.proposals {
		p.Note = "it stays OutOfSync until then; a pull request that makes the rollback lasting follows"
	}
	if !slices.ContainsFunc(p.Healthy, func(r mirror.HealthyRevision) bool {
		return r.Revision == in.Revision
	}) {
		refuse(mirror.ErrNeverHealthy.Error())
	}
	return nil
}

// reasonOf returns the detail of a refusal.
func reasonOf(err error) string {
	var known *wire.Refusal
	if errors.As(err, &known) {
		return known.Detail
	}
	return "the engine did not answer"
}
