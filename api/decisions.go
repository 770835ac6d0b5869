package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/access"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"github.com/danielgtaylor/huma/v2"
)

type asked[T any] struct{ Body T }

func (s *Server) registerDecisions() {
	operate := []guard{s.may(access.Operate, access.Fleet)}
	huma.Register(s.api, operation(http.MethodPost, "/approve", "approve",
		"Release the changes that one revision holds, exactly as listed (platform); with a token of an "+
			"owner of a tenant, those that freezes of the tenant hold", "decisions",
		s.approving(access.Tenant)), s.approve)
	huma.Register(s.api, operation(http.MethodPost, "/strays/remove", "removeStray",
		"Remove one orphan, exactly the object of that UID (platform)", "decisions",
		[]guard{s.may(access.Remove, access.Engine)}), s.removeOrphan)
	huma.Register(s.api, operation(http.MethodPost, "/owners/release", "releaseOwner",
		"Make exactly the account or team of that number count as the owner (platform)",
		"decisions",
		operate), s.releaseOwner)
	huma.Register(s.api, operation(http.MethodPost, "/moves", "move",
		"Move an environment to another engine, or undo its move (platform)", "decisions",
		operate), s.move)
	huma.Register(s.api, operation(http.MethodPost, "/joins", "join",
		"Move all slices of a split environment to one engine, which joins them (platform)",
		"decisions", operate), s.join)
	huma.Register(s.api, operation(http.MethodPost, "/drains/pause", "pauseDrain",
		"Request no further move off a draining engine (platform)", "decisions",
		[]guard{s.may(access.Pause, access.Engine)}),
		func(ctx context.Context, in *asked[mirror.DrainPause]) (*body[view.Engine], error) {
			return s.decideDrain(ctx, in.Body, s.decider.PauseDrain)
		})
	huma.Register(s.api, operation(http.MethodPost, "/drains/resume", "resumeDrain",
		"Let a drain go on that is paused, or stopped by moves that failed (platform)", "decisions",
		[]guard{s.may(access.Pause, access.Engine)}),
		func(ctx context.Context, in *asked[mirror.DrainPause]) (*body[view.Engine], error) {
			return s.decideDrain(ctx, in.Body, s.decider.ResumeDrain)
		})
	s.registerRebalances(operate)
	s.registerRollouts()
	s.registerRings()
	s.registerPools()
	s.registerDifferences()
	s.registerNotifications()
	huma.Register(s.api, operation(http.MethodPost, "/evacuations", "evacuate",
		"Give the environments of an engine that is gone or fenced other engines, or end that "+
			"(platform)",
		"decisions", operate), s.evacuate)
	huma.Register(s.api, operation(http.MethodPost, "/forget/engine", "forgetEngine",
		"Stop waiting for an evacuated engine that never returns (platform)", "decisions",
		operate), s.forgetEngine)
	huma.Register(s.api, operation(http.MethodPost, "/forget/cluster", "forgetCluster",
		"Remove the Applications of a removed environment whose cluster never returns (platform)",
		"decisions", operate), s.forgetCluster)
	huma.Register(s.api, operation(http.MethodPost, "/unproven/resolve", "resolveUnproven",
		"Take objects off the list of the unproven ones, which a person has proven gone "+
			"(platform)", "decisions", operate), s.resolveUnproven)
	huma.Register(s.api, operation(http.MethodPost, "/applications/orphan", "orphan",
		"Remove an Application whose deletion is blocked, without its cluster; a tenant may "+
			"remove its own", "decisions", []guard{s.may(access.Remove, access.Application)}),
		s.abandon)
	huma.Register(s.api, operation(http.MethodPost, "/stop", "stop",
		"Forbid every write to engines; a tenant may stop itself", "decisions",
		s.stopping(access.Stop)), s.stop)
	huma.Register(s.api, operation(http.MethodPost, "/resume", "resume",
		"End a stop; a tenant may end its own, not one that the platform set", "decisions",
		s.stopping(access.Resume)), s.resume)
}

// approving guards a decision of owners and operators.
func (s *Server) approving(kind access.Kind) []guard {
	return []guard{s.may(access.Approve, kind)}
}

// stopping guards the emergency stop: of the caller's tenant, or for the platform of everything.
func (s *Server) stopping(verb access.Verb) []guard { return []guard{s.may(verb, access.Tenant)} }

