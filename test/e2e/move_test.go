package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/stack"
)

const staging = "acme/staging"

// exampleFile is a file of the example's config repo, as the fleet has it.
func (f *system) exampleFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile("../../examples/config-repo/" + path)
	if err != nil {
		t.Fatal(err)
	}
	return f.Rewrite(string(content))
}

// A move to the engine on another cluster and back, with a killed control plane and commits in
// between. The cluster's audit log shows that no object of the workload was created or deleted.
func TestAnEnvironmentMovesToAnotherEngineAndBackWithItsWorkload(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	const environment, grant = "tenants/acme/environments/staging.yaml", "fleet/tenants/acme.yaml"
	const checkout = "tenants/acme/deployments/checkout-staging.yaml"
	before := map[string]string{environment: f.exampleFile(t, environment),
		grant: f.exampleFile(t, grant)}

	out, errs, code := f.argosy(t, "move", "environment", staging, "--to", "us-1", "--dry-run")
	if code != 1 || !strings.Contains(out, "engine us-1 is in region us") {
		t.Fatalf("a dry run to another region ends with %d: %s%s", code, out, errs)
	}
	f.commit(t, "staging belongs into the US", map[string]string{
		environment: strings.Replace(before[environment], "region: eu", "region: us", 1),
		grant:       strings.Replace(before[grant], "regions: [eu]", "regions: [eu, us]", 1)})
	f.allHealthy(t)
	if out := f.must(t, "explain", "environment", staging); !strings.Contains(out,
		"argosy move environment acme/staging --to ENGINE") {
		t.Errorf("the command that moves a misplaced environment is not named:\n%s", out)
	}
	eventually(t, "a dry run finds nothing against the move", func() string {
		out, errs, code := f.argosy(t, "move", "environment", staging, "--to", "us-1", "--dry-run")
		if code != 0 || !strings.Contains(out, "1 Application would move from engine eu-1 to us-1") {
			return out + errs
		}
		return ""
	})

	workload, audited := f.workloadOf(t), len(f.audited(t))
	f.must(t, "move", "environment", staging, "--to", "us-1", "--note", "test")
	f.plane.Process.Kill()
	f.startPlane(t)
	const during = "tenants/acme/deployments/during.yaml"
	moving := f.exampleFile(t, checkout)
	f.commit(t, "a commit during the move", map[string]string{
		during:   f.deployment("during", "prod-eu", "acme-checkout", "  sync: {mode: manual}\n"),
		checkout: moving + "  sync: {mode: automated, prune: true, selfHeal: false}\n"})
	eventually(t, "it has moved", func() string {
		for _, m := range list[view.Move](t, f, "moves") {
			if m.Tenant == "acme" && m.Environment == "staging" && m.To == "us-1" &&
				m.State == mirror.OperationSucceeded {
				return ""
			}
		}
		return "not yet: " + f.must(t, "get", "moves", "-o", "wide") // empty before it begins
	})
	eventually(t, "the commit during the move is applied", func() string {
		o := f.live(t, "us-1", "acme", "checkout-staging", "staging")
		policy, found, err := unstructured.NestedMap(o.Object, "spec", "syncPolicy", "automated")
		if err != nil || !found || policy["selfHeal"] == true {
			return fmt.Sprint(policy, err)
		}
		return ""
	})
	f.remove(t, "it has ended", during)
	f.commit(t, "as before", map[string]string{checkout: moving})
	f.allHealthy(t)
	if out := f.must(t, "describe", "move", staging); !strings.Contains(out, "Adopt ") {
		t.Errorf("the steps of the move are not shown:\n%s", out)
	}

	f.commit(t, "staging belongs into the EU", before)
	out, errs, code = f.argosy(t, "move", "environment", staging, "--to", "eu-1", "--watch")
	if code != 0 || !strings.Contains(out, "moved acme/staging to engine eu-1") {
		t.Fatalf("the move back ends with %d: %s%s", code, out, errs)
	}
	f.live(t, "eu-1", "acme", "checkout-staging", "staging")
	f.allHealthy(t)
	if now := f.workloadOf(t); !slices.Equal(workload, now) {
		t.Errorf("the workload was\n%q\nand is\n%q", workload, now)
	}
	for _, e := range f.audited(t)[audited:] {
		t.Errorf("during the moves: %s", e)
	}
	eventually(t, "nothing of acme is left on us-1", func() string {
		p := f.Place("us-1")
		found, err := p.Cluster.Client().CoreV1().Secrets(p.ArgoCD.Namespace).List(t.Context(),
			metav1.ListOptions{LabelSelector: "argosy.dev/tenant=acme"})
		if err != nil || len(found.Items) > 0 {
			return fmt.Sprintf("%d Secrets, %v", len(found.Items), err)
		}
		return ""
	})
}

