package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/example"
	"argosy.dev/argosy/test/stack"
)

const acmeTenant = "fleet/tenants/acme.yaml"

// cellar are the Applications one and two that people made in another namespace than Argo CD's.
type cellar struct {
	*site
	environment string // file
	path        map[string]string
	tenant      string // content
	revision    string
}

// adoptsElsewhere adopts two Applications in a namespace that the commit and the agent's settings
// name, changes one, and gives the other back. The namespace that the commit alone names stays
// closed, and is reported.
func (s *site) adoptsElsewhere(t *testing.T) {
	files, err := stack.Files(os.DirFS("../../examples/config-repo"))
	check(t, err)
	c := &cellar{site: s, environment: s.around[0], tenant: s.Rewrite(files[acmeTenant]),
		path: map[string]string{"one": "tenants/acme/deployments/one.yaml",
			"two": "tenants/acme/deployments/two.yaml"}}
	c.create(t)
	before := c.read(t)

	s.commit(t, "namespaces with Applications", map[string]string{
		acmeTenant: strings.Replace(c.tenant, "\nspec:\n", "\nspec:\n  allow: {adopt: true}\n", 1),
		c.environment: environment("vault", "{argocdNamespace: argocd, applicationNamespaces: ["+
			example.EdgeApplications+", vault-more]}", "acme-vault")})
	eventually(t, "the namespace that is declared alone is reported", s.shows(t,
		func(a view.Agent) string {
			if !strings.Contains(a.Message, "declared applicationNamespaces vault-more,") {
				return "the message is " + a.Message
			}
			return ""
		}))
	s.commit(t, "their Applications are adopted", map[string]string{
		c.path["one"]: c.declare("one", "Release", ""),
		c.path["two"]: c.declare("two", "Delete", "")})
	c.adopted(t, "one")
	c.adopted(t, "two")
	if after := c.read(t); after["one"] != before["one"] || after["two"] != before["two"] {
		t.Errorf("the Applications were\n%v\nand are\n%v", before, after)
	}
	projects := s.ours(t, projects)
	if len(projects) != 1 || fmt.Sprint(strs(projects[0].Object, "spec", "sourceNamespaces")) !=
		"["+example.EdgeApplications+"]" {
		t.Errorf("the AppProjects are %v", projects)
	}

	s.commit(t, "a change", map[string]string{c.path["two"]: c.declare("two", "Delete",
		"  revisionHistoryLimit: 5\n")})
	eventually(t, "it is written", func() string {
		limit := fmt.Sprint(nested(c.live(t)["two"], "spec", "revisionHistoryLimit"))
		if limit != "5" {
			return "the limit is " + limit
		}
		return ""
	})
	s.remove(t, "one is given back, two is deleted", c.path["one"], c.path["two"])
	eventually(t, "one is as it was, and two is deleted", func() string {
		all := c.live(t)
		one := all["one"]
		switch {
		case one == nil || len(all) != 1:
			return fmt.Sprintf("%d Applications", len(all))
		case at(one, "metadata", "labels", "argosy.dev/tenant") != "":
			return "one is ours"
		case at(one, "spec", "project") != "cellar" ||
			len(strs(one, "metadata", "finalizers")) != 1 ||
			at(one, "status", "sync", "status") != "Synced":
			return fmt.Sprint(one)
		}
		return ""
	})
	if after := c.read(t); after["one"] != before["one"] {
		t.Errorf("one was %s, and is %s", before["one"], after["one"])
	}
	_, err = s.edge.Cluster.Client().CoreV1().ConfigMaps("acme-vault").Get(t.Context(), "two",
		metav1.GetOptions{})
	if err == nil {
		t.Error("the workload of two is left")
	}
	c.unmake(t)
}

// create makes the Applications as people do, in a project of their own.
func (c *cellar) create(t *testing.T) {
	t.Helper()
	revision, err := c.Apps["acme/storefront"].Commit(t.Context(), "for the cellar",
		map[string]string{"cellar/one/cm.yaml": waveConfig("one"),
			"cellar/two/cm.yaml": waveConfig("two")})
	check(t, err)
	c.revision = revision
	destination := map[string]any{"server": fleet.InClusterServer, "namespace": "acme-vault"}
	check(t, c.edge.Cluster.Apply(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
		"metadata": map[string]any{"name": "cellar", "namespace": "argocd"},
		"spec": map[string]any{"sourceRepos": []any{c.Git.URL + "/acme/storefront"},
			"sourceNamespaces": []any{example.EdgeApplications},
			"destinations":     []any{destination}}}}))
	for name := range c.path {
		check(t, c.edge.Cluster.Apply(t.Context(), &unstructured.Unstructured{
			Object: map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
				"metadata": map[string]any{"name": name, "namespace": example.EdgeApplications,
					"finalizers": []any{"resources-finalizer.argocd.argoproj.io"}},
				"spec": map[string]any{"project": "cellar", "destination": destination,
					"source": map[string]any{"repoURL": c.Git.URL + "/acme/storefront",
						"path": "cellar/" + name, "targetRevision": revision},
					"syncPolicy": map[string]any{"automated": map[string]any{"prune": true,
						"selfHeal": true}}}}}))
	}
	eventually(t, "the Applications made by hand are synced", func() string {
		all := c.live(t)
		for name := range c.path {
			if at(all[name], "status", "sync", "status") != "Synced" ||
				at(all[name], "status", "operationState", "phase") != "Succeeded" ||
				at(all[name], "status", "health", "status") != "Healthy" {
				return fmt.Sprint(name, ": ", nested(all[name], "status"))
			}
		}
		return ""
	})
}

