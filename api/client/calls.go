package client

import (
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
		"state": string(f.State),
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// all reads a list to its end, or its first limit items when limit is above 0.
func all[T any](ctx context.Context, c *Client, what string, filter view.Filter, limit int) ([]T,
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

func one[T any](ctx context.Context, c *Client, parts ...string) (item T, err error) {
	err = c.do(ctx, http.MethodGet, path(parts...), nil, nil, &item)
	return item, err
}

// Tenants lists tenants; limit 0 means all, here and below.
func (c *Client) Tenants(ctx context.Context, f view.Filter, limit int) ([]view.Tenant,
	error) {
	return all[view.Tenant](ctx, c, "tenants", f, limit)
}

// Environments lists environments.
func (c *Client) Environments(ctx context.Context, f view.Filter,
	limit int) ([]view.Environment, error) {
	return all[view.Environment](ctx, c, "environments", f, limit)
}

// Deployments lists deployments.
func (c *Client) Deployments(ctx context.Context, f view.Filter,
	limit int) ([]view.Deployment, error) {
	return all[view.Deployment](ctx, c, "deployments", f, limit)
}

// Applications lists Applications.
func (c *Client) Applications(ctx context.Context, f view.Filter,
	limit int) ([]view.Application, error) {
	return all[view.Application](ctx, c, "applications", f, limit)
}

// Engines lists engines.
func (c *Client) Engines(ctx context.Context, f view.Filter, limit int) ([]view.Engine,
	error) {
	return all[view.Engine](ctx, c, "engines", f, limit)
}

// Orphans lists live objects that no declaration asks for.
func (c *Client) Orphans(ctx context.Context, f view.Filter, limit int) ([]view.Orphan,
	error) {
	return all[view.Orphan](ctx, c, "strays", f, limit)
}

// Owners lists the names of owners and their pinned accounts.
func (c *Client) Owners(ctx context.Context, f view.Filter, limit int) ([]view.Owner, error) {
	return all[view.Owner](ctx, c, "owners", f, limit)
}

// ReleaseOwner makes the present account of an owner's name count.
func (c *Client) ReleaseOwner(ctx context.Context, r mirror.OwnerRelease) (out view.Owner,
	err error) {
	err = c.do(ctx, http.MethodPost, path("owners", "release"), nil, r, &out)
	return out, err
}

// RemoveOrphan decides that exactly one orphan is removed.
func (c *Client) RemoveOrphan(ctx context.Context, r mirror.OrphanRemoval) (out view.Orphan,
	err error) {
	err = c.do(ctx, http.MethodPost, path("strays", "remove"), nil, r, &out)
	return out, err
}

// Abandon decides that an Application whose deletion is blocked is removed without its cluster.
func (c *Client) Abandon(ctx context.Context, r wire.OrphanRequest) (out view.Application,
	err error) {
	err = c.do(ctx, http.MethodPost, path("applications", "orphan"), nil, r, &out)
	return out, err
}

// Operations lists operations, newest first.
func (c *Client) Operations(ctx context.Context, f view.Filter, limit int) ([]mirror.Operation,
	error) {
	return all[mirror.Operation](ctx, c, "operations", f, limit)
}

// Revisions lists recorded commits, newest first.
func (c *Client) Revisions(ctx context.Context, f view.Filter, limit int) ([]view.Revision,
	error) {
	return all[view.Revision](ctx, c, "revisions", f, limit)
}

// Problems lists the problems of the config repo.
func (c *Client) Problems(ctx context.Context, f view.Filter, limit int) ([]fleet.Problem, error) {
	return all[fleet.Problem](ctx, c, "problems", f, limit)
}

// Holds lists held changes.
func (c *Client) Holds(ctx context.Context, f view.Filter, limit int) ([]mirror.Hold, error) {
	return all[mirror.Hold](ctx, c, "holds", f, limit)
}

// Pulls lists pull requests, newest first.
func (c *Client) Pulls(ctx context.Context, f view.Filter, limit int) ([]view.Pull, error) {
	return all[view.Pull](ctx, c, "pulls", f, limit)
}

// Pull returns one pull request.
func (c *Client) Pull(ctx context.Context, number int) (view.Pull, error) {
	return one[view.Pull](ctx, c, "pulls", strconv.Itoa(number))
}

// PullPlan returns the plan that the reviewers of a pull request see.
func (c *Client) PullPlan(ctx context.Context, number int) (report.Report, error) {
	return one[report.Report](ctx, c, "pulls", strconv.Itoa(number), "plan")
}

// Tokens lists tokens without their plaintext.
func (c *Client) Tokens(ctx context.Context) ([]view.Token, error) {
	return all[view.Token](ctx, c, "tokens", view.Filter{}, 0)
}

// Stops lists the stops in force.
func (c *Client) Stops(ctx context.Context) ([]mirror.Stop, error) {
	page, err := one[wire.List[mirror.Stop]](ctx, c, "stops")
	return page.Items, err
}

// Tenant returns one tenant.
func (c *Client) Tenant(ctx context.Context, name fleet.TenantName) (view.Tenant, error) {
	return one[view.Tenant](ctx, c, "tenants", string(name))
}

// Environment returns one environment.
func (c *Client) Environment(ctx context.Context, id fleet.EnvironmentID) (view.Environment,
	error) {
	return one[view.Environment](ctx, c, "tenants", string(id.Tenant), "environments",
		string(id.Name))
}

// Deployment returns one deployment.
func (c *Client) Deployment(ctx context.Context, id fleet.DeploymentID) (view.Deployment,
	error) {
	return one[view.Deployment](ctx, c, "tenants", string(id.Tenant), "deployments",
		string(id.Name))
}

// Application returns one Application.
func (c *Client) Application(ctx context.Context, id fleet.ApplicationID) (view.Application,
	error) {
	return one[view.Application](ctx, c, "tenants", string(id.Tenant), "applications",
		string(id.Deployment), string(id.Environment))
}

// Engine returns one engine.
func (c *Client) Engine(ctx context.Context, name fleet.EngineName) (view.Engine, error) {
	return one[view.Engine](ctx, c, "engines", string(name))
}

// Operation returns one operation.
func (c *Client) Operation(ctx context.Context, id string) (mirror.Operation, error) {
	return one[mirror.Operation](ctx, c, "operations", id)
}

// Revision returns one recorded commit.
func (c *Client) Revision(ctx context.Context, revision fleet.Revision) (view.Revision,
	error) {
	return one[view.Revision](ctx, c, "revisions", string(revision))
}

// Explain returns the placement of one environment.
func (c *Client) Explain(ctx context.Context, id fleet.EnvironmentID) (fleet.Placement, error) {
	return one[fleet.Placement](ctx, c, "tenants", string(id.Tenant), "environments",
		string(id.Name), "placement")
}

// Source returns the state of the config repo.
func (c *Client) Source(ctx context.Context) (view.Source, error) {
	return one[view.Source](ctx, c, "source")
}

// WhoAmI returns the token's identity.
func (c *Client) WhoAmI(ctx context.Context) (wire.Identity, error) {
	return one[wire.Identity](ctx, c, "whoami")
}

// Approve releases the changes that a revision holds.
func (c *Client) Approve(ctx context.Context, a wire.ApproveRequest) (out wire.Approved,
	err error) {
	err = c.do(ctx, http.MethodPost, path("approve"), nil, a, &out)
	return out, err
}

// Stop forbids writes within a scope and returns the stop in force there.
func (c *Client) Stop(ctx context.Context, s wire.StopRequest) (out mirror.Stop, err error) {
	err = c.do(ctx, http.MethodPost, path("stop"), nil, s, &out)
	return out, err
}

// Resume ends a stop.
func (c *Client) Resume(ctx context.Context, r wire.ResumeRequest) (out wire.Resumed, err error) {
	err = c.do(ctx, http.MethodPost, path("resume"), nil, r, &out)
	return out, err
}

// CreateToken creates a token; only its answer ever contains the plaintext.
func (c *Client) CreateToken(ctx context.Context, t wire.TokenRequest) (out wire.CreatedToken,
	err error) {
	err = c.do(ctx, http.MethodPost, path("tokens"), nil, t, &out)
	return out, err
}

// RevokeToken ends a token at once.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, path("tokens", id), nil, nil, nil)
}

// Agents lists agents, including those that are only declared.
func (c *Client) Agents(ctx context.Context, f view.Filter, limit int) ([]view.Agent, error) {
	return all[view.Agent](ctx, c, "agents", f, limit)
}

// Agent returns one agent, by its engine.
func (c *Client) Agent(ctx context.Context, engine fleet.EngineName) (view.Agent, error) {
	return one[view.Agent](ctx, c, "agents", string(engine))
}

// RevokeAgent ends an agent's identity.
func (c *Client) RevokeAgent(ctx context.Context, engine fleet.EngineName) error {
	return c.do(ctx, http.MethodDelete, path("agents", string(engine)), nil, nil, nil)
}

// AgentTokens lists registration tokens without their plaintext, newest first.
func (c *Client) AgentTokens(ctx context.Context, f view.Filter, limit int) ([]registry.Token,
	error) {
	return all[registry.Token](ctx, c, "agent-tokens", f, limit)
}

// CreateAgentToken creates a registration token; only its answer ever contains the plaintext.
func (c *Client) CreateAgentToken(ctx context.Context,
	t wire.AgentTokenRequest) (out wire.CreatedAgentToken, err error) {
	err = c.do(ctx, http.MethodPost, path("agent-tokens"), nil, t, &out)
	return out, err
}

// RevokeAgentToken ends a registration token.
func (c *Client) RevokeAgentToken(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, path("agent-tokens", id), nil, nil, nil)
}

// OwnApplications lists the Applications of autonomous clusters' own people.
func (c *Client) OwnApplications(ctx context.Context, f view.Filter, limit int) ([]view.Own,
	error) {
	return all[view.Own](ctx, c, "own-applications", f, limit)
}

// SyncOwn asks an autonomous cluster to sync one of its own Applications.
func (c *Client) SyncOwn(ctx context.Context, environment fleet.EnvironmentID, namespace,
	name string, ask wire.OwnSyncRequest) (out wire.Asked, err error) {
	err = c.do(ctx, http.MethodPost, path("tenants", string(environment.Tenant), "environments",
		string(environment.Name), "own-applications", namespace, name, "sync"), nil, ask, &out)
	return out, err
}
