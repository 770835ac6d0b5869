// Package corpus writes config repos of any size, and returns the objects that each file asks for
// without the product's help, so that engines can be compared with it.
//
// A file of a deployment has 600 to 800 bytes, as a platform team's have. Deployment i is the same
// at every size: a repo of 10,000 files is one of 1,000 with 9,000 more.
package corpus

import (
	"fmt"
	"maps"
	"strings"
)

// PerFolder is how many deployments a tenant has in the layout with folders.
const PerFolder = 250

// Engine is one of the engines that the repo declares. Environments of its region are placed on it.
type Engine struct {
	Name      string
	Namespace string // of its Argo CD
}

// Corpus is a config repo of any size.
type Corpus struct {
	Engines []Engine
	Flat    bool // all deployments in one folder, of one tenant with an environment per engine
}

// Wanted is what one deployment's file asks for, in one environment.
type Wanted struct {
	Namespace   string   `json:"namespace"` // of the engine's Argo CD
	Tenant      string   `json:"tenant"`
	Environment string   `json:"environment"`
	Deployment  string   `json:"deployment"`
	RepoURL     string   `json:"repoURL"`
	Path        string   `json:"path"`
	Revision    string   `json:"revision"`
	Images      []string `json:"images"`
	Target      string   `json:"target"` // namespace of the workload
	Automated   bool     `json:"automated"`
}

// Key names the deployment: "tenant/deployment".
func (w Wanted) Key() string { return w.Tenant + "/" + w.Deployment }

// Wanted is what deployment i asks for at an application's release.
func (c Corpus) Wanted(i int, release string) Wanted {
	tenant, environment, engine := c.place(i)
	name := fmt.Sprintf("svc-%06d", i)
	return Wanted{
		Namespace: c.Engines[engine].Namespace, Tenant: tenant, Environment: environment,
		Deployment: name,
		RepoURL:    "https://git.example.com/" + tenant + "/" + name, Path: "overlays/production",
		Revision: release,
		Images: []string{
			"registry.example.com/" + tenant + "/" + name + ":" + release,
			"registry.example.com/shared/proxy:v2.3.1",
			"registry.example.com/shared/metrics-exporter:v0.9.4",
		},
		Target: "apps", Automated: true,
	}
}

func (c Corpus) place(i int) (tenant, environment string, engine int) {
	if c.Flat {
		engine = i % len(c.Engines)
		return "tenant-flat", environmentName(engine), engine
	}
	folder := i / PerFolder
	engine = folder % len(c.Engines)
	return fmt.Sprintf("tenant-%04d", folder), environmentName(engine), engine
}

func environmentName(engine int) string { return fmt.Sprintf("prod-%d", engine) }

// Path is the path of deployment i.
func (c Corpus) Path(i int) string {
	w := c.Wanted(i, "")
	return "tenants/" + w.Tenant + "/deployments/" + w.Deployment + ".yaml"
}

// Deployment is the file of deployment i.
func (c Corpus) Deployment(i int, release string) string {
	w := c.Wanted(i, release)
	var b strings.Builder
	fmt.Fprintf(&b,
		"# Service %06d of %s.\n# Reviewed by its owners; the platform's guide says how it is "+
			"rolled out and rolled back.\n", i, w.Tenant)
	fmt.Fprintf(&b,
		"apiVersion: argosy.dev/v1alpha1\nkind: GitOpsDeployment\nmetadata:\n  name: %s\n",
		w.Deployment)
	fmt.Fprintf(&b, "  labels: {team: team-%02d, tier: backend}\n", i%40)
	fmt.Fprintf(&b,
		"spec:\n  source:\n    repoURL: %s\n    path: %s\n    targetRevision: %s\n    "+
			"kustomize:\n      images:\n", w.RepoURL, w.Path, w.Revision)
	for _, image := range w.Images {
		fmt.Fprintf(&b, "        - %s\n", image)
	}
	fmt.Fprintf(&b,
		"  destination:\n    environments: [%s]\n    namespace: %s\n  sync: {mode: automated, "+
			"prune: true, selfHeal: true}\n", w.Environment, w.Target)
	return b.String()
}

// Base is what the platform declares before there is any tenant.
func (c Corpus) Base() map[string]string {
	files := map[string]string{
		"fleet/fleet.yaml": "apiVersion: argosy.dev/v1alpha1\nkind: Fleet\nmetadata:\n  name: " +
			"fleet\nspec:\n  gitHosts: [git.example.com]\n"}
	for i, e := range c.Engines {
		files["fleet/engines/"+e.Name+".yaml"] = fmt.Sprintf(`apiVersion: argosy.dev/v1alpha1
kind: Engine
metadata:
  name: %s
spec:
  argocd: {namespace: %s, installationID: %s}
  connection:
    kubeconfigRef: {name: engine-%s}
  region: region-%d
  capacity: {applications: 100000, environments: 100000}
`, e.Name, e.Namespace, e.Name, e.Name, i)
	}
	return files
}

// Files are the deployments from to until, and the tenants and environments that they need.
func (c Corpus) Files(from, until int, release string) map[string]string {
	files := map[string]string{}
	for i := from; i < until; i++ {
		files[c.Path(i)] = c.Deployment(i, release)
		tenant, environment, engine := c.place(i)
		if file := "fleet/tenants/" + tenant + ".yaml"; files[file] == "" {
			files[file] = tenantFile(tenant)
		}
		if file := "tenants/" + tenant + "/environments/" + environment +
			".yaml"; files[file] == "" {
			files[file] = environmentFile(tenant, environment, engine)
		}
	}
	return files
}

// All is the whole repo with n deployments.
func (c Corpus) All(n int, release string) map[string]string {
	files := c.Base()
	maps.Copy(files, c.Files(0, n, release))
	return files
}

// Credentials are the environments of the first n deployments, as "tenant/environment": each has a
// secret of the environment's name.
func (c Corpus) Credentials(n int) []string {
	seen := map[string]bool{}
	var all []string
	for i := range n {
		tenant, environment, _ := c.place(i)
		if key := tenant + "/" + environment; !seen[key] {
			seen[key] = true
			all = append(all, key)
		}
	}
	return all
}

func tenantFile(tenant string) string {
	return fmt.Sprintf(`apiVersion: argosy.dev/v1alpha1
kind: Tenant
metadata:
  name: %s
spec:
  owners: ["github:%s-leads"]
  quota: {environments: 10, deployments: 100000, applications: 100000}
  repositories:
    - https://git.example.com/%s/
  clusters: [.%s.example.com]
`, tenant, tenant, tenant, tenant)
}

func environmentFile(tenant, environment string, engine int) string {
	return fmt.Sprintf(`apiVersion: argosy.dev/v1alpha1
kind: ManagedEnvironment
metadata:
  name: %s
spec:
  cluster:
    server: https://%s.%s.example.com:6443
    credentialsRef: {name: %s}
  namespaces: [apps]
  region: region-%d
`, environment, environment, tenant, environment, engine)
}