func (s *Server) approve(ctx context.Context, in *asked[wire.ApproveRequest]) (*body[wire.Approved],
	error) {
	caller := callerOf(ctx)
	subject := subjectf("revision %s", in.Body.Revision)
	holds, err := s.holdsOf(ctx, in.Body.Revision)
	by := ""
	if err == nil {
		holds, by, err = s.releasable(ctx, caller, subject, holds)
	}
	if err != nil {
		return nil, s.answer(ctx, subject, err)
	}
	approval, err := s.decider.Approve(ctx, mirror.Approval{Revision: in.Body.Revision,
		Tenant: caller.Tenant, By: by, Note: in.Body.Note})
	if err != nil {
		return nil, s.answer(ctx, subject, err)
	}
	return &body[wire.Approved]{wire.Approved{Approval: approval, Holds: holds}}, nil
}

// holdsOf returns all holds of a revision that the caller may see.
func (s *Server) holdsOf(ctx context.Context, revision fleet.Revision) (holds []mirror.Hold,
	err error) {
	for page := (view.Page{Limit: wire.MaxPage}); ; {
		items, next, err := s.deciding.Holds(ctx, callerOf(ctx).Scope(), view.Filter{
			Revision: revision}, page)
		if err != nil {
			return nil, err
		}
		holds = append(holds, items...)
		if page.After = next; next == "" {
			return holds, nil
		}
	}
}

// releasable returns the holds that the caller may release, and who releases them: the platform all
// of them, and an owner of a tenant those of the tenant's own freezes.
func (s *Server) releasable(ctx context.Context, caller view.Token, subject string,
	holds []mirror.Hold) (own []mirror.Hold, by string, err error) {
	if caller.Tenant == "" {
		if len(holds) == 0 {
			return nil, "", problem(http.StatusNotFound, subject, "this revision holds no change",
				"see `argosy get holds`")
		}
		return holds, caller.Subject(), nil
	}
	for _, h := range holds {
		if h.Reason == mirror.HoldFrozen && h.Tenant == caller.Tenant {
			own = append(own, h)
		}
	}
	if len(own) > 0 {
		by, err = s.approver(ctx, caller, caller.Tenant)
		return own, by, err
	}
	status, why := http.StatusNotFound, "no freeze of tenant "+string(caller.Tenant)+
		" holds a change of this revision"
	if len(holds) > 0 {
		status, why = http.StatusForbidden, "its changes wait for another reason ("+
			string(holds[0].Reason)+") than a freeze of tenant "+string(caller.Tenant)
	}
	return nil, "", problem(status, subject, why, "see `argosy get holds`; the platform alone "+
		"releases what the guards and the freezes of the fleet hold")
}

func (s *Server) removeOrphan(ctx context.Context,
	in *asked[mirror.OrphanRemoval]) (*body[view.Orphan], error) {
	removal := in.Body
	removal.By = callerOf(ctx).Subject()
	subject := subjectf("orphan %s %s on engine %s", removal.Kind, removal.Name, removal.Engine)
	made, err := s.decider.RemoveOrphan(ctx, removal)
	if errors.Is(err, mirror.ErrNotFound) {
		return nil, problem(http.StatusNotFound, subject,
			"no orphan of this UID is listed, or its removal is decided already",
			"see `argosy get orphans`")
	}
	if err != nil {
		return nil, s.answer(ctx, subject, err)
	}
	return &body[view.Orphan]{made}, nil
}

func (s *Server) releaseOwner(ctx context.Context,
	in *asked[mirror.OwnerRelease]) (*body[view.Owner], error) {
	release := in.Body
	release.By = callerOf(ctx).Subject()
	subject := subjectf("owner %s", release.Name)
	made, err := s.decider.ReleaseOwner(ctx, release)
	if errors.Is(err, mirror.ErrNotFound) {
		return nil, problem(http.StatusNotFound, subject,
			"the account or team of this number does not have the name, or counts already",
			"see `argosy get owners`")
	}
	if err != nil {
		return nil, s.answer(ctx, subject, err)
	}
	return &body[view.Owner]{made}, nil
}

// move reads the environment and the engine first: a misspelt name is not found.
func (s *Server) move(ctx context.Context, in *asked[wire.MoveRequest]) (
	*body[wire.MoveRequested], error) {
	b := in.Body
	id := fleet.EnvironmentID{Tenant: b.Tenant, Name: b.Environment}
	e, err := s.movable(ctx, id, b.To)
	if err != nil {
		return nil, err
	}
	if err := noSuchSlice(id, b.Slice, e.Slices); err != nil {
		return nil, err
	}
	operation, err := s.requestMove(ctx, mirror.MoveRequest{Environment: id, Slice: b.Slice,
		Split: b.Split, To: b.To, Note: b.Note, DryRun: b.DryRun})
	if err != nil {
		return nil, err
	}
	return &body[wire.MoveRequested]{wire.MoveRequested{Operation: operation}}, nil
}

