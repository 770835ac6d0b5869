package fleet

import (
	"fmt"
	"slices"
	"strings"
)

// CheckNamespaceGrant reports why an entry of Tenant.namespaces is refused, or nil.
func CheckNamespaceGrant(grant string) error {
	name, _ := strings.CutSuffix(grant, "-")
	return ValidateNamespace(name)
}

// NamespaceGranted reports whether one of a tenant's grants covers the namespace: the same name, or
// a prefix of it that ends in '-'.
func NamespaceGranted(grants []string, namespace string) bool {
	return slices.ContainsFunc(grants, func(g string) bool {
		return g == namespace || strings.HasSuffix(g, "-") && strings.HasPrefix(namespace, g)
	})
}

// ValidateNamespace reports why a tenant may not deploy to namespace s, or nil. A namespace is one
// exact name: Argo CD matches the namespaces of an AppProject as globs with negation. Namespaces of
// Kubernetes, Argo CD and Argosy are refused, and so is "default", which an empty value would also
// mean.
func ValidateNamespace(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("a namespace is required")
	case len(s) > maxName:
		return fmt.Errorf("the namespace is %d characters long; at most %d are allowed", len(s),
			maxName)
	case !isLabel(s):
		return fmt.Errorf(
			"namespace %+q may only hold a-z, 0-9 and '-', and begins and ends with a letter or digit", s)
	case reservedNames[s] || strings.HasPrefix(s, "kube-") || strings.HasPrefix(s, "argosy-"):
		return fmt.Errorf("namespace %q is reserved by Kubernetes, Argo CD or Argosy", s)
	}
	return nil
}
