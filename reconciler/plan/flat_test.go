package plan

import (
	"fmt"
	"runtime"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/engine"
)

// big is an AppliedState of n deployments in one environment each: a hundred for each tenant, in
// five environments, on four engines.
func big(t testing.TB, n int) *AppliedState {
	t.Helper()
	w := NewAppliedState()
	p, err := w.Compute(Request{Revision: revision(1), Files: bigFiles(n)}, &jsonRenderer{})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Quarantined) > 0 || p.Counts.Created != n {
		t.Fatalf("%d of %d are created, %d are bad: %v", p.Counts.Created, n, len(p.Quarantined),
			p.Problems[:1])
	}
	w.Commit(p)
	return w
}

func bigFiles(n int) []catalog.Input {
	in := []catalog.Input{
		declared(
			fleet.Declaration{Key: fleet.Key{Kind: fleet.KindFleet, Name: "fleet"},
				Fleet: &fleet.FleetSpec{GitHosts: []string{"git.example.com"}}})}
	for e := range 4 {
		name := fmt.Sprintf("eu-%d", e)
		in = append(
			in,
			declared(
				fleet.Declaration{Key: fleet.Key{Kind: fleet.KindEngine, Name: name},
					Engine: &fleet.EngineSpec{
						ArgoCD: fleet.ArgoCDInstance{
							Namespace: "argocd-" + name, InstallationID: name},
						Connection: fleet.Connection{KubeconfigRef: &fleet.SecretRef{Name: name}},
						Region:     "eu", Capacity: fleet.Capacity{
							Applications: n + 100, Environments: n + 100},
					}}))
	}
	for i := range n {
		tenant := fleet.TenantName(fmt.Sprintf("t%04d", i/100))
		if i%100 == 0 {
			in = append(
				in,
				declared(
					fleet.Declaration{Key: fleet.Key{Kind: fleet.KindTenant, Name: string(tenant)},
						Tenant: &fleet.TenantSpec{
							Owners: []string{"group:x"}, Quota: fleet.Quota{
								Environments: 10, Deployments: 200, Applications: 200},
							Repositories: []string{
								"https://git.example.com/" + string(tenant) + "/"},
							Clusters: []string{".example.com"}, Namespaces: []string{"app"},
						}}))
			for e := range 5 {
				env := fmt.Sprintf("env-%d", e)
				in = append(
					in,
					declared(
						fleet.Declaration{
							Key: fleet.Key{Kind: fleet.KindManagedEnvironment, Tenant: tenant,
								Name: env}, Environment: &fleet.EnvironmentSpec{
								Cluster: &fleet.ClusterSpec{
									Server: fmt.Sprintf("https://%s-%s.example.com", tenant,
										env),
									CredentialsRef: fleet.SecretRef{Name: env}},
								Namespaces: []string{"app"}, Region: "eu",
							}}))
			}
		}
		in = append(in, bigDeployment(i, "v1"))
	}
	return in
}

func bigDeployment(i int, revision string) catalog.Input {
	tenant := fleet.TenantName(fmt.Sprintf("t%04d", i/100))
	return declared(
		fleet.Declaration{
			Key: fleet.Key{Kind: fleet.KindGitOpsDeployment, Tenant: tenant,
				Name: fmt.Sprintf("d-%02d", i%100)}, Deployment: &fleet.DeploymentSpec{
				Source: fleet.Source{
					RepoURL: fmt.Sprintf("https://git.example.com/%s/repo-%d", tenant, i%10),
					Path:    "deploy", TargetRevision: revision},
				Destination: fleet.Destinations{
					Environments: []fleet.EnvironmentName{
						fleet.EnvironmentName(fmt.Sprintf("env-%d", i%5))}, Namespace: "app"},
			}})
}

func declared(d fleet.Declaration) catalog.Input {
	d.Path, d.Blob = d.Key.String()+".yaml", fmt.Sprintf("%p", &d)
	return catalog.Input{Key: d.Key, Path: d.Path, Blob: d.Blob, Declaration: &d}
}

// oneFile repeatedly plans and commits a change of one file.
func oneFile(t testing.TB, w *AppliedState, render engine.Renderer, n int) {
	for i := range n {
		next := w.version + 1
		p, err := w.Compute(
			Request{
				Revision: revision(next), Files: []catalog.Input{
					bigDeployment(i%100, fmt.Sprintf("v%d", next))}}, render)
		if err != nil || len(p.Rows) != 1 {
			t.Fatalf("%v: %s", err, actions(p))
		}
		w.Commit(p)
	}
}

func TestOneFileCostsTheSameInAnyFleet(t *testing.T) {
	allocations := map[int]float64{}
	for _, n := range []int{100, 1_000, 10_000} {
		w, render := big(t, n), &jsonRenderer{}
		oneFile(t, w, render, 100)
		render.rendered = 0
		allocations[n] = testing.AllocsPerRun(5, func() { oneFile(t, w, render, 100) }) / 100
		if render.rendered != 6*100 {
			t.Errorf("%d: %d objects are rendered for 600 changes", n, render.rendered)
		}
	}
	t.Logf("allocations by size of the AppliedState: %v", allocations)
	if least, most := allocations[100], allocations[10_000]; most > 1.05*least {
		t.Errorf(
			"one file costs %.0f allocations in a AppliedState of 100 and %.0f in one of 10,000",
			least, most)
	}
}

func BenchmarkOneFile(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w, render := big(b, n), &jsonRenderer{}
			oneFile(b, w, render, 100)
			runtime.GC()
			b.ReportAllocs()
			for b.Loop() {
				oneFile(b, w, render, 1)
			}
		})
	}
}

func BenchmarkFirstRevision(b *testing.B) {
	files := bigFiles(25_000)
	for b.Loop() {
		if _, err := NewAppliedState().Compute(Request{Revision: revision(1), Files: files},
			&jsonRenderer{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMemory measures the memory of an AppliedState per Application, with its declarations.
func BenchmarkMemory(b *testing.B) {
	const n = 25_000
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		w := big(b, n)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "B/Application")
		runtime.KeepAlive(w)
	}
}
