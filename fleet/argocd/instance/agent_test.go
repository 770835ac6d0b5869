package instance_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/edge"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/argocd/instance"
)

// applyAgent creates the objects of `argosy agent manifest`, without the Deployment.
func (l *lab) applyAgent(in edge.Install) {
	l.Helper()
	objects, err := in.Objects()
	check(l.T, err)
	for _, o := range objects[:len(objects)-1] {
		tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		check(l.T, err)
		u := &unstructured.Unstructured{Object: tree}
		kind := u.GroupVersionKind()
		resource := strings.ToLower(kind.Kind) + "s"
		if strings.HasSuffix(resource, "ys") {
			resource = strings.TrimSuffix(resource, "ys") + "ies"
		}
		_, err = l.dynamic.Resource(schema.GroupVersionResource{Group: kind.Group,
			Version: kind.Version, Resource: resource}).Namespace(u.GetNamespace()).Apply(
			l.Context(), u.GetName(), u, metav1.ApplyOptions{FieldManager: "join", Force: true})
		check(l.T, err)
	}
}

// An agent with exactly the rights of its manifest installs and upgrades the Argo CD beside it. The
// admission policy still denies it every other Secret.
func TestTheRightsOfAnAgentSufficeToInstall(t *testing.T) {
	for name, public := range map[string]bool{"private": false, "public": true} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, "edge-"+name)
			ctx := t.Context()
			_, err := l.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Name: l.namespace}}, metav1.CreateOptions{})
			check(t, err)
			in := edge.Install{Namespace: l.namespace + "-agent", ArgoCDNamespace: l.namespace,
				Hub: "https://argosy.example.com", Image: "none", PublicOnly: public}
			l.applyAgent(in)
			config := l.cluster.REST()
			config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" +
				in.Namespace + ":" + edge.Name}
			findings := func() string {
				t.Helper()
				e, err := argocd.Connect("plant", fleet.EngineSpec{Connection: fleet.Connection{
					InCluster: true}, ArgoCD: fleet.ArgoCDInstance{Namespace: l.namespace,
					InstallationID: l.namespace, Managed: true}}, config, argocd.Options{
					Public: public, NoParams: true, Shadows: true,
					Stopped: func(fleet.TenantName) bool { return false }})
				check(t, err)
				report, err := e.Preflight(ctx)
				check(t, err)
				all := ""
				for _, f := range report.Findings {
					if f.Code == "install-rights" || f.Code == "shadow-rights" {
						all += f.Message + f.Fix
					}
				}
				return all
			}
			if found := findings(); !strings.Contains(found, "may not ") ||
				!strings.Contains(found, "create pods/portforward") ||
				strings.Count(found, "argocd.install of the chart argosy-agent") != 2 {
				t.Errorf("without the rights, the preflight finds %q", found)
			}
			in.InstallArgoCD = true
			l.applyAgent(in)
			if found := findings(); found != "" {
				t.Errorf("with the rights, the preflight finds %q", found)
			}
			l.target, err = instance.Open(config, l.namespace, l.namespace, l.gate)
			check(t, err)
			l.settle("2.14")
			l.settle("3.5")
			check(t, l.target.Release(ctx, l.epoch))
		})
	}
}
