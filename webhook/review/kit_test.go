package review

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/reconciler/plan"
)

var (
	noon   = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	base   = fleet.Revision("b0b0b0b0" + strings.Repeat("0", 32))
	head   = fleet.Revision("1a2b3c4d" + strings.Repeat("1", 32))
	merge  = fleet.Revision("abcdef12" + strings.Repeat("2", 32))
	older  = fleet.Revision("0de50de5" + strings.Repeat("3", 32))
	alice  = forge.Person{ID: 11, Login: "alice"}
	bob    = forge.Person{ID: 12, Login: "bob"}
	carol  = forge.Person{ID: 13, Login: "carol"}
	mallet = forge.Person{ID: 66, Login: "mallet"}
)

// tree is a config repo's files by path.
type tree map[string]string

func (t tree) with(path, text string) tree {
	out := maps.Clone(t)
	out[path] = text
	return out
}

func (t tree) edit(path, old, with string) tree {
	if !strings.Contains(t[path], old) {
		panic(path + " does not hold " + old)
	}
	return t.with(path, strings.Replace(t[path], old, with, 1))
}

func (t tree) without(prefix string) tree {
	out := maps.Clone(t)
	maps.DeleteFunc(out, func(path, _ string) bool { return strings.HasPrefix(path, prefix) })
	return out
}

func yaml(kind, name, spec string) string {
	return fmt.Sprintf("apiVersion: argosy.dev/v1alpha1\nkind: %s\nmetadata: {name: %s}\nspec:\n%s",
		kind, name, spec)
}

func environmentFile(name, region string) string {
	return yaml("ManagedEnvironment", name, "  cluster: {server: \"https://"+name+"."+region+
		".example.com:6443\", credentialsRef: {name: "+name+"}}\n  namespaces: [app]\n  region: "+
		region+"\n")
}

func deploymentFile(name, tenant, version string, environments ...string) string {
	return yaml("GitOpsDeployment", name, "  source:\n    repoURL: https://git.example.com/"+tenant+
		"/"+name+"\n    path: deploy\n    targetRevision: "+version+
		"\n  destination:\n    environments: ["+strings.Join(environments, ", ")+
		"]\n    namespace: app\n")
}

func tenantFile(name string) string {
	return yaml("Tenant", name, "  owners: [\"github:"+name+
		"/leads\"]\n  quota: {environments: 5, deployments: 20, applications: 50}\n  "+
		"repositories: [\"https://git.example.com/"+name+
		"/\"]\n  clusters: [.example.com]\n  namespaces: [app]\n")
}

func engineFile(name, region string) string {
	return yaml("Engine", name, "  argocd: {namespace: argocd-"+name+", installationID: "+name+
		"}\n  connection: {kubeconfigRef: {name: "+name+"}}\n  region: "+region+
		"\n  capacity: {applications: 1500, environments: 100}\n")
}

// appliedFleet is applied before each pull request.
func appliedFleet() tree {
	return tree{
		"fleet/fleet.yaml": yaml("Fleet", "fleet",
			"  gitHosts: [git.example.com]\n"),
		"fleet/engines/eu-1.yaml":                engineFile("eu-1", "eu"),
		"fleet/engines/us-1.yaml":                engineFile("us-1", "us"),
		"fleet/tenants/acme.yaml":                tenantFile("acme"),
		"fleet/tenants/globex.yaml":              tenantFile("globex"),
		"tenants/acme/environments/prod.yaml":    environmentFile("prod", "eu"),
		"tenants/acme/environments/staging.yaml": environmentFile("staging", "eu"),
		"tenants/acme/deployments/checkout.yaml": deploymentFile("checkout", "acme", "v1.4.0",
			"prod", "staging"),
		"tenants/acme/deployments/cart.yaml":    deploymentFile("cart", "acme", "v2.0.0", "prod"),
		"tenants/globex/environments/prod.yaml": environmentFile("prod", "us"),
		"tenants/globex/deployments/web.yaml":   deploymentFile("web", "globex", "v7", "prod"),
		"tenants/globex/deployments/billing.yaml": deploymentFile("billing", "globex", "v3",
			"prod"),
	}
}

// ringFleet is appliedFleet with two rings, each of one engine, with these versions.
func ringFleet(canary, stable string) tree {
	t := appliedFleet()
	t["fleet/fleet.yaml"] += "  rings:\n"
	for _, r := range []struct{ ring, engine, version string }{
		{"canary", "eu-1", canary}, {"stable", "us-1", stable}} {
		t["fleet/fleet.yaml"] += "    - {name: " + r.ring + ", version: " + r.version +
			", soak: 24h, manifests: {directory: argocd/" + r.version + ", digest: \"" +
			ringDigest(r.version) + "\"}}\n"
		file := "fleet/engines/" + r.engine + ".yaml"
		t[file] = strings.NewReplacer("installationID:", "managed: true, installationID:",
			"  region:", "  ring: "+r.ring+"\n  region:").Replace(t[file])
	}
	return t
}

