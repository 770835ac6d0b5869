package fleet

import "strconv"

// Destination is an exact (server, namespace) pair of an AppProject or an Application. Server is
// the environment's server key.
type Destination struct {
	Server    string `json:"server"`
	Namespace string `json:"namespace"`
	// Granted is set for a namespace that only an EnvironmentGrant opens: one that is reserved, or
	// the own one of the engine.
	Granted bool `json:"granted,omitempty"`
	// OnEngine is set if Server is the own cluster of this engine.
	OnEngine EngineName `json:"onEngine,omitempty"`
	// All is set instead of Namespace in the AppProject of a tenant that is granted all namespaces
	// of the cluster.
	All bool `json:"all,omitempty"`
}

// Application is the desired Application of one deployment in one environment.
type Application struct {
	ID         ApplicationID
	Name       string // object name, the same on every engine
	Project    string
	Sources    []Source // one or several, override of the environment merged in
	SourceList bool     `json:",omitempty"` // the declaration has sources, even if there is one
	// the platform trusts each artifact of Sources (Allowances.Artifacts)
	TrustedArtifacts bool `json:",omitempty"`
	Destination      Destination
	Sync             Sync
	Hold             SyncRunName // a SyncRun that keeps automation off; empty: none
	DeletionPolicy   DeletionPolicy
	// the existing Application that it takes over: see Adoption.Application; "" for none
	Adopt string `json:",omitempty"`
	// create it, with the name Adopt, if there is none
	AdoptOrCreate bool `json:",omitempty"`

	Wave int `json:",omitempty"` // see WaveAnnotation

	IgnoreDifferences    []IgnoreDifference `json:",omitempty"`
	RevisionHistoryLimit *int               `json:",omitempty"` // nil: Argo CD's default
	Info                 []Info             `json:",omitempty"`
	Links                []Link             `json:",omitempty"`
	Notifications        []Notification     `json:",omitempty"`
	WatchPaths           []string           `json:",omitempty"`
}

// WaveAnnotation is the annotation of an Application whose wave is not 0. A worker applies a change
// of an Application after all Applications of its environment with a lower wave are applied, Synced
// and Healthy, and deletes it after those with a higher wave that are deleted too.
const WaveAnnotation = "argosy.dev/wave"

// Bounds of a wave.
const (
	MinWave = -1000
	MaxWave = 1000
)

// ParseWave reads the value of WaveAnnotation. A missing or malformed value is wave 0.
func ParseWave(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < MinWave || n > MaxWave {
		return 0
	}
	return n
}

// Project holds the permissions of a tenant on one engine. Every list is exact: no pattern
// character reaches Argo CD.
type Project struct {
	Tenant           TenantName
	Name             string
	SourceRepos      []string
	Destinations     []Destination
	ClusterResources []GroupKind
	// AllClusterResources is set if each environment with cluster-scoped resources on the engine is
	// granted all kinds.
	AllClusterResources bool `json:",omitempty"`
	// SourceNamespaces are those of EngineSpec.ApplicationNamespacesOf.
	SourceNamespaces []string `json:",omitempty"`
	// AdoptionPaused keeps the engine from adopting Applications of the tenant.
	AdoptionPaused PausedBy `json:",omitempty"`
	// Freezes are the periods in which Argo CD does not sync Applications of the tenant by itself.
	Freezes []FreezeWindow `json:",omitempty"`
}

// PausedBy is the declaration that pauses adoptions; empty: none does.
type PausedBy string

// The declarations that pause adoptions.
const (
	PausedByTenant PausedBy = "tenant"
	PausedByEngine PausedBy = "engine"
)