// declare is the declaration of one of them.
func (c *cellar) declare(name, policy, more string) string {
	return fmt.Sprintf("apiVersion: argosy.dev/v1alpha1\nkind: GitOpsDeployment\n"+
		"metadata: {name: %[1]s}\nspec:\n"+
		"  source: {repoURL: %[2]q, path: cellar/%[1]s, targetRevision: %[3]s}\n"+
		"  destination: {environments: [vault], namespace: acme-vault}\n"+
		"  sync: {mode: automated, prune: true, selfHeal: true}\n%[4]s"+
		"  deletionPolicy: %[5]s\n  adopt: [{environment: vault, application: %[6]s/%[1]s}]\n",
		name, c.Git.URL+"/acme/storefront", c.revision, more, policy, example.EdgeApplications)
}

func (c *cellar) live(t *testing.T) map[string]map[string]any {
	t.Helper()
	found, err := c.edge.Cluster.Dynamic().Resource(applications).Namespace(
		example.EdgeApplications).List(t.Context(), metav1.ListOptions{})
	check(t, err)
	all := map[string]map[string]any{}
	for _, o := range found.Items {
		all[o.GetName()] = o.Object
	}
	return all
}

// read is what an adoption must not change: the UID, and the syncs.
func (c *cellar) read(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name, o := range c.live(t) {
		history, _, _ := unstructured.NestedSlice(o, "status", "history")
		all[name] = fmt.Sprint(at(o, "metadata", "uid"), " ", at(o, "status", "operationState",
			"startedAt"), " ", len(history))
	}
	return all
}

// adopted waits until Argo CD has compared an adopted Application, and Argosy shows it.
func (c *cellar) adopted(t *testing.T, name string) {
	t.Helper()
	eventually(t, name+" is adopted", func() string {
		o := c.live(t)[name]
		if project := at(o, "spec", "project"); at(o, "metadata", "labels",
			"argosy.dev/deployment") != name || !strings.HasPrefix(project, "acme-") ||
			at(o, "status", "sync", "status") != "Synced" {
			return fmt.Sprint(project, " ", nested(o, "status", "sync"), " ",
				c.healthy(t, "acme/"+name+"@vault")())
		}
		return c.healthy(t, "acme/"+name+"@vault")()
	})
}

// unmake removes what create has made, and the declared namespaces.
func (c *cellar) unmake(t *testing.T) {
	t.Helper()
	c.commit(t, "no namespace with Applications", map[string]string{acmeTenant: c.tenant,
		c.environment: environment("vault", "{argocdNamespace: argocd}", "acme-vault")})
	argo := c.edge.Cluster.Dynamic()
	check(t, argo.Resource(applications).Namespace(example.EdgeApplications).Delete(t.Context(),
		"one", metav1.DeleteOptions{}))
	eventually(t, "no Application is left there", func() string {
		if all := c.live(t); len(all) > 0 {
			return fmt.Sprint(all)
		}
		return ""
	})
	check(t, argo.Resource(projects).Namespace("argocd").Delete(t.Context(), "cellar",
		metav1.DeleteOptions{}))
	eventually(t, "the AppProject permits no namespace, and nothing is reported", func() string {
		for _, p := range c.ours(t, projects) {
			if all := strs(p.Object, "spec", "sourceNamespaces"); len(all) > 0 {
				return fmt.Sprint(all)
			}
		}
		return c.shows(t, func(a view.Agent) string { return a.Message })()
	})
	if !slices.ContainsFunc(list[view.Application](t, c.system, "applications"),
		func(a view.Application) bool {
			return a.Environment == "vault" && a.Apply == mirror.ApplyApplied
		}) {
		t.Error("the environment's other Application is not applied")
	}
}

func nested(o map[string]any, path ...string) any {
	v, _, _ := unstructured.NestedFieldNoCopy(o, path...)
	return v
}

func strs(o map[string]any, path ...string) []string {
	s, _, _ := unstructured.NestedStringSlice(o, path...)
	return s
}