// ringDigest is a digest for the manifests of a version.
func ringDigest(version string) string {
	return "sha256:" + strings.Repeat("0", 64-len(version)) + strings.ReplaceAll(version, ".", "0")
}

// jobs lays n more deployments of acme over a tree.
func (t tree) jobs(n int) tree {
	out := maps.Clone(t)
	for i := range n {
		name := fmt.Sprintf("job-%02d", i+1)
		out["tenants/acme/deployments/"+name+".yaml"] = deploymentFile(name, "acme", "v1", "prod")
	}
	return out
}

func inputs(before, after tree) (in []catalog.Input, paths []string) {
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		text, is := after[path]
		if was, existed := before[path]; is && existed && text == was {
			continue
		}
		sum := sha1.Sum([]byte(text))
		doc := configschema.Decode(configschema.File{Path: path, Blob: hex.EncodeToString(sum[:]),
			Bytes: []byte(text)})
		i := catalog.Input{Key: doc.Key, Path: path, Blob: doc.Blob, Declaration: doc.Declaration,
			Problems: doc.Problems, Removed: !is}
		if !is {
			i.Declaration, i.Problems = nil, nil
		}
		in, paths = append(in, i), append(paths, path)
	}
	return in, paths
}

// planned is a pull request that turns one tree into another, as the loop would plan it.
func planned(t testing.TB, before, after tree) (Facts, *plan.Plan) {
	t.Helper()
	w := plan.NewAppliedState()
	files, _ := inputs(tree{}, before)
	p, err := w.Compute(plan.Request{Revision: base, Files: files, Now: noon.Add(-24 * time.Hour)},
		argocd.Renderer{})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Problems) > 0 {
		t.Fatal(p.Problems)
	}
	w.Commit(p)
	files, paths := inputs(before, after)
	p, err = w.Compute(plan.Request{Revision: head, Files: files, Now: noon, Explain: true},
		argocd.Renderer{})
	if err != nil {
		t.Fatal(err)
	}
	report, err := p.Report()
	if err != nil {
		t.Fatal(err)
	}
	quota := fleet.Quota{Environments: 5, Deployments: 20, Applications: 50}
	return Facts{
		Now: noon,
		Record: forge.PullRecord{Pull: forge.Pull{
			Number: 7, Title: "change", Author: alice, State: forge.PullOpen, Base: "main",
			Head: head, URL: "https://forge.example.com/acme/config/pulls/7"}},
		Base: base, Files: paths, Problems: report.Problems, Plan: &report,
		Owned: []Owned{
			{Tenant: "", Owners: []Owner{{Name: "github:platform", People: []forge.Person{carol}}}},
			{Tenant: "acme", Quota: &quota, Owners: []Owner{
				{Name: "github:acme/leads", People: []forge.Person{alice, bob}},
				{Name: "group:acme"}}},
			{Tenant: "globex", Quota: &quota, Owners: []Owner{
				{Name: "github:gina", People: []forge.Person{{ID: 21, Login: "gina"}}}}},
		},
		Engines: map[fleet.EngineName]Engine{"eu-1": {State: fleet.EngineActive, Reachable: true},
			"us-1": {State: fleet.EngineActive, Reachable: true}},
		Link: "https://argosy.example.com/pulls/7",
	}, p
}

// bump is the pull request that most of them are: one deployment's version in one file.
func bump(t testing.TB) (Facts, *plan.Plan) {
	before := appliedFleet()
	return planned(t, before, before.edit("tenants/acme/deployments/checkout.yaml", "v1.4.0",
		"v1.5.0"))
}

// inFreeze is bump during a freeze of acme.
func inFreeze(t testing.TB) (Facts, *plan.Plan) {
	before := appliedFleet()
	before["fleet/tenants/acme.yaml"] += "  freezes: [{name: noon, schedule: \"0 11 * * *\", " +
		"duration: 3h, reason: lunch}]\n"
	return planned(t, before, before.edit("tenants/acme/deployments/checkout.yaml", "v1.4.0",
		"v1.5.0"))
}

// purge is a pull request whose deletions the guards hold.
func purge(t testing.TB) (Facts, *plan.Plan) {
	before := appliedFleet().jobs(12)
	return planned(t, before, before.without("tenants/acme/deployments/job-"))
}

func approval(p forge.Person, at time.Time) forge.Review {
	return forge.Review{Author: p, State: forge.ReviewApproved, Head: head, At: at}
}

func find(t testing.TB, v Verdict, name string) forge.Check {
	t.Helper()
	i := slices.IndexFunc(v.Checks, func(c forge.Check) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no check %s in %v", name, v.Checks)
	}
	return v.Checks[i]
}
