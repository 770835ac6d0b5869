package stack

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// AuditEntry is a line of an API server's audit log (ClusterOptions.AuditLog). A request that lasts
// has several, and those that come before its answer have no code.
type AuditEntry struct {
	Stage, Verb, RequestURI string
	User                    struct{ Username string }
	ObjectRef               struct{ APIGroup, Resource, Subresource, Namespace, Name string }
	ResponseStatus          struct{ Code int }
}

// ReadAudit reads an audit log as far as it is written; a line that is not whole yet is left out.
func ReadAudit(file string) ([]AuditEntry, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []AuditEntry
	for line := range bytes.Lines(text) {
		var e AuditEntry
		if json.Unmarshal(line, &e) == nil {
			all = append(all, e)
		}
	}
	return all, nil
}

// Writes reports whether the request would change something.
func (e AuditEntry) Writes() bool {
	return slices.Contains([]string{"create", "patch", "update", "delete", "deletecollection"},
		e.Verb)
}

// Refused reports whether it was answered that its account is not known, or may not do that.
func (e AuditEntry) Refused() bool {
	return e.ResponseStatus.Code == 401 || e.ResponseStatus.Code == 403
}

// Right is what a rule permits: a verb on one kind, in a namespace (empty: of the cluster), by name
// where the rule is for a name.
type Right struct{ Verb, Group, Resource, Namespace, Name string }

// Rights are those that rules give in a namespace, one by one.
func Rights(namespace string, rules []rbacv1.PolicyRule) (all []Right) {
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range names {
						all = append(all, Right{verb, group, resource, namespace, name})
					}
				}
			}
		}
	}
	return all
}

func (r Right) String() string {
	s := strings.TrimSuffix(r.Verb+" "+r.Resource+"."+r.Group, ".")
	if r.Name != "" {
		s += "/" + r.Name
	}
	if r.Namespace != "" {
		s += " in " + r.Namespace
	}
	return s
}

// UsedBy reports whether the request was permitted by the right.
func (r Right) UsedBy(e AuditEntry) bool {
	o := e.ObjectRef
	// the API server writes down a Namespace's own name as its namespace
	if o.Resource == "namespaces" {
		o.Namespace = ""
	}
	if e.ResponseStatus.Code == 0 || e.Refused() || o.Subresource != "" || o.APIGroup != r.Group ||
		o.Resource != r.Resource || o.Namespace != r.Namespace || r.Name != "" && o.Name != r.Name {
		return false
	}
	// A server-side apply that makes an object needs the right to create it too.
	return e.Verb == r.Verb || r.Verb == "create" && e.Verb == "patch" &&
		e.ResponseStatus.Code == 201
}
