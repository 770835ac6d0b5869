package plan

import (
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
)

// A deployment reads a second repository: the AppProject permits it, its credential goes to the
// engine, and both leave with the last source that reads it. A SyncRun has a revision for each
// source, and its hold ends when one of the target revisions changes.
func TestADeploymentOfSeveralSources(t *testing.T) {
	const web = "tenants/acme/deployments/checkout.yaml"
	h := newHouse(t)
	files := small().with("tenants/acme/credentials/values.yaml",
		credentialFile("values", "acme/values"))
	h.apply(files)
	several := severalSources(files[web], "acme/values")
	p := h.apply(h.files.with(web, several))
	if got := actions(p); !strings.Contains(got, "update Application checkout@prod") ||
		!strings.Contains(got, "create Repository") {
		t.Errorf("rows: %s", got)
	}
	engine := h.engineOf("acme", "prod")
	if repos := h.project("acme", engine).SourceRepos; !slices.Contains(repos,
		"https://git.example.com/acme/values") {
		t.Errorf("the project permits %v", repos)
	}
	h.restart()

	p = h.apply(h.files.with("tenants/acme/syncs/back.yaml", syncFile("back",
		"deployment: checkout, environments: [prod], revisions: [v0, v7], hold: true")))
	if len(p.Syncs) != 1 || p.Syncs[0].Revision != "v0,v7" ||
		!strings.HasPrefix(p.Syncs[0].ID, "acme/back/checkout@prod:") ||
		strings.Contains(p.Syncs[0].ID, "v0") || len(p.SyncHolds) != 1 {
		t.Fatalf("%+v %+v", p.Syncs, p.SyncHolds)
	}
	h.restart()
	p = h.apply(h.files.with(web, strings.Replace(several, "targetRevision: main",
		"targetRevision: next", 1)))
	if len(p.EndedSyncHolds) != 1 {
		t.Errorf("another target revision of the second source leaves the hold: %+v", p)
	}

	p = h.apply(h.files.with(web, files[web]))
	if got := actions(p); !strings.Contains(got, "delete Repository") {
		t.Errorf("rows: %s", got)
	}
	if repos := h.project("acme", engine).SourceRepos; slices.Contains(repos,
		"https://git.example.com/acme/values") {
		t.Errorf("the project still permits %v", repos)
	}
}

// An Argo CD before 3.1 takes an artifact for a Git repository. The rejected deployment comes in
// after an upgrade, or with an environment on another engine.
func TestAnArtifactForAnOldArgoCDIsRejected(t *testing.T) {
	const path, grant = "tenants/acme/deployments/checkout.yaml", "fleet/tenants/acme.yaml"
	before := oneEngine()
	before[grant] = strings.Replace(tenantFile("acme",
		"  allow: {artifacts: [\"oci://git.example.com/acme/\"]}\n"), "repositories: [",
		"repositories: [\"oci://git.example.com/acme/\", ", 1)
	after := before.edit(path, "https://git.example.com/acme/checkout",
		"oci://git.example.com/acme/checkout")
	with := func(version string, upgraded bool) func(*Request) {
		return func(r *Request) {
			r.Upgraded = upgraded
			if version != "" {
				r.ArgoCD = map[fleet.EngineName]string{"eu-1": version, "eu-2": "v3.5.7"}
			}
		}
	}
	for version, rejected := range map[string]bool{
		"v2.14.21": true, "v3.0.11": true, "v3.1.0": false, "v3.5.7": false, "": false,
		"latest": false,
	} {
		h := newHouse(t)
		h.apply(before)
		p := h.apply(after, with(version, false))
		if got := len(p.Problems) == 1 && p.Counts.Changed == 0; got != rejected {
			t.Errorf("%q: %v\n%s", version, p.Problems, actions(p))
		}
		if !rejected {
			continue
		}
		problem := p.Problems[0]
		if problem.Path != path || problem.Field != "spec.source.repoURL" ||
			problem.Code != catalog.CodeArtifact || !strings.Contains(problem.Message, version) ||
			!strings.Contains(problem.Message, "engine eu-1") ||
			!strings.Contains(problem.Fix, "3.1 or later") {
			t.Errorf("%+v", problem)
		}
		h.restart()
		if p = h.again(with(version, true)); len(p.Rows) != 0 {
			t.Errorf("another engine's upgrade lets it in\n%s", actions(p))
		}
		if p = h.again(with("v3.5.7", true)); len(p.Rows) == 0 ||
			len(h.w.state.Catalog.RejectedArtifacts()) != 0 {
			t.Errorf("an upgrade does not let it in: %v\n%s", p.Problems, actions(p))
		}
	}
}

// The renderer learns whether the platform trusts an Application's artifact. Without the trust, the
// deployment keeps its last good state.
func TestAnArtifactIsRenderedAsTheTenantIsTrusted(t *testing.T) {
	const web, grant = "tenants/acme/deployments/checkout.yaml", "fleet/tenants/acme.yaml"
	h := newHouse(t)
	files := small()
	files[web] = strings.Replace(files[web], "https://git.example.com/acme/checkout",
		"oci://git.example.com/acme/checkout", 1)
	files[grant] = strings.Replace(tenantFile("acme",
		"  allow: {artifacts: [\"oci://git.example.com/acme/\"]}\n"), "repositories: [",
		"repositories: [\"oci://git.example.com/acme/\", ", 1)
	p := h.apply(files)
	trusted := 0
	for _, c := range p.Rows {
		if c.Row.Key.Kind != fleet.ObjectApplication {
			continue
		}
		if a := renderedOf(t, c.Row.Manifest); a.TrustedArtifacts {
			trusted++
		} else if a.ID.Deployment == "checkout" {
			t.Errorf("%s is not trusted", a.ID)
		}
	}
	if trusted != 2 {
		t.Errorf("%d Applications have trusted artifacts, want those of checkout", trusted)
	}
	p = h.apply(h.files.with(grant, strings.Replace(files[grant], "  allow: {artifacts: "+
		"[\"oci://git.example.com/acme/\"]}\n", "", 1)))
	if got := actions(p); got != "" || len(p.Problems) == 0 {
		t.Errorf("without the trust: rows %q, problems %v", got, p.Problems)
	}

	// the renderer refuses the artifacts, and neither the defaults nor others wait for that
	h.render.refuses = func(o fleet.Object) bool {
		return o.Application != nil && !o.Application.TrustedArtifacts &&
			o.Application.ID.Deployment == "checkout"
	}
	p = h.apply(h.files.with("tenants/acme/defaults.yaml",
		defaultsFile("  sync: {mode: manual}\n")))
	if got := actions(p); !strings.Contains(got, "update Application cart@prod") ||
		strings.Contains(got, "checkout") {
		t.Errorf("with other defaults: rows %q, problems %v", got, p.Problems)
	}
}
