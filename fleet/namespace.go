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
		return g == namespace || IsNamespacePrefix(g) && strings.HasPrefix(namespace, g)
	})
}

// IsNamespacePrefix reports whether an entry covers every namespace that begins with it: it ends in
// '-', which no namespace does.
func IsNamespacePrefix(entry string) bool { return strings.HasSuffix(entry, "-") }

// Lists reports whether deployments may go to the namespace of the environment: an entry names it,
// a prefix covers it, or the environment has all namespaces. A prefix covers no reserved namespace.
func (s *EnvironmentSpec) Lists(namespace string) bool {
	return s.AllNamespaces || slices.Contains(s.Namespaces, namespace) || s.covers(namespace)
}

// covers reports whether a prefix of the environment covers the namespace.
func (s *EnvironmentSpec) covers(namespace string) bool {
	return !ReservedNamespace(namespace) && slices.ContainsFunc(s.Namespaces, func(e string) bool {
		return IsNamespacePrefix(e) && strings.HasPrefix(namespace, e)
	})
}

// Granted reports whether the environment lists a namespace that only an EnvironmentGrant opens: a
// reserved one, or the own namespace of the engine that serves it.
func (s *EnvironmentSpec) Granted(namespace, ofEngine string) bool {
	return (ReservedNamespace(namespace) || namespace == ofEngine) &&
		(s.AllNamespaces || slices.Contains(s.Namespaces, namespace))
}

// HasPrefixes reports whether an entry of the environment is a prefix.
func (s *EnvironmentSpec) HasPrefixes() bool {
	return slices.ContainsFunc(s.Namespaces, IsNamespacePrefix)
}

// NamespacesWith returns the exact names that the environment's entries cover, sorted: the entries
// that are names, and those of the used namespaces that a prefix covers.
func (s *EnvironmentSpec) NamespacesWith(used []string) []string {
	var names []string
	for _, e := range s.Namespaces {
		if !IsNamespacePrefix(e) {
			names = append(names, e)
		}
	}
	for _, ns := range used {
		if s.covers(ns) && CheckNamespace(ns) == nil {
			names = append(names, ns)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// CheckNamespace reports why s is no exact namespace that a tenant could be granted, or nil. Argo
// CD matches the namespaces of an AppProject as globs with negation, so a name is exact here.
// Argosy's own namespaces hold the secrets of all tenants and are granted to none.
func CheckNamespace(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("a namespace is required")
	case len(s) > maxName:
		return fmt.Errorf("the namespace is %d characters long; at most %d are allowed", len(s),
			maxName)
	case !isLabel(s):
		return fmt.Errorf(
			"namespace %+q may only hold a-z, 0-9 and '-', and begins and ends with a letter or digit", s)
	case s == "argosy" || strings.HasPrefix(s, "argosy-"):
		return fmt.Errorf("namespace %q is reserved by Argosy, which keeps tenants' secrets in "+
			"namespaces of such names", s)
	}
	return nil
}

// ReservedNamespace reports whether a namespace belongs to Kubernetes or Argo CD, or is "default",
// which an empty value would also mean. Only an EnvironmentGrant opens it.
func ReservedNamespace(s string) bool { return reservedNames[s] || strings.HasPrefix(s, "kube-") }

// ValidateNamespace reports why a tenant may not deploy to namespace s without a grant for a single
// environment, or nil.
func ValidateNamespace(s string) error {
	if err := CheckNamespace(s); err != nil {
		return err
	}
	if ReservedNamespace(s) {
		return fmt.Errorf("namespace %q is reserved by Kubernetes or Argo CD", s)
	}
	return nil
}

// CheckNamespaceEntry reports why an entry of ManagedEnvironment.namespaces is refused, or nil: an
// exact namespace, or a prefix that ends in '-' and covers no reserved name.
func CheckNamespaceEntry(entry string) error {
	name, prefix := strings.CutSuffix(entry, "-")
	switch {
	case !prefix:
		return CheckNamespace(entry)
	case strings.HasPrefix(entry, "kube-") || strings.HasPrefix(entry, "argosy-"):
		return fmt.Errorf("every namespace that begins with %q is reserved", entry)
	}
	return CheckNamespace(name)
}