// join requests a move of each slice that is not on the engine. Repeated, it requests those that
// are missing.
func (s *Server) join(ctx context.Context, in *asked[wire.JoinRequest]) (
	*body[wire.JoinRequested], error) {
	b := in.Body
	id := fleet.EnvironmentID{Tenant: b.Tenant, Name: b.Environment}
	e, err := s.movable(ctx, id, b.To)
	if err != nil {
		return nil, err
	}
	if len(e.Slices) == 0 {
		return nil, problem(http.StatusConflict, subjectf("environment %s", id), "it is not split",
			"to move it, run `argosy move environment "+id.String()+" --to "+string(b.To)+"`")
	}
	out := wire.JoinRequested{Operations: []string{}}
	for _, p := range e.Slices {
		if p.Engine == b.To {
			continue
		}
		operation, err := s.requestMove(ctx, mirror.MoveRequest{Environment: id, Slice: p.Slice,
			To: b.To, Note: b.Note, DryRun: b.DryRun})
		if err != nil {
			return nil, err
		}
		out.Operations = append(out.Operations, operation)
	}
	return &body[wire.JoinRequested]{out}, nil
}

// movable returns the placement of an environment, if the environment and the engine exist.
func (s *Server) movable(ctx context.Context, id fleet.EnvironmentID, to fleet.EngineName) (
	e view.Explained, err error) {
	scope := callerOf(ctx).Scope()
	if e, err = s.deciding.Explain(ctx, scope, id); err != nil {
		return e, s.answer(ctx, subjectf("environment %s", id), err)
	}
	if to == fleet.AgentEngine(id) { // no Engine declares it
		return e, nil
	}
	if _, err := single(ctx, s.deciding.Engines, scope, view.Filter{Engine: to}); err != nil {
		return e, s.answer(ctx, subjectf("engine %s", to), err)
	}
	return e, nil
}

// noSuchSlice refuses a slice that is not placed.
func noSuchSlice(id fleet.EnvironmentID, slice fleet.Slice, placed []fleet.Placement) error {
	var names []string
	for _, p := range placed {
		if p.Slice == slice {
			return nil
		}
		names = append(names, string(p.Slice))
	}
	subject := subjectf("environment %s", id)
	switch {
	case len(placed) == 0 && slice == "":
		return nil
	case len(placed) == 0:
		return problem(http.StatusConflict, subject, "it is not split", "leave out the slice")
	case slice == "":
		return problem(http.StatusConflict, subject,
			"it is split into slices "+strings.Join(names, ", "),
			"name one of them (--slice), or join them: `argosy join environment "+id.String()+
				" --to ENGINE`")
	}
	return problem(http.StatusNotFound, subject, "it has no slice "+string(slice),
		"its slices are "+strings.Join(names, ", "))
}

// requestMove requests one move by the caller.
func (s *Server) requestMove(ctx context.Context, m mirror.MoveRequest) (string, error) {
	m.By = callerOf(ctx).Subject()
	operation, err := s.decider.RequestMove(ctx, m)
	subject := subjectf("environment %s", m.ID())
	if errors.Is(err, mirror.ErrMoving) {
		return "", problem(http.StatusConflict, subject, "a move of it is requested or under way",
			"wait until it has ended: `argosy describe move "+m.Environment.String()+"`; to undo "+
				"it, move it to the engine that it leaves, before an Application is deleted there")
	}
	if err != nil {
		return "", s.answer(ctx, subject, err)
	}
	return operation, nil
}

// decideDrain reads the engine first: a misspelt name is not found.
func (s *Server) decideDrain(ctx context.Context, p mirror.DrainPause,
	decide func(context.Context, mirror.DrainPause) error) (*body[view.Engine], error) {
	caller := callerOf(ctx)
	subject := subjectf("engine %s", p.Engine)
	p.By = caller.Subject()
	of := view.Filter{Engine: p.Engine}
	e, err := single(ctx, s.deciding.Engines, caller.Scope(), of)
	if err != nil {
		return nil, s.answer(ctx, subject, err)
	}
	err = decide(ctx, p)
	if errors.Is(err, mirror.ErrNotDraining) {
		return nil, problem(http.StatusConflict, subject, "it does not drain, or its drain has not "+
			"begun yet", "declare `state: Draining` in fleet/engines/"+string(p.Engine)+
			".yaml, and wait until `argosy describe engine "+string(p.Engine)+"` shows the drain")
	}
	if err == nil {
		e, err = single(ctx, s.deciding.Engines, caller.Scope(), of)
	}
	if err != nil {
		return nil, s.answer(ctx, subject, err)
	}
	return &body[view.Engine]{e}, nil
}

