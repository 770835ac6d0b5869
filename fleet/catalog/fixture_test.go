package catalog

import (
	"crypto/sha1"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

// edit changes a declaration that a test makes.
type edit func(*fleet.Declaration)

func declare(d fleet.Declaration, edits ...edit) Input {
	for _, e := range edits {
		e(&d)
	}
	d.Path = pathOf(d.Key)
	if d.Blob == "" {
		d.Blob = text(&d)
	}
	return Input{Key: d.Key, Path: d.Path, Blob: d.Blob, Declaration: &d}
}

// text is the content of a file: equal declarations have equal blobs.
func text(d *fleet.Declaration) string {
	b, err := json.Marshal(d)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("%x", sha1.Sum(b))
}

func pathOf(k fleet.Key) string {
	folder := map[fleet.Kind]string{
		fleet.KindEngine: "fleet/engines/", fleet.KindTenant: "fleet/tenants/",
		fleet.KindCluster:              "fleet/clusters/",
		fleet.KindManagedEnvironment:   "environments/",
		fleet.KindGitOpsDeployment:     "deployments/",
		fleet.KindGitOpsDeploymentSet:  "sets/",
		fleet.KindRepositoryCredential: "credentials/",
		fleet.KindSyncRun:              "syncs/"}[k.Kind]
	switch {
	case k.Kind == fleet.KindFleet:
		return "fleet/" + k.Name + ".yaml"
	case k.Kind == fleet.KindSealedSecret:
		return "tenants/" + string(k.Tenant) + "/" + k.Name + ".sops.yaml"
	case k.Tenant != "":
		return "tenants/" + string(k.Tenant) + "/" + folder + k.Name + ".yaml"
	}
	return folder + k.Name + ".yaml"
}

func theFleet(edits ...edit) Input {
	return declare(
		fleet.Declaration{
			Key: fleetKey(), Fleet: &fleet.FleetSpec{GitHosts: []string{"git.example.com"}}},
		edits...)
}

func engine(name string, edits ...edit) Input {
	return declare(
		fleet.Declaration{Key: engineKey(fleet.EngineName(name)), Engine: &fleet.EngineSpec{
			Region:     "eu",
			ArgoCD:     fleet.ArgoCDInstance{Namespace: "argocd-" + name, InstallationID: name},
			Connection: fleet.Connection{InCluster: true}}}, edits...)
}

func tenant(name string, edits ...edit) Input {
	return declare(
		fleet.Declaration{Key: tenantKey(fleet.TenantName(name)), Tenant: &fleet.TenantSpec{
			Owners:       []string{"group:" + name},
			Quota:        fleet.Quota{Environments: 10, Deployments: 10, Applications: 50},
			Repositories: []string{"https://git.example.com/" + name + "/"},
			Clusters:     []string{".example.com", "https://127.0.0.1:6443"}, Namespaces: []string{
				"web", "shop", "cart", "plc", "api", "argocd-"}}}, edits...)
}

// named splits "tenant/name".
func named(id string) (fleet.TenantName, string) {
	t, n, _ := strings.Cut(id, "/")
	return fleet.TenantName(t), n
}

func environment(id string, edits ...edit) Input {
	t, n := named(id)
	return declare(
		fleet.Declaration{
			Key:    environmentKey(fleet.EnvironmentID{Tenant: t, Name: fleet.EnvironmentName(n)}),
			Labels: map[string]string{"tier": "prod"},
			Environment: &fleet.EnvironmentSpec{
				Cluster: &fleet.ClusterSpec{
					Server:         "https://" + n + "." + string(t) + ".example.com",
					CredentialsRef: fleet.SecretRef{Name: n}},
				Namespaces: []string{"web", "shop"}, Region: "eu"}}, edits...)
}

// behindAgent gives an environment an agent.
func behindAgent(mode fleet.AgentMode) edit {
	return func(d *fleet.Declaration) {
		d.Environment.Cluster, d.Environment.Agent = nil, &fleet.AgentSpec{Mode: mode}
	}
}

func deployment(id string, environments ...fleet.EnvironmentName) Input {
	return deploymentWith(id, func(d *fleet.Declaration) {
		d.Deployment.Destination.Environments = environments
	})
}

func deploymentWith(id string, edits ...edit) Input {
	t, n := named(id)
	return declare(
		fleet.Declaration{
			Key: deploymentKey(fleet.DeploymentID{Tenant: t, Name: fleet.DeploymentName(n)}),
			Deployment: &fleet.DeploymentSpec{
				Source: fleet.Source{RepoURL: "https://git.example.com/" + string(t) + "/" + n,
					Path: "deploy", TargetRevision: "main"},
				Destination: fleet.Destinations{Namespace: "web"}}}, edits...)
}

// setOf is a set of deployments; each input is one that has or would have a file of its own.
func setOf(id string, deployments ...Input) Input {
	t, n := named(id)
	k := fleet.SetKey(t, n)
	spec := &fleet.SetSpec{}
	for _, i := range deployments {
		g := fleet.Generated{Name: fleet.DeploymentName(i.Key.Name), Problems: i.Problems}
		if i.Declaration != nil {
			d := *i.Declaration
			d.Path, d.Blob = pathOf(k), ""
			g.Declaration = &d
		}
		blob, err := g.Hash()
		if err != nil {
			panic(err)
		}
		if g.Blob = blob; g.Declaration != nil {
			g.Declaration.Blob = blob
		}
		spec.Generated = append(spec.Generated, g)
	}
	slices.SortFunc(spec.Generated, func(a, b fleet.Generated) int {
		return strings.Compare(string(a.Name), string(b.Name))
	})
	return declare(fleet.Declaration{Key: k, Set: spec})
}

func selector(k, v string) edit {
	return func(d *fleet.Declaration) {
		d.Deployment.Destination.EnvironmentSelector = &fleet.LabelSelector{
			MatchLabels: map[string]string{k: v}}
	}
}

func credential(id, repo string) Input {
	t, n := named(id)
	return declare(
		fleet.Declaration{
			Key: credentialKey(fleet.CredentialID{Tenant: t, Name: fleet.CredentialName(n)}),
			Credential: &fleet.CredentialSpec{
				RepoURL: repo, CredentialsRef: fleet.SecretRef{Name: n}}})
}

func syncRun(id, deployment, revision string, environments ...fleet.EnvironmentName) Input {
	t, n := named(id)
	return declare(
		fleet.Declaration{Key: syncRunKey(fleet.SyncRunID{Tenant: t, Name: fleet.SyncRunName(n)}),
			SyncRun: &fleet.SyncRunSpec{
				Deployment: fleet.DeploymentName(deployment), Revision: revision,
				Environments: environments}})
}

func tenantDefaults(t fleet.TenantName, d fleet.Defaults) Input {
	return declare(fleet.Declaration{Key: DefaultsKey(t), Defaults: &d})
}

func sealed(id string) Input {
	t, n := named(id)
	folder, name, _ := strings.Cut(n, "/")
	return declare(
		fleet.Declaration{Key: SealedKey(t, folder, name), Sealed: &fleet.SealedSpec{
			Folder: folder}})
}

func gone(i Input) Input {
	return Input{Key: i.Key, Path: i.Path, Removed: true}
}

// broken is a file that does not decode.
func broken(i Input) Input {
	return Input{Key: i.Key, Path: i.Path, Blob: "broken " + i.Blob, Problems: []fleet.Problem{
		{Key: i.Key, Path: i.Path, Line: 3, Severity: fleet.SeverityError,
			Code: "syntax", Message: "not YAML"}}}
}

// acme is a small fleet that is all good.
func acme() []Input {
	return []Input{theFleet(), engine("eu-1"), tenant("acme"), environment("acme/prod"),
		environment("acme/staging", label("tier", "test")),
		deployment("acme/shop", "prod", "staging")}
}

func label(k, v string) edit {
	return func(d *fleet.Declaration) { d.Labels = map[string]string{k: v} }
}

// good commits inputs that must all be good and gives no warning.
func good(t *testing.T, c *Catalog, in ...Input) *Changeset {
	t.Helper()
	s := c.Prepare(in)
	for _, p := range s.Problems() {
		t.Errorf("unexpected: %v", p)
	}
	commit(t, c, s)
	return s
}

// commit commits, and checks every count and index of the catalog against its entries.
func commit(t *testing.T, c *Catalog, s *Changeset) {
	t.Helper()
	s.Commit()
	consistent(t, c)
}

func codes(problems []fleet.Problem) string {
	var cs []string
	for _, p := range problems {
		s := p.Key.String() + " " + p.Field + " " + p.Code
		cs = append(cs, strings.ReplaceAll(s, "  ", " "))
	}
	slices.Sort(cs)
	return strings.Join(cs, "; ")
}

func keys(cs []Change) string {
	var ks []string
	for _, c := range cs {
		sign := "~"
		if c.Before == nil {
			sign = "+"
		} else if c.After == nil {
			sign = "-"
		}
		ks = append(ks, sign+c.Key.String())
	}
	return strings.Join(ks, "; ")
}

// consistent compares the incremental index, use and counts with those built from nothing.
func consistent(t *testing.T, c *Catalog) {
	t.Helper()
	if err := c.inconsistency(); err != "" {
		t.Fatal(err)
	}
}

func (c *Catalog) inconsistency() string {
	fresh := newState()
	for k, e := range c.st.entries.all() {
		fresh.put(k, e)
	}
	fresh.recount()
	switch {
	case fresh.effective != c.st.effective || fresh.quarantined != c.st.quarantined:
		return fmt.Sprintf("counts are %d and %d, want %d and %d", c.st.effective, c.st.quarantined,
			fresh.effective, fresh.quarantined)
	case len(fresh.index.sets) != len(c.st.index.sets):
		return fmt.Sprintf("the index has %d terms, want %d", len(c.st.index.sets),
			len(fresh.index.sets))
	}
	for term := range fresh.index.sets {
		if got, want := c.st.index.list(term), fresh.index.list(term); !slices.Equal(got, want) {
			return fmt.Sprintf("index of %+v is %v, want %v", term, got, want)
		}
	}
	for k := range c.st.entries.all() {
		if got, want := c.st.usedBy(k.Tenant), fresh.usedBy(k.Tenant); got != want {
			return fmt.Sprintf("use of %s is %+v, want %+v", k.Tenant, got, want)
		}
	}
	for _, e := range c.Effective() {
		if e.Deployment == nil {
			continue
		}
		for _, n := range e.Deployment.Destination.Environments {
			env := c.Environment(fleet.EnvironmentID{Tenant: e.Key.Tenant, Name: n})
			if env == nil || env.Environment.Agent.Autonomous() ||
				!lists(env, e) {
				return fmt.Sprintf(
					"%s goes to %s, which is not there, is autonomous or lacks its namespace",
					e.Key, n)
			}
		}
		for _, id := range c.Targets(deploymentID(e.Key)) {
			if _, bad := e.TargetIn(c.Environment(id), c.Defaults(id.Tenant)); len(bad) > 0 {
				return fmt.Sprintf("%s has no valid %s in %s: %v", e.Key, bad[0].Field, id,
					bad[0].Err)
			}
		}
	}
	return ""
}
