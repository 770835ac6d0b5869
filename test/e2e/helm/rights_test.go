package helm

import (
	"maps"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/test/stack"
)

// requests are those to a cluster that were answered, of the accounts with the prefix.
func (p place) requests(t *testing.T, account string) []stack.AuditEntry {
	t.Helper()
	var all []stack.AuditEntry
	for _, e := range must(stack.ReadAudit(p.audit))(t) {
		if e.ResponseStatus.Code != 0 && strings.HasPrefix(e.User.Username,
			"system:serviceaccount:"+account) {
			all = append(all, e)
		}
	}
	return all
}

// writes are those that would have changed something in a namespace, without those of the probe,
// which asks whether Argo CD works.
func (p place) writes(t *testing.T, account, namespace string) (all []string) {
	t.Helper()
	for _, e := range p.requests(t, account) {
		o := e.ObjectRef
		if o.Namespace == namespace && o.Name != engine.ProbeName && e.Writes() {
			all = append(all, e.Verb+" "+e.RequestURI)
		}
	}
	return all
}

// nothingRefused checks all accounts of a namespace.
func (p place) nothingRefused(t *testing.T, namespace string) {
	t.Helper()
	refused, requests := map[string]int{}, p.requests(t, namespace+":")
	for _, e := range requests {
		if e.Refused() {
			refused[e.User.Username+": "+e.Verb+" "+e.RequestURI]++
		}
	}
	for _, what := range slices.Sorted(maps.Keys(refused)) {
		t.Errorf("%s: refused %d times: %s", p.name, refused[what], what)
	}
	if len(requests) == 0 {
		t.Errorf("%s: no account of %s has sent a request", p.name, namespace)
	}
}

// granted are the rights of an account, one by one.
func (p place) granted(t *testing.T, namespace, account string) []stack.Right {
	t.Helper()
	rbac, ours := p.cluster.Client().RbacV1(), func(subjects []rbacv1.Subject) bool {
		return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
			return s.Kind == "ServiceAccount" && s.Name == account && s.Namespace == namespace
		})
	}
	var all []stack.Right
	for _, b := range must(rbac.RoleBindings("").List(t.Context(), metav1.ListOptions{}))(t).Items {
		switch {
		case !ours(b.Subjects):
		case b.RoleRef.Kind == "Role":
			all = append(all,
				stack.Rights(b.Namespace,
					must(rbac.Roles(b.Namespace).Get(t.Context(), b.RoleRef.Name,
						metav1.GetOptions{}))(t).Rules)...)
		default:
			all = append(all,
				stack.Rights(b.Namespace,
					must(rbac.ClusterRoles().Get(t.Context(), b.RoleRef.Name, metav1.GetOptions{}))(
						t).Rules)...)
		}
	}
	for _, b := range must(rbac.ClusterRoleBindings().List(t.Context(), metav1.ListOptions{}))(
		t).Items {
		if ours(b.Subjects) {
			all = append(all,
				stack.Rights("",
					must(rbac.ClusterRoles().Get(t.Context(), b.RoleRef.Name, metav1.GetOptions{}))(
						t).Rules)...)
		}
	}
	return all
}

// noneIdle holds the rights of an account against its requests. idle are those that this test makes
// no use of, each with the reason why it is granted all the same.
func (p place) noneIdle(t *testing.T, namespace, account string, idle map[string]string) {
	t.Helper()
	requests, left := p.requests(t, namespace+":"+account), maps.Clone(idle)
	granted := p.granted(t, namespace, account)
	t.Logf("%s: %s of %s has %d rights and has made %d requests", p.name, account, namespace,
		len(granted), len(requests))
	for _, right := range granted {
		_, listed := idle[right.String()]
		delete(left, right.String())
		switch used := slices.ContainsFunc(requests, right.UsedBy); {
		case used && listed:
			t.Errorf("%s: %s of %s may %s, which is listed as idle and is used", p.name, account,
				namespace, right)
		case !used && !listed:
			t.Errorf("%s: %s of %s may %s, and has made no use of it", p.name, account, namespace,
				right)
		}
	}
	for _, right := range slices.Sorted(maps.Keys(left)) {
		t.Errorf("%s: the right to %s is listed as idle and is not granted", p.name, right)
	}
}