// Cluster is an environment's API server as it is configured on one engine.
type Cluster struct {
	ID      EnvironmentID
	Name    string
	Project string
	// server key: the URL with a query that makes it unique per environment (ServerKey)
	Server     string
	OnEngine   EngineName `json:",omitempty"` // set if Server is the own cluster of this engine
	CAData     string
	Namespaces []string
	// those of Namespaces that only an EnvironmentGrant opens
	Granted       []string `json:",omitempty"`
	AllNamespaces bool     `json:",omitempty"` // instead of Namespaces
	// Unused is set instead of Namespaces if no Application uses a namespace of the environment.
	Unused           bool `json:",omitempty"`
	ClusterResources bool
	Credential       CredentialSource
	// ServiceAccount is set if Argo CD authenticates as a service account of the cluster. Argosy
	// requests its tokens and renews them.
	ServiceAccount *ServiceAccount `json:",omitempty"`
	// Cloud is set if Argo CD authenticates as an identity of a cloud.
	Cloud *CloudIdentity `json:",omitempty"`
	// Evacuated is the environment's: see Placement.
	Evacuated []EngineName `json:",omitempty"`
	// Slices are those of a split environment on the engine; nil: it is not split.
	Slices []Slice `json:",omitempty"`
}

// Repository is a private repository of one tenant as it is configured on one engine.
type Repository struct {
	ID         CredentialID
	Part       string `json:",omitempty"` // of a credential for a folder: RepositoryPart of URL
	Name       string
	Project    string
	URL        string
	Type       RepositoryType `json:",omitempty"` // empty: git
	Credential CredentialSource
}

// CredentialSource locates the content of a secret that is read when an object is applied. It never
// holds the content.
type CredentialSource struct {
	Tenant TenantName `json:"tenant"`
	// Folder is the folder of the declaration that names the secret: "environments" or
	// "credentials". It is empty for the platform's own secrets.
	Folder string `json:"folder,omitempty"`
	// Name is empty if the connection to the engine is the credential: see Cluster.ServiceAccount.
	Name string `json:"name"`
	// blob id of the SOPS-encrypted file next to the declaration; empty: the directory or the
	// namespace
	Sealed string `json:"sealed,omitempty"`
}

// EncryptedForKey is the key under which an encrypted file holds, as an encrypted value, the path
// that the file is for. The control plane compares the value with EncryptedFor after decryption.
const EncryptedForKey = "argosy.dev/for"

const encryptedSuffix = ".sops.yaml"

// EncryptedFor is the value that the encrypted file of this source must hold under EncryptedForKey:
// its path without the suffix. A copy of the file under another path holds another value.
func (s CredentialSource) EncryptedFor() string {
	return "tenants/" + string(s.Tenant) + "/" + s.Folder + "/" + s.Name
}

// EncryptedPath is the path of the encrypted file of this source in the config repo.
func (s CredentialSource) EncryptedPath() string { return s.EncryptedFor() + encryptedSuffix }

// ObjectKind is the kind of an object that Argosy manages on an engine.
type ObjectKind string

// Object kinds, in creation order. They are deleted in reverse order: if a cluster Secret is
// deleted before its Applications, Argo CD strips their finalizers and silently orphans the
// workloads.
const (
	ObjectProject     ObjectKind = "AppProject"
	ObjectCluster     ObjectKind = "Cluster"
	ObjectRepository  ObjectKind = "Repository"
	ObjectApplication ObjectKind = "Application"
)

// CredentialFolder is the folder of the declarations that an object of this kind takes its
// credential from; "" for the kinds that have none.
func (k ObjectKind) CredentialFolder() string {
	switch k {
	case ObjectCluster:
		return "environments"
	case ObjectRepository:
		return "credentials"
	}
	return ""
}

// Rank orders kinds for creation: lower first.
func (k ObjectKind) Rank() int {
	switch k {
	case ObjectProject:
		return 0
	case ObjectCluster, ObjectRepository:
		return 1
	default:
		return 2
	}
}

// ObjectKey identifies one object of one engine.
type ObjectKey struct {
	Engine EngineName `json:"engine"`
	Kind   ObjectKind `json:"kind"`
	Name   string     `json:"name"`
}

// Object is one desired object before it is rendered. Exactly one of the pointers is set.
type Object struct {
	Key         ObjectKey
	Project     *Project
	Cluster     *Cluster
	Repository  *Repository
	Application *Application
}

// Manifest is an object as it is applied: canonical JSON without any secret content, and the
// SHA-256 of those bytes in hexadecimal. Annotations for revision, epoch and hash are added during
// apply and are not part of the bytes.
type Manifest struct {
	Body []byte
	Hash string
}
