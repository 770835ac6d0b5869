package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// ServiceAccount names a service account of a cluster.
type ServiceAccount struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// AccountOf returns the service account that Argo CD authenticates as in an environment without a
// credential of its own: it has the environment's name and is in a namespace of the cluster that
// no declaration can name. The platform creates it there and binds its rights.
func AccountOf(id EnvironmentID) ServiceAccount {
	return ServiceAccount{Namespace: TenantNamespace(id.Tenant), Name: string(id.Name)}
}

// AccountAnnotation is the annotation of a cluster Secret with the token of a service account. It
// has the account's namespace and name. Argosy renews the token.
const AccountAnnotation = "argosy.dev/service-account"

// TenantNamespace returns the namespace of a tenant's Secrets and service accounts:
// "argosy-tenant-<tenant>" or, for a name with more than 49 characters,
// "argosy-long-tenant-<its first 23 characters>-<the first 20 digits of its SHA-256>". No tenant's
// name gives the namespace of another: the two forms begin differently. The chart of the control
// plane computes the same.
func TenantNamespace(t TenantName) string {
	const plain, long = "argosy-tenant-", "argosy-long-tenant-"
	if len(plain)+len(t) <= maxName {
		return plain + string(t)
	}
	sum := sha256.Sum256([]byte(t))
	return long + strings.TrimRight(string(t[:23]), "-") + "-" + hex.EncodeToString(sum[:10])
}

// String is namespace/name.
func (a ServiceAccount) String() string { return a.Namespace + "/" + a.Name }
