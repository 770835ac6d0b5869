package configschema

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/tools/txtar"

	"argosy.dev/argosy/fleet"
)

func TestAWholeRepoIsCheckedOffline(t *testing.T) {
	eachCase(t, "check", func(t *testing.T, name string, a *txtar.Archive) {
		files, want := caseFiles(t, a)
		problems := Check(files)
		for _, p := range problems {
			if p.Field != "" && p.Line == 0 {
				t.Errorf("no position: %+v", p)
			}
		}
		slices.Reverse(files)
		if again := Check(files); !slices.Equal(again, problems) {
			t.Errorf("the order of the files changes the problems:\n%v\n%v", problems, again)
		}
		var got bytes.Buffer
		if err := WriteText(&got, problems, false); err != nil {
			t.Fatal(err)
		}
		golden(t, name, a, got.Bytes(), want)
	})
}

// manyFiles is a config repo of about n files: 100 tenants with 4 environments each, and
// deployments.
func manyFiles(n int) []File {
	files := []File{
		{Path: "fleet/fleet.yaml", Bytes: New(fleet.KindFleet, "", "fleet")},
		{Path: "fleet/engines/eu-1.yaml", Bytes: New(fleet.KindEngine, "", "eu-1")},
	}
	for t := range 100 {
		tenant := fmt.Sprintf("tenant-%d", t)
		files = append(
			files,
			File{
				Path: "fleet/tenants/" + tenant + ".yaml",
				Bytes: []byte(fmt.Sprintf(`apiVersion: argosy.dev/v1alpha1
kind: Tenant
metadata: {name: %s}
spec:
  owners: ["github:%s"]
  quota: {environments: 10, deployments: 10000, applications: 100000}
  repositories: ["https://git.example.com/%s/"]
  clusters: [.example.com]
  namespaces: [checkout]
`, tenant, tenant, tenant))})
		for e := range 4 {
			files = append(
				files, File{Path: fmt.Sprintf("tenants/%s/environments/env-%d.yaml", tenant, e),
					Bytes: []byte(fmt.Sprintf(`apiVersion: argosy.dev/v1alpha1
kind: ManagedEnvironment
metadata: {name: env-%d, labels: {tier: prod}}
spec:
  cluster:
    server: https://%s-%d.example.com:6443
    credentialsRef: {name: env-%d}
  namespaces: [checkout]
  region: eu
`, e, tenant, e, e))})
		}
	}
	for i := 0; len(files) < n; i++ {
		tenant := fmt.Sprintf("tenant-%d", i%100)
		files = append(
			files, File{Path: fmt.Sprintf("tenants/%s/deployments/app-%d.yaml", tenant, i),
				Bytes: []byte(fmt.Sprintf(`# Application %d of %s, as a team would write it.
apiVersion: argosy.dev/v1alpha1
kind: GitOpsDeployment
metadata:
  name: app-%d
  labels: {team: payments, tier: backend}
spec:
  source:
    repoURL: https://git.example.com/%s/app-%d
    path: overlays/prod
    targetRevision: v1.4.%d
    kustomize:
      images: ["registry.example.com/app:v1.4.%d"]
  destination:
    environments: [env-0, env-1]
    namespace: checkout
  sync: {mode: automated, prune: true, selfHeal: true}
  overrides:
    - environment: env-1
      source: {targetRevision: main}
`, i, tenant, i, tenant, i, i, i))})
	}
	return files
}

func TestABigRepoHasNoProblem(t *testing.T) {
	for _, p := range Check(manyFiles(1000)) {
		t.Error(p)
	}
}
