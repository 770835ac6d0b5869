package plan

import (
	"slices"
	"strings"
	"testing"
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
