package fleet

// ServiceAccount names a service account of a cluster.
type ServiceAccount struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// AccountOf returns the service account that Argo CD authenticates as in an environment without a
// credential of its own: it has the environment's name and is in a namespace of the cluster that
// no declaration can name. The platform creates it there and binds its rights.
func AccountOf(id EnvironmentID) ServiceAccount {
	return ServiceAccount{Namespace: TenantNamespace + string(id.Tenant), Name: string(id.Name)}
}

// AccountAnnotation is the annotation of a cluster Secret with the token of a service account. It
// has the account's namespace and name. Argosy renews the token.
const AccountAnnotation = "argosy.dev/service-account"

// TenantNamespace begins the name of the namespace of a tenant's Secrets and service accounts.
const TenantNamespace = "argosy-tenant-"

// String is namespace/name.
func (a ServiceAccount) String() string { return a.Namespace + "/" + a.Name }
