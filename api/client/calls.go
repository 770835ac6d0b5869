package client

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strconv"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/plan/report"
)

// path joins parts, each escaped, so that no name reaches another route.
func path(parts ...string) string {
	joined := ""
	for _, p := range parts {
		joined += "/" + url.PathEscape(p)
	}
	return joined
}

func values(f view.Filter) url.Values {
	q := url.Values{}
	for name, value := range map[string]string{
		"tenant": string(f.Tenant), "environment": string(f.Environment),
		"deployment": string(f.Deployment), "engine": string(f.Engine),
		"revision": string(f.Revision), "sync": string(f.Sync), "health": string(f.Health),
		"apply": string(f.Apply), "name": f.Name,
		"state": cmp.Or(string(f.State), string(f.OperationState)),
		"kind":  string(f.OperationKind), "labels": f.Labels.String(), "text": f.Text,
		"image": f.Image,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for name, value := range entryValues(f) {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// all reads a list to its end, or its first limit items when limit is above 0.
func all[T any](ctx context.Context, c *connection, what string, filter view.Filter,
	limit int) ([]T,
	error) {
	items := []T{}
	q := values(filter)
	for {
		size := wire.MaxPage
		if limit > 0 {
			size = min(size, limit-len(items))
		}
		q.Set("limit", strconv.Itoa(size))
		var page wire.List[T]
		if err := c.do(ctx, http.MethodGet, path(what), q, nil, &page); err != nil {
			return nil, err
		}
		items = append(items, page.Items...)
		if page.Next == "" || limit > 0 && len(items) >= limit {
			return items, nil
		}
		q.Set("after", page.Next)
	}
}

func one[T any](ctx context.Context, c *connection, parts ...string) (item T, err error) {
	err = c.do(ctx, http.MethodGet, path(parts...), nil, nil, &item)
	return item, err
}

// Tenants lists tenants; limit 0 means all, here and below.
func (l lists) Tenants(ctx context.Context, f view.Filter, limit int) ([]view.Tenant,
	error) {
	return all[view.Tenant](ctx, l.conn, "tenants", f, limit)
}

// Environments lists environments.
func (l lists) Environments(ctx context.Context, f view.Filter,
	limit int) ([]view.Environment, error) {
	return all[view.Environment](ctx, l.conn, "environments", f, limit)
}

// Deployments lists deployments.
func (l lists) Deployments(ctx context.Context, f view.Filter,
	limit int) ([]view.Deployment, error) {
	return all[view.Deployment](ctx, l.conn, "deployments", f, limit)
}

// Sets lists the sets in effect.
func (l lists) Sets(ctx context.Context, f view.Filter, limit int) ([]view.Set, error) {
	return all[view.Set](ctx, l.conn, "sets", f, limit)
}

// Applications lists Applications.
func (l lists) Applications(ctx context.Context, f view.Filter,
	limit int) ([]view.Application, error) {
	return all[view.Application](ctx, l.conn, "applications", f, limit)
}

// Engines lists engines.
func (l lists) Engines(ctx context.Context, f view.Filter, limit int) ([]view.Engine,
	error) {
	return all[view.Engine](ctx, l.conn, "engines", f, limit)
}

// Orphans lists live objects that no declaration asks for.
func (l lists) Orphans(ctx context.Context, f view.Filter, limit int) ([]view.Orphan,
	error) {
	return all[view.Orphan](ctx, l.conn, "strays", f, limit)
}

// Unproven lists the objects of forgotten engines and clusters.
func (l lists) Unproven(ctx context.Context, f view.Filter, limit int) ([]view.Unproven,
	error) {
	return all[view.Unproven](ctx, l.conn, "unproven", f, limit)
}

// Credentials lists access to private repositories, by tenant and name.
func (l lists) Credentials(ctx context.Context, f view.Filter, limit int) ([]view.Credential,
	error) {
	return all[view.Credential](ctx, l.conn, "credentials", f, limit)
}

// Policies lists the rules for the declarations of tenants, by name.
func (l lists) Policies(ctx context.Context, f view.Filter, limit int) ([]view.Policy,
	error) {
	return all[view.Policy](ctx, l.conn, "policies", f, limit)
}

// Freezes lists the freezes of the fleet and of tenants.
func (l lists) Freezes(ctx context.Context, f view.Filter, limit int) ([]view.Freeze,
	error) {
	return all[view.Freeze](ctx, l.conn, "freezes", f, limit)
}

// Bulletins lists the security releases of Argo CD with the engines that lack one.
func (l lists) Bulletins(ctx context.Context, f view.Filter, limit int) ([]view.Bulletin,
	error) {
	return all[view.Bulletin](ctx, l.conn, "bulletins", f, limit)
}

// Rings lists the rings of the Fleet, in order.
func (l lists) Rings(ctx context.Context, f view.Filter, limit int) ([]mirror.Ring, error) {
	return all[mirror.Ring](ctx, l.conn, "rings", f, limit)
}

// DecideRing pauses, resumes or returns a ring: verb is pause, resume or return.
func (d decisions) DecideRing(ctx context.Context, verb string, r mirror.RingDecision) (
	out mirror.Ring, err error) {
	err = d.conn.do(ctx, http.MethodPost, path("rings", verb), nil, r, &out)
	return out, err
}

// Pools lists the pools of engines, by name.
func (l lists) Pools(ctx context.Context, f view.Filter, limit int) ([]mirror.Pool, error) {
	return all[mirror.Pool](ctx, l.conn, "pools", f, limit)
}

// DecidePool pauses or resumes a pool: verb is pause or resume.
func (d decisions) DecidePool(ctx context.Context, verb string, p mirror.PoolDecision) (
	out mirror.Pool, err error) {
	err = d.conn.do(ctx, http.MethodPost, path("pools", verb), nil, p, &out)
	return out, err
}

// Owners lists the names of owners and their pinned accounts.
func (l lists) Owners(ctx context.Context, f view.Filter, limit int) ([]view.Owner, error) {
	return all[view.Owner](ctx, l.conn, "owners", f, limit)
}

// ReleaseOwner makes the present account of an owner's name count.
func (d decisions) ReleaseOwner(ctx context.Context, r mirror.OwnerRelease) (out view.Owner,
	err error) {
	err = d.conn.do(ctx, http.MethodPost, path("owners", "release"), nil, r, &out)
	return out, err
}

// RemoveOrphan decides that exactly one orphan is removed.
func (d decisions) RemoveOrphan(ctx context.Context, r mirror.OrphanRemoval) (out view.Orphan,
	err error) {
	err = d.conn.do(ctx, http.MethodPost, path("strays", "remove"), nil, r, &out)
	return out, err
}

// Move requests the move of an environment, or undoes the one under way.
func (d decisions) Move(ctx context.Context, r wire.MoveRequest) (out wire.MoveRequested,
	err error) {
	err = d.conn.do(ctx, http.MethodPost, path("moves"), nil, r, &out)
	return out, err
}

// Join requests that all slices of a split environment move to one engine, and returns the ids of
// their operations.
func (d decisions) Join(ctx context.Context, r wire.JoinRequest) (out wire.JoinRequested,
	err error) {
	err = d.conn.do(ctx, http.MethodPost, path("joins"), nil, r, &out)
	return out, err
}

// PauseDrain keeps the drain of an engine from requesting moves.
func (d decisions) PauseDrain(ctx context.Context, p mirror.DrainPause) (out view.Engine,
	err error) {
	err = d.conn.do(ctx, http.MethodPost, path("drains", "pause"), nil, p, &out)
	return out, err
}

// ResumeDrain lets the drain of an engine go on.
func (d decisions) ResumeDrain(ctx context.Context, p mirror.DrainPause) (out view.Engine,
	err error) {
	err = d.conn.do(ctx, http.MethodPost, path("drains", "resume"), nil, p, &out)
	return out, err
}

// Abandon decides that an Application whose deletion is blocked is removed without its cluster.
func (d decisions) Abandon(ctx context.Context, r wire.OrphanRequest) (out view.Application,
	err error) {
	err = d.conn.do(ctx, http.MethodPost, path("applications", "orphan"), nil, r, &out)
	return out, err
}

// Operations lists operations, newest first.
func (l lists) Operations(ctx context.Context, f view.Filter, limit int) ([]mirror.Operation,
	error) {
	return all[mirror.Operation](ctx, l.conn, "operations", f, limit)
}

// Remedies lists the restarts of components of engines, newest first.
func (l lists) Remedies(ctx context.Context, f view.Filter, limit int) ([]mirror.Remedy, error) {
	return all[mirror.Remedy](ctx, l.conn, "remedies", f, limit)
}

// Moves lists the last move of each environment.
func (l lists) Moves(ctx context.Context, f view.Filter, limit int) ([]view.Move, error) {
	return all[view.Move](ctx, l.conn, "moves", f, limit)
}

// MoveOf returns the last move of an environment.
func (l lists) MoveOf(ctx context.Context, id fleet.EnvironmentID) (view.Move, error) {
	return one[view.Move](ctx, l.conn, "tenants", string(id.Tenant), "environments",
		string(id.Name), "move")
}

// Revisions lists recorded commits, newest first.
func (l lists) Revisions(ctx context.Context, f view.Filter, limit int) ([]view.Revision,
	error) {
	return all[view.Revision](ctx, l.conn, "revisions", f, limit)
}

// Problems lists the problems of the config repo.
func (l lists) Problems(ctx context.Context, f view.Filter, limit int) ([]fleet.Problem, error) {
	return all[fleet.Problem](ctx, l.conn, "problems", f, limit)
}

// Holds lists held changes.
func (l lists) Holds(ctx context.Context, f view.Filter, limit int) ([]mirror.Hold, error) {
	return all[mirror.Hold](ctx, l.conn, "holds", f, limit)
}

// Pulls lists pull requests, newest first.
func (l lists) Pulls(ctx context.Context, f view.Filter, limit int) ([]view.Pull, error) {
	return all[view.Pull](ctx, l.conn, "pulls", f, limit)
}

// Pull returns one pull request.
func (l lists) Pull(ctx context.Context, number int) (view.Pull, error) {
	return one[view.Pull](ctx, l.conn, "pulls", strconv.Itoa(number))
}

// PullPlan returns the plan that the reviewers of a pull request see.
func (l lists) PullPlan(ctx context.Context, number int) (report.Report, error) {
	return one[report.Report](ctx, l.conn, "pulls", strconv.Itoa(number), "plan")
}

// Tokens lists tokens without their plaintext.
func (l lists) Tokens(ctx context.Context) ([]view.Token, error) {
	return all[view.Token](ctx, l.conn, "tokens", view.Filter{}, 0)
}

// Stops lists the stops in force.
func (l lists) Stops(ctx context.Context) ([]mirror.Stop, error) {
	page, err := one[wire.List[mirror.Stop]](ctx, l.conn, "stops")
	return page.Items, err
}

// Tenant returns one tenant.
func (l lists) Tenant(ctx context.Context, name fleet.TenantName) (view.Tenant, error) {
	return one[view.Tenant](ctx, l.conn, "tenants", string(name))
}

// Environment returns one environment.
func (l lists) Environment(ctx context.Context, id fleet.EnvironmentID) (view.Environment,
	error) {
	return one[view.Environment](ctx, l.conn, "tenants", string(id.Tenant), "environments",
		string(id.Name))
}

// Deployment returns one deployment.
func (l lists) Deployment(ctx context.Context, id fleet.DeploymentID) (view.Deployment,
	error) {
	return one[view.Deployment](ctx, l.conn, "tenants", string(id.Tenant), "deployments",
		string(id.Name))
}

// Application returns one Application.
func (l lists) Application(ctx context.Context, id fleet.ApplicationID) (view.Application,
	error) {
	return one[view.Application](ctx, l.conn, "tenants", string(id.Tenant), "applications",
		string(id.Deployment), string(id.Environment))
}

// Engine returns one engine.
func (l lists) Engine(ctx context.Context, name fleet.EngineName) (view.Engine, error) {
	return one[view.Engine](ctx, l.conn, "engines", string(name))
}

// Operation returns one operation.
func (l lists) Operation(ctx context.Context, id string) (mirror.Operation, error) {
	return one[mirror.Operation](ctx, l.conn, "operations", id)
}

// Revision returns one recorded commit.
func (l lists) Revision(ctx context.Context, revision fleet.Revision) (view.Revision,
	error) {
	return one[view.Revision](ctx, l.conn, "revisions", string(revision))
}

// Explain returns the placement of one environment.
func (l lists) Explain(ctx context.Context, id fleet.EnvironmentID) (view.Explained, error) {
	return one[view.Explained](ctx, l.conn, "tenants", string(id.Tenant), "environments",
		string(id.Name), "placement")
}

// Source returns the state of the config repo.
func (l lists) Source(ctx context.Context) (view.Source, error) {
	return one[view.Source](ctx, l.conn, "source")
}

// WhoAmI returns the token's identity.
func (l lists) WhoAmI(ctx context.Context) (wire.Identity, error) {
	return one[wire.Identity](ctx, l.conn, "whoami")
}

// Approve releases the changes that a revision holds.
func (d decisions) Approve(ctx context.Context, a wire.ApproveRequest) (out wire.Approved,
	err error) {
	err = d.conn.do(ctx, http.MethodPost, path("approve"), nil, a, &out)
	return out, err
}

// Stop forbids writes within a scope and returns the stop in force there.
func (d decisions) Stop(ctx context.Context, s wire.StopRequest) (out mirror.Stop, err error) {
	err = d.conn.do(ctx, http.MethodPost, path("stop"), nil, s, &out)
	return out, err
}

// Resume ends a stop.
func (d decisions) Resume(ctx context.Context, r wire.ResumeRequest) (out wire.Resumed, err error) {
	err = d.conn.do(ctx, http.MethodPost, path("resume"), nil, r, &out)
	return out, err
}

// CreateToken creates a token; only its answer ever contains the plaintext.
func (d decisions) CreateToken(ctx context.Context, t wire.TokenRequest) (out wire.CreatedToken,
	err error) {
	err = d.conn.do(ctx, http.MethodPost, path("tokens"), nil, t, &out)
	return out, err
}

// RevokeToken ends a token at once.
func (d decisions) RevokeToken(ctx context.Context, id string) error {
	return d.conn.do(ctx, http.MethodDelete, path("tokens", id), nil, nil, nil)
}

// Agents lists agents, including those that are only declared.
func (l lists) Agents(ctx context.Context, f view.Filter, limit int) ([]view.Agent, error) {
	return all[view.Agent](ctx, l.conn, "agents", f, limit)
}

// Agent returns one agent, by its engine.
func (l lists) Agent(ctx context.Context, engine fleet.EngineName) (view.Agent, error) {
	return one[view.Agent](ctx, l.conn, "agents", string(engine))
}

// RevokeAgent ends an agent's identity.
func (d decisions) RevokeAgent(ctx context.Context, engine fleet.EngineName) error {
	return d.conn.do(ctx, http.MethodDelete, path("agents", string(engine)), nil, nil, nil)
}

// AgentTokens lists registration tokens without their plaintext, newest first.
func (l lists) AgentTokens(ctx context.Context, f view.Filter, limit int) ([]registry.Token,
	error) {
	return all[registry.Token](ctx, l.conn, "agent-tokens", f, limit)
}

// CreateAgentToken creates a registration token; only its answer ever contains the plaintext.
func (d decisions) CreateAgentToken(ctx context.Context,
	t wire.AgentTokenRequest) (out wire.CreatedAgentToken, err error) {
	err = d.conn.do(ctx, http.MethodPost, path("agent-tokens"), nil, t, &out)
	return out, err
}

// RevokeAgentToken ends a registration token.
func (d decisions) RevokeAgentToken(ctx context.Context, id string) error {
	return d.conn.do(ctx, http.MethodDelete, path("agent-tokens", id), nil, nil, nil)
}

// OwnApplications lists the Applications of autonomous clusters' own people.
func (l lists) OwnApplications(ctx context.Context, f view.Filter, limit int) ([]view.Own,
	error) {
	return all[view.Own](ctx, l.conn, "own-applications", f, limit)
}

// SyncOwn asks an autonomous cluster to sync one of its own Applications.
func (d decisions) SyncOwn(ctx context.Context, environment fleet.EnvironmentID, namespace,
	name string, ask wire.OwnSyncRequest) (out wire.Asked, err error) {
	err = d.conn.do(ctx, http.MethodPost,
		path("tenants", string(environment.Tenant), "environments",
			string(environment.Name), "own-applications", namespace, name, "sync"), nil, ask, &out)
	return out, err
}

// ForgetEngine stops waiting for an evacuated engine.
func (d decisions) ForgetEngine(ctx context.Context, r mirror.EngineForgetting) (out view.Engine,
	err error) {
	err = d.conn.do(ctx, http.MethodPost, path("forget", "engine"), nil, r, &out)
	return out, err
}

// ForgetCluster removes the Applications of a removed environment without its cluster.
func (d decisions) ForgetCluster(ctx context.Context, r mirror.ClusterForgetting) (
	out wire.Forgotten, err error) {
	err = d.conn.do(ctx, http.MethodPost, path("forget", "cluster"), nil, r, &out)
	return out, err
}

// ResolveUnproven takes unproven objects off the list.
func (d decisions) ResolveUnproven(ctx context.Context, r mirror.UnprovenResolution) (
	out wire.Resolved, err error) {
	err = d.conn.do(ctx, http.MethodPost, path("unproven", "resolve"), nil, r, &out)
	return out, err
}

// Evacuate gives the environments of an engine that is gone other engines, or ends that.
func (d decisions) Evacuate(ctx context.Context, r mirror.EvacuationRequest) (out view.Engine,
	err error) {
	err = d.conn.do(ctx, http.MethodPost, path("evacuations"), nil, r, &out)
	return out, err
}
