package fleet

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"strings"
)

const maxName = 63 // of a DNS-1123 label, and of a label's value

// ValidateName reports why s may not name a declaration, or nil. Names are DNS-1123 labels: they
// become parts of object names, label values and namespaces and are never shortened. Names that
// Kubernetes or Argo CD give a meaning of their own are refused.
func ValidateName(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("a name is required")
	case len(s) > maxName:
		return fmt.Errorf("name is %d characters long; at most %d are allowed", len(s), maxName)
	case !isLabel(s):
		return fmt.Errorf(
			"name %+q may only hold a-z, 0-9 and '-', and begins and ends with a letter or digit",
			s)
	case reservedNames[s]:
		return fmt.Errorf("name %q is reserved by Kubernetes or Argo CD", s)
	}
	return nil
}

// ValidateObjectName accepts the name of an existing Application, which people chose: a DNS
// subdomain.
func ValidateObjectName(s string) error {
	if s == "" || len(s) > 253 {
		return fmt.Errorf("an object's name has 1 to 253 characters")
	}
	for part := range strings.SplitSeq(s, ".") {
		if part == "" || !isLabel(part) {
			return fmt.Errorf("object name %+q may only hold a-z, 0-9, '-' and '.', and each part "+
				"between dots begins and ends with a letter or digit", s)
		}
	}
	return nil
}

// SplitObject splits an Application's object, a name or "<namespace>/<name>". The namespace is
// empty for Argo CD's own.
func SplitObject(object string) (namespace, name string) {
	if namespace, name, further := strings.Cut(object, "/"); further {
		return namespace, name
	}
	return "", object
}

// JoinObject is the inverse of SplitObject.
func JoinObject(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// ValidateObject accepts the object of an existing Application: see Adoption.Application.
func ValidateObject(s string) error {
	namespace, name := SplitObject(s)
	if strings.Contains(s, "/") {
		if err := ValidateNamespace(namespace); err != nil {
			return err
		}
	}
	return ValidateObjectName(name)
}

var reservedNames = map[string]bool{
	"default": true, "in-cluster": true, "argocd": true, "argosy": true,
	"kube-system": true, "kube-public": true, "kube-node-lease": true,
}

func isLabel(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alnum && (c != '-' || i == 0 || i == len(s)-1) {
			return false
		}
	}
	return s != ""
}

// ObjectName is a readable prefix and a hash of the length-prefixed identity, at most 63
// characters. The same identity has the same name on every engine, and two identities never share a
// name.
func ObjectName(kind ObjectKind, parts ...string) string {
	sum := identityHash(string(kind), parts)
	readable := strings.Join(parts, "-")
	if most := maxName - 1 - len(sum); len(readable) > most {
		readable = strings.TrimRight(readable[:most], "-")
	}
	return readable + "-" + sum
}

// HasIdentityForm reports whether an object's name could be one of ObjectName, of any identity.
func HasIdentityForm(name string) bool {
	at := strings.LastIndexByte(name, '-')
	return at > 0 && len(name)-at-1 == identityHashLen &&
		strings.Trim(name[at+1:], "abcdefghijklmnopqrstuvwxyz234567") == ""
}

const identityHashLen = 16 // characters in base32, of five bits each

// identityHash is 80 bits in lower-case base32. Each part is preceded by its length, so that
// ("a-b","c") and ("a","b-c") differ.
func identityHash(kind string, parts []string) string {
	h := sha256.New()
	write := func(s string) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	write(kind)
	for _, p := range parts {
		write(p)
	}
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(
		h.Sum(nil)[:identityHashLen*5/8]))
}

// ApplicationName is the object name of an Application.
func ApplicationName(id ApplicationID) string {
	return ObjectName(ObjectApplication, string(id.Tenant), string(id.Deployment),
		string(id.Environment))
}

// ProjectName is the object name of a tenant's AppProject. It depends on the tenant alone.
func ProjectName(t TenantName) string { return ObjectName(ObjectProject, string(t)) }

// ClusterName is the object name of an environment's cluster Secret, and the cluster's name within
// Argo CD.
func ClusterName(id EnvironmentID) string {
	return ObjectName(ObjectCluster, string(id.Tenant), string(id.Name))
}

// RepositoryName is the object name of a repository Secret. The part is that of
// CredentialSpec.Part.
func RepositoryName(id CredentialID, part string) string {
	if part != "" {
		return ObjectName(ObjectRepository, string(id.Tenant), string(id.Name), part)
	}
	return ObjectName(ObjectRepository, string(id.Tenant), string(id.Name))
}

// RepositoryPart identifies a repository, by its key, among those of one credential. It is a
// label's value.
func RepositoryPart(key string) string { return identityHash("part", []string{key}) }

// ServerKey makes an API server's URL unique per environment: Argo CD indexes clusters by URL and
// takes the first match, so two tenants with one API server would otherwise share a credential
// (argo-cd#4928, #9606). The query never reaches the API server.
func ServerKey(server string, id EnvironmentID) string {
	return server + "?managedEnvironment=" + ClusterName(id)
}
