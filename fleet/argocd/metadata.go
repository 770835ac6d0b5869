package argocd

import (
	"fmt"

	"argosy.dev/argosy/fleet"
)

// Labels and annotations of our objects. Together with Git they suffice to rebuild the mirror.
const (
	labelManagedBy   = "app.kubernetes.io/managed-by"
	labelTenant      = "argosy.dev/tenant"
	labelEnvironment = "argosy.dev/environment"
	labelDeployment  = "argosy.dev/deployment"
	labelCredential  = "argosy.dev/credential"
	labelSecretType  = "argocd.argoproj.io/secret-type"

	annotationEngine   = "argosy.dev/engine"
	annotationHold     = "argosy.dev/hold"
	annotationRevision = "argosy.dev/revision"
	annotationEpoch    = "argosy.dev/epoch"
	annotationHash     = "argosy.dev/hash"
	annotationSync     = "argosy.dev/sync" // the last requested SyncRun

	// annotationParked is the time since when the cluster of a parked Application is unreachable.
	// Without it, skip-reconcile was set by others.
	annotationParked = "argosy.dev/parked"

	annotationSkipReconcile = "argocd.argoproj.io/skip-reconcile"

	managedBy    = "argosy"
	fieldManager = "argosy"
)

// ownLabels and stableAnnotations are part of a manifest. The other annotations are added during
// the apply.
var (
	ownLabels = []string{labelManagedBy, labelTenant, labelEnvironment, labelDeployment,
		labelCredential, labelSecretType}
	stableAnnotations = []string{annotationEngine, annotationHold}
)

// metadata is the part of ObjectMeta that we write. It has no finalizers on purpose.
type metadata struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// object is one of our objects, as written.
type object struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metadata          `json:"metadata"`
	Spec       any               `json:"spec,omitempty"`
	Type       string            `json:"type,omitempty"` // of Secrets
	Data       map[string][]byte `json:"data,omitempty"` // of Secrets
}

// identity holds the values of an object's labels.
type identity struct {
	tenant      fleet.TenantName
	environment fleet.EnvironmentName
	deployment  fleet.DeploymentName
	credential  fleet.CredentialName
}

func (id identity) labels() map[string]string {
	m := map[string]string{labelManagedBy: managedBy, labelTenant: string(id.tenant)}
	for k, v := range map[string]string{labelEnvironment: string(id.environment),
		labelDeployment: string(id.deployment), labelCredential: string(id.credential)} {
		if v != "" {
			m[k] = v
		}
	}
	return m
}

// identityOf parses labels.
func identityOf(labels map[string]string) identity {
	return identity{
		tenant:      fleet.TenantName(labels[labelTenant]),
		environment: fleet.EnvironmentName(labels[labelEnvironment]),
		deployment:  fleet.DeploymentName(labels[labelDeployment]),
		credential:  fleet.CredentialName(labels[labelCredential]),
	}
}

// name returns the only valid object name of the identity. An object with another name is foreign
// despite its labels.
func (id identity) name(kind fleet.ObjectKind) string {
	switch kind {
	case fleet.ObjectProject:
		return fleet.ProjectName(id.tenant)
	case fleet.ObjectCluster:
		return fleet.ClusterName(fleet.EnvironmentID{Tenant: id.tenant, Name: id.environment})
	case fleet.ObjectRepository:
		return fleet.RepositoryName(fleet.CredentialID{Tenant: id.tenant, Name: id.credential})
	case fleet.ObjectApplication:
		return fleet.ApplicationName(fleet.ApplicationID{
			Tenant: id.tenant, Deployment: id.deployment, Environment: id.environment})
	}
	return ""
}

// check rejects invalid names, and an object name that does not match the identity.
func (id identity) check(key fleet.ObjectKey) error {
	names := map[string]string{"tenant": string(id.tenant)}
	switch key.Kind {
	case fleet.ObjectCluster:
		names["environment"] = string(id.environment)
	case fleet.ObjectRepository:
		names["credential"] = string(id.credential)
	case fleet.ObjectApplication:
		names["environment"], names["deployment"] = string(id.environment), string(id.deployment)
	}
	for what, name := range names {
		if err := fleet.ValidateName(name); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	if want := id.name(key.Kind); key.Name != want {
		return fmt.Errorf("object name %q is not the name %q of its identity", key.Name, want)
	}
	return nil
}
