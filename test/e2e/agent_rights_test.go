package e2e

import (
	"path/filepath"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/test/example"
	"argosy.dev/argosy/test/stack"
)

// agentUser is the agent's account as the API server writes it down.
const agentUser = "system:serviceaccount:" + agentNamespace + ":" + agentNamespace

// agentRequests are those that agents have made to their cluster since it was started, and that
// were answered.
func (f *system) agentRequests(t *testing.T) []stack.AuditEntry {
	t.Helper()
	all, err := stack.ReadAudit(filepath.Join(f.Dir, "edge.audit"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(e stack.AuditEntry) bool {
		return e.User.Username != agentUser || e.ResponseStatus.Code == 0
	})
}

// grantedTo are the rights that the agent's Roles give, one by one.
func (f *system) grantedTo(t *testing.T) []stack.Right {
	t.Helper()
	rbac := f.Edge.Cluster.Client().RbacV1()
	var all []stack.Right
	for _, namespace := range []string{agentNamespace, "argocd", example.EdgeApplications} {
		role, err := rbac.Roles(namespace).Get(t.Context(), agentNamespace, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, stack.Rights(namespace, role.Rules)...)
	}
	role, err := rbac.ClusterRoles().Get(t.Context(), agentNamespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return append(all, stack.Rights("", role.Rules)...)
}

// usedRights holds what the agent may do against what agents did on their cluster since it was
// started, in whichever tests ran before: they were refused nothing, and need all of it.
func (f *system) usedRights(t *testing.T) {
	done := f.agentRequests(t)
	t.Logf("agents made %d requests", len(done))
	reported := map[string]bool{}
	for _, e := range done {
		if what := e.Verb + " " + e.RequestURI; e.Refused() && !reported[what] {
			reported[what] = true
			t.Errorf("the agent was refused: %s (%d)", what, e.ResponseStatus.Code)
		}
	}
	for _, right := range f.grantedTo(t) {
		if !slices.ContainsFunc(done, right.UsedBy) {
			t.Errorf("%s is granted, and no test makes use of it", right)
		}
	}
}