// workloadOf lists the objects of staging's workload with their UIDs.
func (f *system) workloadOf(t *testing.T) []string {
	t.Helper()
	return f.workloadsIn(t, "eu-1", "acme-staging")
}

// workloadsIn lists the objects of the workloads in namespaces of an engine's cluster with their
// UIDs.
func (f *system) workloadsIn(t *testing.T, engine string, namespaces ...string) (all []string) {
	t.Helper()
	return workloadsOn(t, f.Place(engine).Cluster, namespaces...)
}

func workloadsOn(t *testing.T, cluster *stack.Cluster, namespaces ...string) (all []string) {
	t.Helper()
	c, options := cluster.Client(), metav1.ListOptions{}
	for _, namespace := range namespaces {
		before := len(all)
		deployments, err := c.AppsV1().Deployments(namespace).List(t.Context(), options)
		check(t, err)
		for _, o := range deployments.Items {
			template, err := json.Marshal(o.Spec.Template)
			check(t, err)
			all = append(all, fmt.Sprint("Deployment ", o.Name, o.UID, string(template)))
		}
		sets, err := c.AppsV1().ReplicaSets(namespace).List(t.Context(), options)
		check(t, err)
		for _, o := range sets.Items {
			all = append(all, fmt.Sprint("ReplicaSet ", o.Name, o.UID))
		}
		pods, err := c.CoreV1().Pods(namespace).List(t.Context(), options)
		check(t, err)
		for _, o := range pods.Items {
			all = append(all, fmt.Sprint("Pod ", o.Name, o.UID))
		}
		if len(all) == before {
			t.Fatalf("there is no workload in %s", namespace)
		}
	}
	slices.Sort(all)
	return all
}

// untouched returns a check that the workloads in namespaces of a cluster have the objects and UIDs
// that they have now, and that no request has created or deleted an object since.
func (f *system) untouched(t *testing.T, cluster *stack.Cluster,
	namespaces ...string) (check func(when string)) {
	t.Helper()
	before := workloadsOn(t, cluster, namespaces...)
	audited := len(f.auditedIn(t, cluster.Name, namespaces...))
	return func(when string) {
		t.Helper()
		if now := workloadsOn(t, cluster, namespaces...); !slices.Equal(before, now) {
			t.Errorf("%s: the workloads were\n%q\nand are\n%q", when, before, now)
		}
		for _, e := range f.auditedIn(t, cluster.Name, namespaces...)[audited:] {
			t.Errorf("%s: %s", when, e)
		}
	}
}

// audited are the requests so far that have created or deleted an object of staging's workload.
func (f *system) audited(t *testing.T) []string { return f.auditedIn(t, "eu-1", "acme-staging") }

// auditedIn are the requests so far that have created or deleted an object of a workload in
// namespaces of a cluster.
func (f *system) auditedIn(t *testing.T, cluster string, namespaces ...string) (all []string) {
	t.Helper()
	log, err := stack.ReadAudit(filepath.Join(f.Dir, cluster+".audit"))
	check(t, err)
	for _, e := range log {
		kind := slices.Contains([]string{"deployments", "replicasets", "pods", "services",
			"configmaps", "jobs"}, e.ObjectRef.Resource)
		if kind && e.Stage == "ResponseComplete" &&
			slices.Contains(namespaces, e.ObjectRef.Namespace) &&
			e.ObjectRef.Subresource == "" && (e.Verb == "create" ||
			strings.HasPrefix(e.Verb, "delete")) {
			all = append(all, fmt.Sprint(e.Verb, " ", e.RequestURI, " by ", e.User.Username))
		}
	}
	return all
}