// orphan reads the Application first: one outside of the caller's scope is not found.
func (s *Server) abandon(ctx context.Context,
	in *asked[wire.OrphanRequest]) (*body[view.Application], error) {
	caller, b := callerOf(ctx), in.Body
	id := fleet.ApplicationID{Tenant: b.Tenant, Deployment: b.Deployment,
		Environment: b.Environment}
	subject := subjectf("application %s", id)
	made, err := single(ctx, s.deciding.Applications, caller.Scope(),
		view.Filter{Tenant: id.Tenant, Deployment: id.Deployment, Environment: id.Environment})
	if err != nil {
		return nil, s.answer(ctx, subject, err)
	}
	err = s.decider.Abandon(ctx, mirror.Orphaning{Application: id, UID: b.UID, By: caller.Subject(),
		Note: b.Note})
	switch {
	case errors.Is(err, mirror.ErrNotFound):
		return nil, problem(http.StatusNotFound, subject,
			"no Application of this UID is being deleted", "see `argosy describe application "+
				id.String()+"`")
	case errors.Is(err, mirror.ErrNotBlocked):
		return nil, problem(http.StatusConflict, subject,
			"its deletion is not blocked: the cluster has to be unreachable for an hour",
			"wait, or bring the cluster back; `argosy describe application "+id.String()+
				"` shows since when")
	case err != nil:
		return nil, s.answer(ctx, subject, err)
	}
	return &body[view.Application]{made}, nil
}

func (s *Server) stop(ctx context.Context, in *asked[wire.StopRequest]) (*body[mirror.Stop],
	error) {
	caller := callerOf(ctx)
	subject, err := s.covered(ctx, caller, in.Body.Scope, in.Body.Name)
	if err != nil {
		return nil, s.answer(ctx, subject, err)
	}
	stop := mirror.Stop{Scope: in.Body.Scope, Name: in.Body.Name, By: caller.Stopper(),
		Reason: in.Body.Reason, At: s.now().UTC()}
	inForce, err := s.decider.SetStop(ctx, stop, caller.Tenant == "")
	if err != nil {
		return nil, s.answer(ctx, subject, err)
	}
	return &body[mirror.Stop]{inForce}, nil
}

// endedBy returns how the names begin of those whose stops a caller of a scope may end. The
// platform ends all of them.
func endedBy(scope fleet.TenantName) []string {
	if scope == "" {
		return []string{""}
	}
	return []string{view.Token{Tenant: scope}.Subject(), view.StopperOf(scope)}
}

func (s *Server) resume(ctx context.Context, in *asked[wire.ResumeRequest]) (*body[wire.Resumed],
	error) {
	caller := callerOf(ctx)
	subject, refusal := may(caller, in.Body.Scope, in.Body.Name)
	if refusal != nil {
		return nil, refusal
	}
	var ended bool
	var err error
	for _, setBy := range endedBy(caller.Tenant) {
		ended, err = s.decider.ClearStop(ctx, in.Body.Scope, in.Body.Name, setBy, caller.Stopper())
		if err != nil || ended {
			break
		}
	}
	if err != nil {
		return nil, s.answer(ctx, subject, err)
	}
	stops, err := stopsOf(ctx, s.deciding.Stops, caller.Scope())
	if err != nil {
		return nil, s.answer(ctx, subject, err)
	}
	if !ended && caller.Tenant != "" {
		for _, stop := range stops {
			if stop.Scope == in.Body.Scope && stop.Name == in.Body.Name {
				return nil, problem(http.StatusForbidden, subject, "this stop was set by "+stop.By,
					"ask the platform to end it")
			}
		}
	}
	return &body[wire.Resumed]{wire.Resumed{Ended: ended, Stops: stops}}, nil
}

