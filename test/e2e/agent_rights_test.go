package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// agentUser is the agent's account as the API server writes it down.
const agentUser = "system:serviceaccount:" + agentNamespace + ":" + agentNamespace

// deed is something that the agent did on its cluster, or may do: a verb on one kind, in a namespace, by name where the right is for a name.
type deed struct{ verb, group, resource, namespace, name string }

func (d deed) String() string {
	s := d.verb + " " + d.resource
	if d.group != "" {
		s += "." + d.group
	}
	if d.name != "" {
		s += "/" + d.name
	}
	if d.namespace != "" {
		s += " in " + d.namespace
	}
	return s
}

// agentDeeds are the requests that agents have made to their cluster since it was started, with the codes of their answers.
func agentDeeds(t *testing.T) map[deed][]int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(world.Dir, "edge.audit"))
	if err != nil {
		t.Fatal(err)
	}
	done := map[deed][]int{}
	for line := range bytes.Lines(text) {
		var e struct {
			Verb           string
			User           struct{ Username string }
			ObjectRef      struct{ APIGroup, Resource, Namespace, Name string }
			ResponseStatus struct{ Code int }
		}
		if json.Unmarshal(line, &e) != nil || e.User.Username != agentUser || e.ObjectRef.Resource == "" || e.ResponseStatus.Code == 0 {
			continue
		}
		o := e.ObjectRef
		d := deed{e.Verb, o.APIGroup, o.Resource, o.Namespace, o.Name}
		done[d] = append(done[d], e.ResponseStatus.Code)
	}
	return done
}

// grantedTo are the rights that the agent's Roles give, one by one.
func grantedTo(t *testing.T) []deed {
	t.Helper()
	rbac := world.Edge.Cluster.Client().RbacV1()
	var all []deed
	spread := func(namespace string, rules []rbacv1.PolicyRule) {
		for _, rule := range rules {
			names := rule.ResourceNames
			if len(names) == 0 {
				names = []string{""}
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						for _, name := range names {
							all = append(all, deed{verb, group, resource, namespace, name})
						}
					}
				}
			}
		}
	}
	for _, namespace := range []string{agentNamespace, "argocd"} {
		role, err := rbac.Roles(namespace).Get(t.Context(), agentNamespace, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		spread(namespace, role.Rules)
	}
	role, err := rbac.ClusterRoles().Get(t.Context(), agentNamespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	spread("", role.Rules)
	return all
}

// usedRights holds what the agent may do against what it did, in whichever tests ran before: it was refused nothing, and needs all of it.
func usedRights(t *testing.T) {
	done := agentDeeds(t)
	t.Logf("the agent made %d different requests", len(done))
	for d, codes := range done {
		if slices.Contains(codes, 401) || slices.Contains(codes, 403) {
			t.Errorf("the agent was refused: %s (%v)", d, codes)
		}
	}
	for _, right := range grantedTo(t) {
		if !used(right, done) {
			t.Errorf("%s is granted, and no test makes use of it", right)
		}
	}
}

// used reports whether something was done by a right.
func used(right deed, done map[deed][]int) bool {
	for d, codes := range done {
		if right.name == "" {
			d.name = ""
		}
		if right.resource == "namespaces" { // the API server writes down its own name as its namespace
			d.namespace = ""
		}
		if d == right && slices.ContainsFunc(codes, func(code int) bool { return code != 401 && code != 403 }) {
			return true
		}
		if d.verb == "patch" && slices.Contains(codes, 201) { // server-side apply that makes an object needs the right to create it
			if d.verb = "create"; d == right {
				return true
			}
		}
	}
	return false
}
