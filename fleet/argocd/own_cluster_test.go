package argocd

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// ownCluster connects to an environment's own cluster like its agent: without an installationID.
func ownCluster(t *testing.T, data map[string]any) *Engine {
	t.Helper()
	c := apiServer(t)
	namespace := space(t, c)
	settings(t, c, namespace, data)
	e, err := Connect(ownEngine, fleet.AgentSpec{ArgoCDNamespace: namespace}.Engine(
		"acme", "eu"), c.REST(), Options{Stopped: func(fleet.TenantName) bool { return false }})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestTheArgoCDOfAnOwnClusterKeepsItsSettings(t *testing.T) {
	for name, tc := range map[string]struct {
		data map[string]any
		want []string
	}{
		"as installed":                 {map[string]any{}, nil},
		"an installationID of its own": {map[string]any{"installationID": "plant-7"}, nil},
		"tracking by label": {
			map[string]any{"application.resourceTrackingMethod": "label"}, []string{"tracking"}},
		"its own cluster is allowed": {map[string]any{"cluster.inClusterEnabled": "true"},
			nil},
		"it is kept from its own cluster": {map[string]any{"cluster.inClusterEnabled": "false"},
			[]string{"in-cluster blocks"}},
		"and by label, so that both are reported": {
			map[string]any{"cluster.inClusterEnabled": "false",
				"application.resourceTrackingMethod": "label"},
			[]string{"tracking", "in-cluster blocks"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := ownCluster(t, tc.data)
			report, err := e.Preflight(t.Context())
			if err != nil || !slices.Equal(codes(report), tc.want) {
				t.Fatalf("findings are %v, %v, want %v", codes(report), err, tc.want)
			}
			blocks := slices.ContainsFunc(report.Findings, func(f engine.Finding) bool {
				return f.Blocks
			})
			_, err = e.Apply(t.Context(), rowOf(t, ownProject(), 1), fleet.Secret{}, mirror.Lease{
				Epoch: 1})
			if errors.Is(err, engine.ErrUnfit) != blocks {
				t.Errorf("a write gives %v", err)
			}
		})
	}
}

// An own cluster has no cluster Secret, and Argo CD deletes the workload without one.
func TestAnApplicationOfAnOwnClusterIsDeletedWithItsWorkload(t *testing.T) {
	e := ownCluster(t, map[string]any{})
	if _, err := e.Preflight(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, ended := t.Context(), make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.Watch(ctx, engine.Sink{Observe: func([]mirror.Observation) {},
			Wake: func([]fleet.ObjectKey) {}})
	}()
	t.Cleanup(func() { <-ended })
	waitUntil(t, e.Synced)
	project, app, lease := rowOf(t, ownProject(), 1), rowOf(t, ownApplication(), 2), mirror.Lease{
		Epoch: 1}
	for _, row := range []mirror.Row{project, app} {
		if out, err := e.Apply(t.Context(), row, fleet.Secret{}, lease); err != nil ||
			out.State != mirror.ApplyApplied {
			t.Fatalf("%s: %+v, %v", row.Key.Kind, out, err)
		}
	}
	if done, err := e.Delete(t.Context(), app, lease); done || err != nil {
		t.Fatalf("it is done %v, %v", done, err)
	}
	o, err := e.read(t.Context(), app.Key)
	if err != nil || o == nil || o.Metadata.DeletionTimestamp == nil ||
		!slices.Contains(o.Metadata.Finalizers, cascadeFinalizer) {
		t.Fatalf("it is deleted without its workload: %+v, %v", o, err)
	}
	if _, err := e.Delete(t.Context(), project, lease); !errors.Is(err, engine.ErrInUse) ||
		!strings.HasSuffix(err.Error(), "still in use by Applications: "+app.Key.Name) {
		t.Errorf("its project is deleted before it: %v", err)
	}
}

func waitUntil(t *testing.T, ok func() bool) {
	t.Helper()
	deadline, tick := time.After(2*time.Minute), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatal("not in time")
		case <-tick.C:
		}
	}
}