// may returns whether the caller may decide about that scope at all. A tenant gets the same refusal
// for another tenant as for a missing one.
func may(caller view.Token, scope mirror.StopScope, name string) (subject string, refusal error) {
	subject = string(scope)
	if name != "" {
		subject = subjectf("%s %s", scope, name)
	}
	switch {
	case (scope == mirror.StopFleet) != (name == ""):
		return subject, problem(http.StatusUnprocessableEntity, subject,
			"the scope fleet has no name, and the others need one", "")
	case caller.Tenant == "" || scope == mirror.StopTenant && name == string(caller.Tenant):
		return subject, nil
	case scope == mirror.StopTenant:
		return subject, notFound(subject)
	}
	return subject, problem(http.StatusForbidden, subject,
		"a tenant may stop and resume itself only", "ask with a token of the platform")
}

// covered returns whether the caller may decide about that scope, and whether the tenant or engine
// exists: a stop with a misspelt name would stop nothing and appear to work.
func (s *Server) covered(ctx context.Context, caller view.Token, scope mirror.StopScope,
	name string) (string, error) {
	subject, err := may(caller, scope, name)
	if err != nil {
		return subject, err
	}
	switch scope {
	case mirror.StopTenant:
		_, err = single(ctx, s.deciding.Tenants, caller.Scope(), view.Filter{
			Tenant: fleet.TenantName(name)})
	case mirror.StopEngine:
		_, err = single(ctx, s.deciding.Engines, caller.Scope(), view.Filter{
			Engine: fleet.EngineName(name)})
	}
	return subject, err
}

const (
	minTTL = time.Minute
	maxTTL = 10 * 365 * 24 * time.Hour
)

type tokenIn struct {
	ID string `path:"id" maxLength:"64" pattern:"^[A-Za-z0-9_-]+$"`
}

func (s *Server) registerTokens() {
	readers, writers := []guard{s.platformOnly}, []guard{s.may(access.Issue, access.Token)}
	huma.Register(s.api, operation(http.MethodGet, "/tokens", "list-tokens",
		"Tokens without their plaintext (platform)", "tokens", readers),
		func(ctx context.Context, in *struct{ Paging }) (*body[wire.List[view.Token]], error) {
			tokens, next, err := s.tokens.ListTokens(ctx, in.page())
			if err != nil {
				return nil, s.answer(ctx, "tokens", err)
			}
			if tokens == nil {
				tokens = []view.Token{}
			}
			return &body[wire.List[view.Token]]{wire.List[view.Token]{Items: tokens, Next: next}},
				nil
		})
	create := operation(http.MethodPost, "/tokens", "create-token",
		"Create a token; its plaintext is in this answer and nowhere else (platform)", "tokens",
		writers)
	create.DefaultStatus = http.StatusCreated
	huma.Register(s.api, create, s.createToken)
	huma.Register(s.api, operation(http.MethodDelete, "/tokens/{id}", "revoke-token",
		"End a token at once (platform)", "tokens", writers),
		func(ctx context.Context, in *tokenIn) (*struct{}, error) {
			err := s.tokens.RevokeToken(ctx, in.ID, callerOf(ctx).Subject())
			return nil, s.answer(ctx, "token "+in.ID, err)
		})
}

func (s *Server) createToken(ctx context.Context,
	in *asked[wire.TokenRequest]) (*body[wire.CreatedToken], error) {
	token := view.Token{Name: in.Body.Name, Tenant: in.Body.Tenant, Role: in.Body.Role,
		Owner: in.Body.Owner, CreatedBy: callerOf(ctx).Subject()}
	if err := fleet.ValidateName(in.Body.Name); err != nil {
		return nil, problem(http.StatusUnprocessableEntity, "name", err.Error(),
			"give the token a name such as ci")
	}
	if in.Body.Owner != "" && in.Body.Tenant == "" {
		return nil, problem(http.StatusUnprocessableEntity, "owner",
			"a token of the platform decides for every tenant", "name a tenant, or leave owner out")
	}
	if in.Body.TTL != "" {
		ttl, err := time.ParseDuration(in.Body.TTL)
		if err != nil || ttl < minTTL || ttl > maxTTL {
			return nil, problem(http.StatusUnprocessableEntity, "ttl",
				"a token is valid for 1m to 87600h",
				"leave ttl out for one that is valid until it is revoked")
		}
		expires := s.now().UTC().Add(ttl)
		token.ExpiresAt = &expires
	}
	made, plaintext, err := s.tokens.CreateToken(ctx, token)
	if err != nil {
		return nil, s.answer(ctx, subjectf("tenant %s", in.Body.Tenant), err)
	}
	return &body[wire.CreatedToken]{wire.CreatedToken{Token: made, Plaintext: plaintext}}, nil
}
