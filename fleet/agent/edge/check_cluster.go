package edge

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorization "k8s.io/api/authorization/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// ClusterCheck verifies the agent's cluster with the rights of the caller.
type ClusterCheck struct {
	Client  kubernetes.Interface
	Install Install
}

func (c *ClusterCheck) run(ctx context.Context, report func(Result)) {
	in := *c
	in.Install = c.Install.withDefaults()
	if !runCheck(ctx, "kubernetes", report, in.checkServer) {
		return
	}
	for _, one := range []struct {
		name  string
		check func(context.Context) Result
	}{{"argocd", in.checkArgoCD}, {"rights", in.checkRights}, {"secrets policy", in.checkPolicy}} {
		runCheck(ctx, one.name, report, one.check)
	}
}

func (c *ClusterCheck) checkServer(context.Context) Result {
	version, err := c.Client.Discovery().ServerVersion()
	if err != nil {
		return fail("is the kubeconfig, or the Pod's service account, that of the cluster?",
			"the API server is unreachable: %s", plain(err.Error()))
	}
	return ok("%s", plain(version.GitVersion))
}

// checkArgoCD verifies Argo CD's kinds, its settings in the namespace, and its version.
func (c *ClusterCheck) checkArgoCD(ctx context.Context) Result {
	install := "install Argo CD 2.14 or 3.x, or name its namespace with --argocd-namespace"
	list, err := c.Client.Discovery().ServerResourcesForGroupVersion("argoproj.io/v1alpha1")
	switch {
	case apierrors.IsNotFound(err):
		return fail(install, "the cluster does not know Argo CD's kinds")
	case err != nil:
		return fail("try again", "failed to read Argo CD's kinds: %s", plain(err.Error()))
	}
	for _, plural := range []string{"applications", "appprojects"} {
		if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool {
			return r.Name == plural
		}) {
			return fail(install, "the cluster does not know Argo CD's kind %s", plural)
		}
	}
	ns := c.Install.ArgoCDNamespace
	_, err = c.Client.CoreV1().ConfigMaps(ns).Get(ctx, "argocd-cm", metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fail(install, "there is no ConfigMap argocd-cm in namespace %s", ns)
	case err != nil:
		return warn("repeat the check with the rights of an admin",
			"failed to check Argo CD in namespace %s: %s", ns, plain(err.Error()))
	}
	return ok("in namespace %s, %s", ns, c.version(ctx))
}

// version returns the tag of the controller's image or, without a tag, the version label of the
// controller.
func (c *ClusterCheck) version(ctx context.Context) string {
	selector := metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/part-of=argocd,app.kubernetes.io/component=application-controller"}
	sets, err := c.Client.AppsV1().StatefulSets(c.Install.ArgoCDNamespace).List(ctx, selector)
	if err == nil {
		for _, set := range sets.Items {
			for _, container := range set.Spec.Template.Spec.Containers {
				image, _, _ := strings.Cut(container.Image, "@")
				if _, tag, ok := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":"); ok {
					return plain(tag)
				}
			}
			if v := set.Labels["app.kubernetes.io/version"]; v != "" {
				return plain(v)
			}
		}
	}
	return "of an unknown version"
}

// need is one right that the agent's Roles grant.
type need struct{ namespace, group, resource, name, verb string }

func (n need) String() string {
	s := n.verb + " " + n.resource
	if n.name != "" {
		s += "/" + n.name
	}
	if n.namespace != "" {
		s += " in " + n.namespace
	}
	return s
}

// needs lists exactly the rights that the manifest's Roles grant.
func (in Install) needs() []need {
	in = in.withDefaults()
	var all []need
	for namespace, rules := range map[string][]rbac.PolicyRule{in.Namespace: in.ownRules(),
		in.ArgoCDNamespace: in.argoRules(), "": clusterRules()} {
		for _, rule := range rules {
			all = append(all, rightsOf(namespace, rule)...)
		}
	}
	slices.SortFunc(all, func(a, b need) int {
		return strings.Compare(a.namespace+a.String(), b.namespace+b.String())
	})
	return all
}

func rightsOf(namespace string, rule rbac.PolicyRule) []need {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var all []need
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, name := range names {
				for _, verb := range rule.Verbs {
					all = append(all, need{namespace, group, resource, name, verb})
				}
			}
		}
	}
	return all
}

// checkRights verifies each right of the manifest's Roles for the caller: the agent itself, or an
// admin, who may only grant rights that they have.
func (c *ClusterCheck) checkRights(ctx context.Context) Result {
	var missing []string
	all := c.Install.needs()
	for _, n := range all {
		review := &authorization.SelfSubjectAccessReview{
			Spec: authorization.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorization.ResourceAttributes{
					Namespace: n.namespace, Group: n.group, Resource: n.resource, Name: n.name,
					Verb: n.verb}}}
		answer, err := c.Client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review,
			metav1.CreateOptions{})
		if err != nil {
			return fail("try again", "failed to check rights: %s", plain(err.Error()))
		}
		if !answer.Status.Allowed {
			missing = append(missing, n.String())
		}
	}
	if len(missing) == 0 {
		return ok("all %d that the agent needs", len(all))
	}
	return fail("apply the output of `argosy agent manifest` as an admin of the cluster",
		"missing: %s", firstNames(missing, 5))
}

func firstNames(all []string, most int) string {
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}

// checkPolicy verifies that the API server serves ValidatingAdmissionPolicy, which keeps the agent
// away from other Secrets.
func (c *ClusterCheck) checkPolicy(context.Context) Result {
	if c.Install.PublicOnly {
		return ok("not needed: the agent has no right on Secrets of Argo CD")
	}
	list, err := c.Client.Discovery().ServerResourcesForGroupVersion(
		"admissionregistration.k8s.io/v1")
	if err != nil {
		return warn("repeat the check with the rights of an admin", "cannot be read: %s",
			plain(err.Error()))
	}
	if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool {
		return r.Name == "validatingadmissionpolicies"
	}) {
		return warn(
			"upgrade to Kubernetes 1.30, or use --no-secrets; without it RBAC alone would let "+
				"the agent write to any Secret of Argo CD's namespace",
			"the API server has no ValidatingAdmissionPolicy")
	}
	return ok("the API server can restrict the agent to its own Secrets")
}

// ClusterUID returns the identity of a cluster: the UID of its namespace kube-system.
func ClusterUID(ctx context.Context, client kubernetes.Interface) (string, error) {
	ns, err := client.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("namespace kube-system, whose UID names the cluster: %w", err)
	}
	return string(ns.UID), nil
}
