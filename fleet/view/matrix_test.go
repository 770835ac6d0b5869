package view_test

import (
	"slices"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func runs(environment fleet.EnvironmentName, target, synced string,
	images ...string) view.Application {
	return view.Application{Tenant: "acme", Deployment: "checkout", Environment: environment,
		TargetRevision: target, SyncedRevision: synced, Images: images}
}

const commit = "0123456789abcdef0123456789abcdef01234567"

func TestVersionIsWhatPeopleKnowAnApplicationBy(t *testing.T) {
	t.Parallel()
	for want, a := range map[string]view.Application{
		"v1.4.2":       runs("prod", "main", commit, "envoy:v1", "ghcr.io/acme/checkout:v1.4.2"),
		"v2":           runs("prod", "main", commit, "localhost:5000/other:v2"),
		"0a1b2c3d4e5f": runs("prod", "main", commit, "checkout@sha256:0a1b2c3d4e5f6071"),
		"1.2.3":        runs("prod", "1.2.3", commit, "a:1", "b:2"),
		"01234567":     runs("prod", "main", commit),
		"fedcba98":     runs("prod", "fedcba9876543210fedcba9876543210fedcba98", ""),
		"main":         runs("prod", "main", ""),
	} {
		if got := view.RunningVersion(a); got != want {
			t.Errorf("%+v: %q, want %q", a, got, want)
		}
	}
}

func TestMatrixMarksWhatDiffers(t *testing.T) {
	t.Parallel()
	m := view.MatrixOf([]view.Deployment{{Tenant: "acme", Name: "checkout"},
		{Tenant: "acme", Name: "idle"}}, []view.Application{
		runs("prod-us", "v1", commit, "checkout:v1"), runs("prod-eu", "v1", commit, "checkout:v1"),
		runs("dev", "main", commit, "checkout:v2"), runs("zoo", "v1", commit, "checkout:v1")})
	want := []fleet.EnvironmentName{"dev", "prod-eu", "prod-us", "zoo"}
	if !slices.Equal(m.Environments, want) {
		t.Fatalf("columns %v, want %v", m.Environments, want)
	}
	row := m.Rows[0]
	if row.Usual != "v1" || !row.Versions[0].Unusual || row.Versions[1].Unusual {
		t.Errorf("%+v", row)
	}
	if !slices.Equal(row.Versions[1].Differs, []string{"version", "targetRevision", "images"}) ||
		row.Versions[2].Differs != nil || row.Versions[0].Differs != nil {
		t.Errorf("differences: %v, %v", row.Versions[1].Differs, row.Versions[2].Differs)
	}
	if idle := m.Rows[1]; idle.Usual != "" || len(idle.Versions) != 4 || idle.Versions[0] != nil {
		t.Errorf("a deployment without Applications: %+v", idle)
	}
}

// Without a majority no version is unusual.
func TestMatrixHasNoUsualVersionInATie(t *testing.T) {
	t.Parallel()
	m := view.MatrixOf([]view.Deployment{{Tenant: "acme", Name: "checkout"}}, []view.Application{
		runs("dev", "v2", ""), runs("prod", "v1", "")})
	if row := m.Rows[0]; row.Usual != "" || row.Versions[0].Unusual || row.Versions[1].Unusual {
		t.Errorf("%+v", row)
	}
}

func TestFacetsCountEachFieldUnderTheOtherFilters(t *testing.T) {
	t.Parallel()
	counted := []view.StateCount{
		{Tenant: "acme", Engine: "eu-1", Sync: mirror.SyncSynced, Health: mirror.HealthHealthy,
			Count: 5},
		{Tenant: "acme", Engine: "us-1", Sync: mirror.SyncSynced, Health: mirror.HealthDegraded,
			Count: 2},
		{Tenant: "globex", Engine: "eu-1", Sync: mirror.SyncOutOfSync,
			Health: mirror.HealthDegraded, Count: 1},
	}
	f := view.FacetsOf(counted, view.Filter{Health: mirror.HealthDegraded, Tenant: "acme"})
	if f.Total != 2 || !slices.Equal(f.Health, []view.Facet{{Value: "Healthy", Count: 5},
		{Value: "Degraded", Count: 2}}) || !slices.Equal(f.Tenants, []view.Facet{
		{Value: "acme", Count: 2}, {Value: "globex", Count: 1}}) ||
		!slices.Equal(f.Engines, []view.Facet{{Value: "us-1", Count: 2}}) {
		t.Errorf("%+v", f)
	}
}

func FuzzSplitImage(f *testing.F) {
	for _, image := range []string{"nginx", "nginx:1", "a:5000/b", "a/b:1@sha256:0a", "@", ":",
		"a@b"} {
		f.Add(image)
	}
	f.Fuzz(func(t *testing.T, image string) {
		repository, tag := view.SplitImage(image)
		if len(repository)+len(tag) > len(image) {
			t.Errorf("%q: %q, %q", image, repository, tag)
		}
	})
}
