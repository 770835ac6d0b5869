package plan

import (
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
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
