package postgres_test

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

// ownOfEveryTenant gives each tenant one own Application on a cluster with the tenant's name.
const ownOfEveryTenant = `
	INSERT INTO own_applications (engine, namespace, name, tenant, tenant_uid, environment, epoch, uid, project, repo_url, path, target_revision, sync, health,
		synced_revision, operation_phase, operation_id, message, resources, observed_at)
	SELECT tenant || '.edge', 'argocd', 'own-of-' || tenant, tenant, uid, 'edge', 1, '', '', '', '', '', 'Synced', 'Healthy', '', '', '', '', 0, now() FROM tenants`

// edge is an environment that an agent serves.
func edge(tenant, name string, mode fleet.AgentMode) fleet.Declaration {
	d := environmentDeclaration(tenant, name)
	d.Environment.Cluster, d.Environment.Agent = nil, &fleet.AgentSpec{ArgoCDNamespace: "gitops",
		Mode: mode}
	return d
}

// behind is an Engine that an agent serves.
func behind(name string) fleet.Declaration {
	d := engineDeclaration(name)
	d.Engine.Connection.Agent = &fleet.AgentConnection{}
	return d
}

const acmeEdge fleet.EngineName = "acme.edge"

// agentKit is a store with clusters behind a firewall: acme.edge, acme.own (autonomous),
// globex.edge and the Engine far-1; two rows of each but the autonomous one, from one revision.
type agentKit struct {
	*postgres.Store
	t          testing.TB
	url        string
	reconciler mirror.Lease
	revisions  int
}

func newAgentKit(t testing.TB) *agentKit {
	t.Helper()
	return agentKitOn(t, newDatabase(t), func(url string) *postgres.Store { return open(t, url) })
}

func agentKitOn(t testing.TB, url string, open func(string) *postgres.Store) *agentKit {
	t.Helper()
	k := &agentKit{Store: open(url), t: t, url: url}
	k.reconciler = hold(t, k.Store, "reconciler")
	k.record(func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{tenantDeclaration("acme"), tenantDeclaration("globex"),
			engineDeclaration("eu-1"), behind("far-1"),
			edge("acme", "edge", ""), edge("acme", "own", fleet.AgentAutonomous),
			edge("globex", "edge", ""), environmentDeclaration("acme", "prod")}
		r.Rows = []mirror.Row{
			application("acme.edge", "acme", "a", "edge", "v1"), application("acme.edge", "acme",
				"b", "edge", "v1"),
			application("globex.edge", "globex", "a", "edge", "v1"),
			application("globex.edge", "globex", "b", "edge", "v1"),
			application("far-1", "acme", "a", "prod", "v1"), application("far-1", "globex", "a",
				"prod", "v1"),
			application("eu-1", "acme", "c", "prod", "v1"),
		}
	})
	return k
}

func (k *agentKit) record(fill func(*mirror.Record)) {
	k.t.Helper()
	k.revisions++
	must(k.Plans.Record(k.t.Context(), k.reconciler, step(k.revisions-1, k.revisions, fill)))(k.t)
}

// keys are the keys of an agent, derived from a word.
func keys(word string) registry.Keys {
	sign, seal := sha256.Sum256([]byte("sign "+word)), sha256.Sum256([]byte("seal "+word))
	return registry.Keys{Sign: sign[:], Seal: seal[:]}
}

// token creates a registration token for "tenant.environment", or an Engine.
func (k *agentKit) token(engine fleet.EngineName) (registry.Token, string) {
	k.t.Helper()
	made, plaintext, err := k.Agents.CreateAgentToken(k.t.Context(), tokenFor(engine), "")
	check(k.t, err)
	return made, plaintext
}

func tokenFor(engine fleet.EngineName) registry.Token {
	t := registry.Token{Engine: engine, CreatedBy: "ann", ExpiresAt: time.Now().Add(time.Hour)}
	if engine.OfEnvironment() {
		var tenant, name string
		for i, c := range string(engine) {
			if c == '.' {
				tenant, name = string(engine)[:i], string(engine)[i+1:]
			}
		}
		t.Tenant, t.Environment = fleet.TenantName(tenant), fleet.EnvironmentName(name)
	}
	return t
}

// join joins an agent to an engine with the keys of a word.
func (k *agentKit) join(engine fleet.EngineName, word string) registry.Agent {
	k.t.Helper()
	_, plaintext := k.token(engine)
	return must(k.Agents.JoinAgent(k.t.Context(), plaintext, registry.Join{
		Keys: keys(word), ClusterUID: "uid-" + word, Version: "v1.0.0"}))(k.t)
}

func session(a registry.Agent, instance string) registry.Session {
	return withNewProof(registry.Session{Agent: a.ID, Instance: instance, Replica: "hub-1",
		Version: "v1.1.0"})
}

// withNewProof returns the session with a new proof.
func withNewProof(s registry.Session) registry.Session {
	s.Proof = rand.Text()
	return s
}

func (k *agentKit) open(a registry.Agent, instance string) registry.Opening {
	k.t.Helper()
	return must(k.Agents.OpenAgent(k.t.Context(), session(a, instance)))(k.t)
}

// beat makes the replicas count as running that agents are connected to.
func (k *agentKit) beat() {
	k.exec(`INSERT INTO replicas SELECT DISTINCT connected_to, now() FROM agents WHERE connected_to <> ''
		ON CONFLICT (replica) DO UPDATE SET beat_at = now()`)
}

// rows are the names of the Applications that an agent may read.
func (k *agentKit) rows(engine fleet.EngineName) []string {
	k.t.Helper()
	names := []string{}
	_, err := k.Agents.AgentRows(k.t.Context(), engine, func(r mirror.Row) error {
		names = append(names, fmt.Sprintf("%s/%s@%s %v", r.Tenant, r.Deployment, r.Environment,
			r.Unwanted))
		return nil
	})
	check(k.t, err)
	return names
}

func (k *agentKit) view(engine fleet.EngineName) view.Agent {
	k.t.Helper()
	all, _, err := k.Views.Agents(k.t.Context(), view.Scope{}, view.Filter{Engine: engine},
		view.Page{
			Limit: 10})
	check(k.t, err)
	if len(all) != 1 {
		k.t.Fatalf("agents of %s: %+v", engine, all)
	}
	return all[0]
}
