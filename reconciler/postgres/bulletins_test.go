package postgres_test

import (
	"fmt"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func TestBulletinsNameTheEnginesThatLackARelease(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	must(s.Plans.Record(t.Context(), hold(t, s, "reconciler"), step(0, 1, func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{engineDeclaration("eu-1"), engineDeclaration("eu-2"),
			engineDeclaration("eu-3"), {
				Key:  fleet.Key{Kind: fleet.KindFleet, Name: "fleet"},
				Path: "fleet/fleet.yaml", Blob: "f",
				Fleet: &fleet.FleetSpec{Bulletins: []fleet.Bulletin{
					{Name: "CVE-2026-2", Severity: "High", FixedIn: []string{"3.5.8"}},
					{Name: "CVE-2026-1", Severity: "Low", FixedIn: []string{"3.5.2"}}}}}}
	})))(t)
	for engine, version := range map[fleet.EngineName]string{"eu-1": "v3.5.7+abc",
		"eu-2": "v3.5.8"} {
		lease := hold(t, s, "engine/"+string(engine))
		check(t, s.Work.ReportEngine(t.Context(), lease, mirror.EngineReport{Engine: engine,
			Reachable: true, ArgoCD: version}))
	}
	list := func(scope view.Scope, name string) string {
		got, next, err := s.Views.Bulletins(t.Context(), scope, view.Filter{Name: name},
			view.Page{Limit: 1})
		check(t, err)
		out := next
		for _, b := range got {
			out += fmt.Sprintf("%s %v %v; ", b.Name, b.Lacking, b.Unknown)
		}
		return out
	}
	for _, c := range []struct {
		scope      view.Scope
		name, want string
	}{
		{view.Scope{}, "", "CVE-2026-2 [{eu-1 v3.5.7+abc}] [eu-3]; CVE-2026-1 [] [eu-3]; "},
		{view.Scope{}, "CVE-2026-1", "CVE-2026-1 [] [eu-3]; "},
		{view.Scope{}, "CVE-2026-3", ""},
		{view.Scope{Tenant: "acme"}, "", ""},
	} {
		if got := list(c.scope, c.name); got != c.want {
			t.Errorf("%v %q: %q, want %q", c.scope, c.name, got, c.want)
		}
	}
}
