package fleet

import (
	"cmp"
	"errors"
	"slices"
	"strings"
)

// Key is the identity of a declaration. It follows from the path alone. Tenant is empty for the
// kinds under `fleet/`.
type Key struct {
	Kind   Kind       `json:"kind"`
	Tenant TenantName `json:"tenant,omitempty"`
	Name   string     `json:"name"`
}

// String is "Kind tenant/name", or "Kind name" for a kind of the platform.
func (k Key) String() string {
	if k.Tenant == "" {
		return string(k.Kind) + " " + k.Name
	}
	return string(k.Kind) + " " + string(k.Tenant) + "/" + k.Name
}

// Declaration is one file of the config repo, decoded. Exactly one of the pointers is set, the one
// that Key.Kind names.
type Declaration struct {
	Key    Key               `json:"key"`
	Path   string            `json:"path"`
	Blob   string            `json:"blob"` // git blob id of the decoded bytes
	Labels map[string]string `json:"labels,omitempty"`

	Fleet       *FleetSpec           `json:"fleet,omitempty"`
	Engine      *EngineSpec          `json:"engine,omitempty"`
	Pool        *EnginePoolSpec      `json:"pool,omitempty"`
	Cluster     *PlatformClusterSpec `json:"cluster,omitempty"`
	Tenant      *TenantSpec          `json:"tenant,omitempty"`
	Policy      *PolicySpec          `json:"policy,omitempty"`
	Access      *AccessSpec          `json:"access,omitempty"`
	Environment *EnvironmentSpec     `json:"environment,omitempty"`
	Deployment  *DeploymentSpec      `json:"deployment,omitempty"`
	Set         *SetSpec             `json:"set,omitempty"`
	Credential  *CredentialSpec      `json:"credential,omitempty"`
	SyncRun     *SyncRunSpec         `json:"syncRun,omitempty"`
	// Defaults are those of a tenant (tenants/<tenant>/defaults.yaml); the fleet's are in Fleet.
	Defaults      *Defaults             `json:"defaults,omitempty"`
	Notifications *NotificationSettings `json:"notifications,omitempty"`
	Sealed        *SealedSpec           `json:"sealed,omitempty"`
}

// FleetSpec holds the guards and defaults of the whole fleet (fleet/fleet.yaml, exactly one).
type FleetSpec struct {
	// owners of fleet/, as Tenant.owners; empty: the administrators of the config repo on its Git
	// host
	Owners []string `json:"owners,omitempty"`
	Guards Guards   `json:"guards,omitempty"`
	// exact hosts (with :port when not the default; "http://host" allows it without TLS) that a
	// repoURL may name
	GitHosts []string `json:"gitHosts,omitempty"`
	// SharedRepositories are repositories, or folders of them with a trailing slash, that every
	// tenant with a grant may read in full: with them, tenants share an engine and its clones
	// although one of them has a credential of its own.
	SharedRepositories []string `json:"sharedRepositories,omitempty"`
	// ClusterHosts are the exact hosts (host or host:port) of API servers that may have internal
	// addresses, such as 127.0.0.1 of a lab: see InternalServer.
	ClusterHosts []string `json:"clusterHosts,omitempty"`
	// RefusePrivateClusters also refuses API servers at addresses of private networks, unless
	// ClusterHosts lists them.
	RefusePrivateClusters bool           `json:"refusePrivateClusters,omitempty"`
	Placement             FleetPlacement `json:"placement,omitzero"`
	Remedies              FleetRemedies  `json:"remedies,omitzero"`
	Freezes               []Freeze       `json:"freezes,omitempty"` // of all tenants
	// Rings are the versions of Argo CD of managed engines, in the order in which they change.
	Rings []Ring `json:"rings,omitempty"`
	// Bulletins announce security releases of Argo CD.
	Bulletins []Bulletin `json:"bulletins,omitempty"`
	// Prometheus measures what gates waves; nil: no wave has a metric.
	Prometheus    *Prometheus         `json:"prometheus,omitempty"`
	Notifications *FleetNotifications `json:"notifications,omitempty"`
	Defaults      Defaults            `json:"defaults,omitempty"`
}

// FleetPlacement limits what placement does in the whole fleet.
type FleetPlacement struct {
	Churn     Churn     `json:"churn,omitzero"`
	Rebalance Rebalance `json:"rebalance,omitzero"`
	// what happens to an environment whose engine violates a constraint; "" means Stay
	Misplaced MisplacedPolicy `json:"misplaced,omitempty"`
	// what happens to an environment that is too large for every engine; "" means Forbidden
	Slices SlicesPolicy `json:"slices,omitempty"`
}

// SlicesPolicy is whether Argosy splits an environment that fits on no engine (ADR 0066).
type SlicesPolicy string

// Policies. With SlicesForbidden, only a person splits environments.
const (
	SlicesForbidden SlicesPolicy = "Forbidden"
	SlicesAllowed   SlicesPolicy = "Allowed"
)

// Rebalance is how engines with a high measured load are relieved.
type Rebalance struct {
	Mode RebalanceMode `json:"mode,omitempty"` // default Propose
}

// RebalanceMode is who decides about the moves of a rebalance.
type RebalanceMode string

// Modes. With Propose, a person accepts each proposal; with Act, Argosy does.
const (
	RebalanceOff     RebalanceMode = "Off"
	RebalancePropose RebalanceMode = "Propose"
	RebalanceAct     RebalanceMode = "Act"
)

// OrDefaults returns the rebalance with the defaults of omitted fields.
func (r Rebalance) OrDefaults() Rebalance { return Rebalance{cmp.Or(r.Mode, RebalancePropose)} }

// MisplacedPolicy is what happens to an environment whose engine violates one of its constraints.
type MisplacedPolicy string

// Policies for misplaced environments: they stay until a person moves them, or Argosy moves them
// within the budget of their engine.
const (
	MisplacedStay MisplacedPolicy = "Stay"
	MisplacedMove MisplacedPolicy = "Move"
)

// Churn limits how many environments leave one engine that drains, or that has misplaced
// environments. Each engine has a budget of its own: no drain waits for another. A rebalance has
// what the open moves of all engines leave of it.
type Churn struct {
	AtOnce  int `json:"atOnce,omitempty"`  // environments under way; 1..100; default 2
	PerHour int `json:"perHour,omitempty"` // environments that begin; 1..10000; default 30
}

// OrDefaults returns the budget with the defaults of omitted fields.
func (c Churn) OrDefaults() Churn {
	return Churn{AtOnce: cmp.Or(c.AtOnce, 2), PerHour: cmp.Or(c.PerHour, 30)}
}

// Guards limit how many Applications of one tenant may be deleted without an approval, summed over
// Window. Fleet limits the deletions of all tenants together.
type Guards struct {
	MaxDeletes int `json:"maxDeletes,omitempty"` // Applications; default 20
	// of the Applications at the start of Window; 1..100; default 20
	MaxDeletePercent int `json:"maxDeletePercent,omitempty"`
	// number of deletions that are allowed regardless of the percentage; default 5
	AlwaysAllowed int      `json:"alwaysAllowed,omitempty"`
	Window        Duration `json:"window,omitempty"` // default 1h; 1m..168h

	Fleet *FleetGuards `json:"fleet,omitempty"`
}

// FleetGuards limit the deletions of all tenants together over Guards.Window. They are wider than
// the limit of one tenant, so that no tenant can use them up alone.
type FleetGuards struct {
	// Applications; default 5 times Guards.MaxDeletes
	MaxDeletes int `json:"maxDeletes,omitempty"`
	// 1..100; default Guards.MaxDeletePercent
	MaxDeletePercent int `json:"maxDeletePercent,omitempty"`
	AlwaysAllowed    int `json:"alwaysAllowed,omitempty"` // default Guards.AlwaysAllowed
}

// Whole returns the guards for all tenants together, defaults applied.
func (g Guards) Whole() Guards {
	var own FleetGuards
	if g.Fleet != nil {
		own = *g.Fleet
	}
	return Guards{
		MaxDeletes:       cmp.Or(own.MaxDeletes, fleetShare*g.MaxDeletes),
		MaxDeletePercent: cmp.Or(own.MaxDeletePercent, g.MaxDeletePercent),
		AlwaysAllowed:    cmp.Or(own.AlwaysAllowed, g.AlwaysAllowed),
		Window:           g.Window,
	}
}

// fleetShare is the number of tenants that may use up their own limit before the fleet's is
// reached.
const fleetShare = 5

// Defaults apply to every deployment that omits the field: of the fleet, or of a tenant, whose own
// win over the fleet's.
type Defaults struct {
	Sync                 SyncSettings       `json:"sync,omitzero"`
	DeletionPolicy       DeletionPolicy     `json:"deletionPolicy,omitempty"`
	RevisionHistoryLimit *int               `json:"revisionHistoryLimit,omitempty"`
	IgnoreDifferences    []IgnoreDifference `json:"ignoreDifferences,omitempty"`
	Rollout              *Rollout           `json:"rollout,omitempty"`
}

// TenantDefaultsName is the name of a tenant's defaults, and of their file without ".yaml".
const TenantDefaultsName = "defaults"

// Or returns the defaults with every omitted field taken from other.
func (d Defaults) Or(other Defaults) Defaults {
	d.Sync = d.Sync.Or(other.Sync)
	d.DeletionPolicy = cmp.Or(d.DeletionPolicy, other.DeletionPolicy)
	d.RevisionHistoryLimit = cmp.Or(d.RevisionHistoryLimit, other.RevisionHistoryLimit)
	if len(d.IgnoreDifferences) == 0 {
		d.IgnoreDifferences = other.IgnoreDifferences
	}
	d.Rollout = cmp.Or(d.Rollout, other.Rollout)
	return d
}

// EngineSpec is one Argo CD instance (fleet/engines/<name>.yaml).
type EngineSpec struct {
	ArgoCD      ArgoCDInstance `json:"argocd"`
	Connection  Connection     `json:"connection"`
	Region      string         `json:"region"`
	Capacity    Capacity       `json:"capacity"`
	DedicatedTo []TenantName   `json:"dedicatedTo,omitempty"` // empty: shared
	// the platform's own tenant: it may be granted the Argo CD's namespace, and kube-* of its
	// cluster, beside other tenants
	PlatformTenant TenantName `json:"platformTenant,omitempty"`
	// an environment is placed here only if its tenant tolerates each
	Taints []Taint     `json:"taints,omitempty"`
	State  EngineState `json:"state,omitempty"` // default Active
	// release ring of its Argo CD version; default "stable"
	Ring string `json:"ring,omitempty"`
	// no Application on the engine is adopted; adopted ones stay as they are
	PauseAdoption bool `json:"pauseAdoption,omitempty"`
	// RFC 3339; all Pods of the repo-server are younger: no clone that a tenant left before exists
	RepoServerRestartedAt string `json:"repoServerRestartedAt,omitempty"`
	// namespaces besides ArgoCD.Namespace with Applications that a tenant may adopt
	ApplicationNamespaces []ApplicationNamespace `json:"applicationNamespaces,omitempty"`
	// where the load of its components is measured; nil: placement counts Applications
	Metrics *EngineMetrics `json:"metrics,omitempty"`
	// restarts that differ from the Fleet's: see FleetRemedies.Of
	Remedies *Remedies `json:"remedies,omitempty"`
	// Pool is set if the engine is an instance of a pool
	Pool *PoolMember `json:"pool,omitempty"`
}

// ApplicationNamespace gives the Applications of a namespace to one tenant. Its AppProject on the
// engine permits them, so that every account that may write Applications there may deploy as the
// tenant, within that AppProject.
type ApplicationNamespace struct {
	Namespace string     `json:"namespace"`
	Tenant    TenantName `json:"tenant"`
}

// ApplicationNamespacesOf returns the namespaces with Applications of a tenant, sorted.
func (e *EngineSpec) ApplicationNamespacesOf(t TenantName) (namespaces []string) {
	for _, n := range e.ApplicationNamespaces {
		if n.Tenant == t {
			namespaces = append(namespaces, n.Namespace)
		}
	}
	slices.Sort(namespaces)
	return namespaces
}

// Serves reports whether the engine is dedicated to the tenant and to no other.
func (e *EngineSpec) Serves(t TenantName) bool {
	return len(e.DedicatedTo) == 1 && e.DedicatedTo[0] == t
}

// Trusts reports whether the tenant may own the instance: the engine serves no other, or the
// platform names the tenant as its own.
func (e *EngineSpec) Trusts(t TenantName) bool {
	return e.Serves(t) || t != "" && e.PlatformTenant == t
}

// ArgoCDInstance is the namespace of the instance's Applications and the mark on its resources.
type ArgoCDInstance struct {
	Namespace string `json:"namespace"`
	// unique in the fleet, never empty (argo-cd#11402, #13079)
	InstallationID string `json:"installationID"`
	// Argosy installs and upgrades the instance (ADR 0071)
	Managed bool `json:"managed,omitempty"`
	// what its components have; nil: Argosy sets no size
	Size *InstanceSize `json:"size,omitempty"`
}

// Same reports whether both are one instance. A managed one and one that is not are the same.
func (a ArgoCDInstance) Same(b ArgoCDInstance) bool {
	return a.Namespace == b.Namespace && a.InstallationID == b.InstallationID
}

// Connection selects how the control plane reaches the instance. Exactly one is set.
type Connection struct {
	InCluster     bool             `json:"inCluster,omitempty"`
	KubeconfigRef *SecretRef       `json:"kubeconfigRef,omitempty"`
	Agent         *AgentConnection `json:"agent,omitempty"`
}

// Capacity limits what placement may assign to an engine; 0 means nothing.
type Capacity struct {
	Applications int `json:"applications"`
	Environments int `json:"environments"`
}

// Taint repels environments from an engine unless their tenant tolerates it. Both are exact.
type Taint struct {
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
}

// EngineState restricts what placement may do with an engine.
type EngineState string

// Engine states. A cordoned engine gets no new environment. A draining engine gets none either, and
// its environments move away.
const (
	EngineActive   EngineState = "Active"
	EngineCordoned EngineState = "Cordoned"
	EngineDraining EngineState = "Draining"
)

// TenantSpec is the platform's grant to one tenant (fleet/tenants/<name>.yaml).
type TenantSpec struct {
	// "github:<login>", "github:<organization>/<team>" or "group:<name>": see ParseOwner
	Owners []string `json:"owners"`
	// as Owners: who may act in the tenant, and who may only read; owners are members who approve
	Members []string `json:"members,omitempty"`
	Viewers []string `json:"viewers,omitempty"`
	Quota   Quota    `json:"quota"`
	// exact URL, or everything below it if it ends in a slash
	Repositories []string `json:"repositories"`
	// API servers: exact URL, ".domain" for every host below it, "cluster:<name>" or
	// "engine:<name>"; none: none
	Clusters []string `json:"clusters,omitempty"`
	// on API servers that are shared with other tenants: exact name, or "prefix-"
	Namespaces []string        `json:"namespaces,omitempty"`
	Placement  TenantPlacement `json:"placement,omitempty"`
	// cluster-scoped kinds that its environments may allow; exact
	ClusterResources []GroupKind `json:"clusterResources,omitempty"`
	// what single environments of the tenant may do beyond that
	Environments []EnvironmentGrant `json:"environments,omitempty"`
	Allow        Allowances         `json:"allow,omitempty"`
	// no Application of the tenant is adopted; adopted ones stay as they are
	PauseAdoption bool     `json:"pauseAdoption,omitempty"`
	Freezes       []Freeze `json:"freezes,omitempty"` // besides the Fleet's
	// the ring whose version the agents of the tenant's environments follow; none: they stay as
	// they are
	AgentRing string `json:"agentRing,omitempty"`
}

// AgentRingOf returns the ring that the agent of an environment of the tenant follows, if it has
// one; "" for none.
func (t *TenantSpec) AgentRingOf(name EnvironmentName) string {
	if t == nil {
		return ""
	}
	return cmp.Or(t.GrantTo(name).AgentRing, t.AgentRing)
}

// Allowances are the fields of declarations that are not for every tenant.
type Allowances struct {
	Replace bool `json:"replace,omitempty"` // sync.replace
	Adopt   bool `json:"adopt,omitempty"`   // adopt of deployments
	// keys of sync.managedNamespaceMetadata: exact, or "domain/" for every key of that domain
	NamespaceMetadata []string `json:"namespaceMetadata,omitempty"`
	// OCI artifacts that engines shared with other tenants may render: exact URL, or everything
	// below it if it ends in a slash
	Artifacts []string `json:"artifacts,omitempty"`
	// targetRevision of a chart or artifact may be a range of versions, of which Argo CD takes the
	// newest
	VersionRanges bool `json:"versionRanges,omitempty"`
	// versions that kustomize.version may name: those that the engines have
	KustomizeVersions []string `json:"kustomizeVersions,omitempty"`
	Plugins           []string `json:"plugins,omitempty"` // that plugin.name may name
	// services of notifications
	Notifications []NotificationGrant `json:"notifications,omitempty"`
}

// TrustsArtifact reports whether the platform trusts a source that is an OCI artifact.
func (t *TenantSpec) TrustsArtifact(s Source) bool {
	return t != nil && RepositoryGranted(t.Allow.Artifacts, s.RepoURL)
}

// EnvironmentGrant is what the platform grants to one environment of a tenant and to no other.
type EnvironmentGrant struct {
	Name EnvironmentName `json:"name"`
	// exact names that the environment may list although they are reserved: see ReservedNamespace
	Namespaces []string `json:"namespaces,omitempty"`
	// cluster-scoped kinds besides TenantSpec.ClusterResources; exact
	ClusterResources []GroupKind `json:"clusterResources,omitempty"`
	// every namespace of the cluster, which no other tenant may use
	AllNamespaces bool `json:"allNamespaces,omitempty"`
	// every cluster-scoped kind of the cluster, which no other tenant may use
	AllClusterResources bool `json:"allClusterResources,omitempty"`
	// instead of TenantSpec.AgentRing
	AgentRing string `json:"agentRing,omitempty"`
}

// GrantTo returns the tenant's grant for one of its environments. Without one it is empty.
func (t *TenantSpec) GrantTo(name EnvironmentName) EnvironmentGrant {
	if t != nil {
		for _, g := range t.Environments {
			if g.Name == name {
				return g
			}
		}
	}
	return EnvironmentGrant{Name: name}
}

// ClusterScope is the cluster-scoped kinds that an environment may deploy.
type ClusterScope struct {
	All   bool
	Kinds []GroupKind // without All; sorted
}

// ScopeOf returns the cluster-scoped kinds that the tenant may deploy in one of its environments. A
// cluster Secret with all namespaces is not namespaced: then the environment's own kinds limit it,
// and a Namespace is one of them.
func (t *TenantSpec) ScopeOf(name EnvironmentName, env *EnvironmentSpec) (scope ClusterScope) {
	if t == nil {
		return scope
	}
	grant := t.GrantTo(name)
	if env.ClusterResources {
		scope.Kinds = slices.Concat(t.ClusterResources, grant.ClusterResources)
		scope.All = grant.AllClusterResources
	}
	if env.AllNamespaces {
		scope.Kinds = append(scope.Kinds, KindNamespace)
	}
	if scope.All {
		scope.Kinds = nil
	}
	slices.SortFunc(scope.Kinds, func(a, b GroupKind) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind))
	})
	scope.Kinds = slices.Compact(scope.Kinds)
	return scope
}

// Equal reports whether both scopes have the same kinds.
func (s ClusterScope) Equal(o ClusterScope) bool {
	return s.All == o.All && slices.Equal(s.Kinds, o.Kinds)
}

// And returns the kinds that both scopes have.
func (s ClusterScope) And(o ClusterScope) ClusterScope {
	switch {
	case s.All:
		return o
	case o.All:
		return s
	}
	return ClusterScope{Kinds: slices.DeleteFunc(slices.Clone(s.Kinds), func(k GroupKind) bool {
		return !slices.Contains(o.Kinds, k)
	})}
}

// ClusterWide reports whether Argo CD may manage cluster-scoped resources of the environment, so
// that its AppProject alone limits their kinds.
func (s *EnvironmentSpec) ClusterWide() bool { return s.ClusterResources || s.AllNamespaces }

// KindNamespace is Kubernetes' kind of namespaces.
var KindNamespace = GroupKind{Kind: "Namespace"}

// Quota limits what a tenant may declare. 0 means none.
type Quota struct {
	Environments int `json:"environments"`
	Deployments  int `json:"deployments"`
	Applications int `json:"applications"`
}

// TenantPlacement constrains which engines may serve the tenant.
type TenantPlacement struct {
	Regions []string `json:"regions,omitempty"` // empty: any
	// only engines that name the tenant in dedicatedTo
	Dedicated bool `json:"dedicated,omitempty"`
	// only engines whose dedicatedTo names the tenant and no other
	Alone bool `json:"alone,omitempty"`
	// labels that the engine must carry
	EngineSelector *LabelSelector `json:"engineSelector,omitempty"`
	// taints that do not repel the tenant
	Tolerations []Taint `json:"tolerations,omitempty"`
}

// GroupKind names a Kubernetes kind exactly; group "" is the core group.
type GroupKind struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
}

// EnvironmentSpec is a cluster to deploy to (tenants/<tenant>/environments/<name>.yaml). Exactly
// one of Cluster and Agent is set.
type EnvironmentSpec struct {
	Cluster          *ClusterSpec `json:"cluster,omitempty"`
	Agent            *AgentSpec   `json:"agent,omitempty"`
	Namespaces       []string     `json:"namespaces"`              // explicit; never a glob
	AllNamespaces    bool         `json:"allNamespaces,omitempty"` // instead of Namespaces
	ClusterResources bool         `json:"clusterResources,omitempty"`
	Region           string       `json:"region"`
	// values of ${environment.variables.<name>} in the deployments that go here
	Variables map[string]string `json:"variables,omitempty"`
}

// ClusterSpec is the API server of an environment as an engine reaches it. Exactly one of Server,
// Ref and Engine is set.
type ClusterSpec struct {
	Server string `json:"server,omitempty"` // https URL without path, query, userinfo
	// a Cluster of the platform, which has the server, its CA and the identity
	Ref PlatformClusterName `json:"ref,omitempty"`
	// the engine on whose own cluster the environment is
	Engine         EngineName `json:"engine,omitempty"`
	CAData         string     `json:"caData,omitempty"`
	CredentialsRef SecretRef  `json:"credentialsRef"`
}

// SecretRef names a secret of the declaration's own tenant; it can never name another tenant's.
type SecretRef struct {
	Name string `json:"name"`
}

// CredentialSpec is access to a private repository, or to all repositories of a folder
// (tenants/<tenant>/credentials/<name>.yaml).
type CredentialSpec struct {
	RepoURL        string         `json:"repoURL"`        // a folder ends in a slash
	Type           RepositoryType `json:"type,omitempty"` // see TypeOf
	CredentialsRef SecretRef      `json:"credentialsRef"`
}

// RepositoryType is what a repository holds.
type RepositoryType string

// Types of repositories.
const (
	RepositoryGit  RepositoryType = "git"
	RepositoryHelm RepositoryType = "helm"
	RepositoryOCI  RepositoryType = "oci"
)

// TypeOf returns the type of the credential's repository. The default of a registry, which has no
// scheme or oci://, is oci, that of other URLs git.
func (c *CredentialSpec) TypeOf() RepositoryType {
	if c.Type != "" {
		return c.Type
	}
	if u, _, err := ParseRepoScope(c.RepoURL); err == nil && u.OCI() {
		return RepositoryOCI
	}
	return RepositoryGit
}

// Scope is the key of the repositories that the credential is for: see RepoScopeKey. A refused URL
// is its own key, and matches no other.
func (c *CredentialSpec) Scope() string {
	key, err := RepoScopeKey(c.RepoURL)
	if err != nil {
		return c.RepoURL
	}
	return key
}

// Part distinguishes the Secrets of the repositories that one credential serves: "" if it serves
// one repository, else a hash of the repository's key.
func (c *CredentialSpec) Part(key string) string {
	if !strings.HasSuffix(c.Scope(), "/") {
		return ""
	}
	return RepositoryPart(key)
}

// Fits reports why a repository of the type cannot have the URL, or nil.
func (t RepositoryType) Fits(u RepoURL) error {
	switch {
	case t == RepositoryOCI && !u.OCI():
		return errors.New("a registry of OCI charts is written without a scheme, e.g. " +
			"registry.example.com/charts, and that of artifacts with oci://")
	case t != RepositoryOCI && u.Artifact():
		return errors.New("the credential of oci:// is of type: oci")
	case t != RepositoryOCI && u.OCI():
		return errors.New("without a scheme, this is a registry of OCI charts: write type: oci, " +
			"or https:// before the URL")
	case t == RepositoryHelm && !u.Helm():
		return errors.New("a Helm repository is read over https")
	case t == RepositoryGit && !u.Git():
		return errors.New("the URL names no repository on the host; only a Helm repository, of " +
			"type: helm, may be the root of a host")
	}
	return nil
}

// DeploymentSpec is one source, or several that Argo CD joins, in one or many environments
// (tenants/<tenant>/deployments/<name>.yaml).
type DeploymentSpec struct {
	// exactly one of Source and Sources is set; AllSources returns either
	Source         Source         `json:"source,omitzero"`
	Sources        []Source       `json:"sources,omitempty"`
	Destination    Destinations   `json:"destination"`
	Sync           SyncSettings   `json:"sync,omitempty"`
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"` // default Delete
	Overrides      []Override     `json:"overrides,omitempty"`
	Adopt          []Adoption     `json:"adopt,omitempty"`

	// order among the Applications of one environment: see WaveAnnotation
	Wave int `json:"wave,omitempty"`

	IgnoreDifferences    []IgnoreDifference `json:"ignoreDifferences,omitempty"`
	RevisionHistoryLimit *int               `json:"revisionHistoryLimit,omitempty"`
	Info                 []Info             `json:"info,omitempty"`
	Links                []Link             `json:"links,omitempty"`
	Notifications        []Notification     `json:"notifications,omitempty"`
	// messages of Argosy itself: see SubscriptionsOf
	Subscriptions []Subscription `json:"subscriptions,omitempty"`
	// paths without a change in which Argo CD does not render a commit again: see CheckWatchPath
	WatchPaths []string `json:"watchPaths,omitempty"`
	// the order in which a change reaches the environments; nil: that of the defaults
	Rollout *Rollout `json:"rollout,omitempty"`
}

// Adoption names the existing Application that a deployment takes over in one environment.
type Adoption struct {
	Environment EnvironmentName `json:"environment"`
	// its object, which it keeps: a name in Argo CD's namespace, or "<namespace>/<name>"
	Application string `json:"application"`
	// create an Application of this name if there is none
	OrCreate bool `json:"orCreate,omitempty"`
}

// AdoptedIn returns the adoption of the deployment in an environment; the zero value if it takes
// over no Application there.
func (d *DeploymentSpec) AdoptedIn(env EnvironmentName) Adoption {
	for _, a := range d.Adopt {
		if a.Environment == env {
			return a
		}
	}
	return Adoption{}
}

// Destinations names the environments, or selects them by label; exactly one of the two.
type Destinations struct {
	Environments        []EnvironmentName `json:"environments,omitempty"`
	EnvironmentSelector *LabelSelector    `json:"environmentSelector,omitempty"`
	Namespace           string            `json:"namespace"`
}

// Source is a source of a deployment. At most one of Kustomize, Helm, Directory and Plugin is set.
type Source struct {
	// the name by which other sources of the deployment read this one's files, as
	// "$<ref>/<path>" of Helm.ValueFiles
	Ref     string `json:"ref,omitempty"`
	RepoURL string `json:"repoURL"`
	Path    string `json:"path,omitempty"`
	// a chart of a Helm repository, instead of path
	Chart          string           `json:"chart,omitempty"`
	TargetRevision string           `json:"targetRevision"`
	Kustomize      *KustomizeSource `json:"kustomize,omitempty"`
	Helm           *HelmSource      `json:"helm,omitempty"`
	Directory      *DirectorySource `json:"directory,omitempty"`
	Plugin         *PluginSource    `json:"plugin,omitempty"`
}

// Artifact reports whether the source is an OCI artifact.
func (s Source) Artifact() bool {
	u, err := ParseRepoURL(s.RepoURL)
	return err == nil && u.Artifact()
}

// KustomizeSource holds the changes given to kustomize.
type KustomizeSource struct {
	Images            []string          `json:"images,omitempty"`
	NamePrefix        string            `json:"namePrefix,omitempty"`
	NameSuffix        string            `json:"nameSuffix,omitempty"`
	Namespace         string            `json:"namespace,omitempty"`
	CommonLabels      map[string]string `json:"commonLabels,omitempty"`
	CommonAnnotations map[string]string `json:"commonAnnotations,omitempty"`
	// CommonLabels are not put into selectors
	LabelWithoutSelector bool `json:"labelWithoutSelector,omitempty"`
	// CommonLabels and CommonAnnotations replace those of the kustomization
	ForceCommonLabels      bool               `json:"forceCommonLabels,omitempty"`
	ForceCommonAnnotations bool               `json:"forceCommonAnnotations,omitempty"`
	Replicas               []KustomizeReplica `json:"replicas,omitempty"`
	Patches                []KustomizePatch   `json:"patches,omitempty"`
	Components             []string           `json:"components,omitempty"` // folders
	Version                string             `json:"version,omitempty"`    // granted
}

// KustomizeReplica sets the replicas of the workloads of a name.
type KustomizeReplica struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

// KustomizePatch is a strategic merge patch or a JSON patch of the resources that Target matches.
type KustomizePatch struct {
	// exactly one of Patch and Path, a file below the source's folder
	Patch   string                 `json:"patch,omitempty"`
	Path    string                 `json:"path,omitempty"`
	Target  *KustomizeTarget       `json:"target,omitempty"`
	Options *KustomizePatchOptions `json:"options,omitempty"`
}

// KustomizeTarget selects resources; kustomize reads the first five as anchored expressions.
type KustomizeTarget struct {
	Group              string `json:"group,omitempty"`
	Version            string `json:"version,omitempty"`
	Kind               string `json:"kind,omitempty"`
	Name               string `json:"name,omitempty"`
	Namespace          string `json:"namespace,omitempty"`
	LabelSelector      string `json:"labelSelector,omitempty"`
	AnnotationSelector string `json:"annotationSelector,omitempty"`
}

// KustomizePatchOptions allows a patch to change the identity of a resource.
type KustomizePatchOptions struct {
	AllowNameChange bool `json:"allowNameChange,omitempty"`
	AllowKindChange bool `json:"allowKindChange,omitempty"`
}

// HelmSource holds the values given to a chart.
type HelmSource struct {
	ReleaseName string   `json:"releaseName,omitempty"`
	ValueFiles  []string `json:"valueFiles,omitempty"` // relative, inside the repository
	// a value file that is not there is left out
	IgnoreMissingValueFiles bool                `json:"ignoreMissingValueFiles,omitempty"`
	Values                  Values              `json:"values,omitempty"`
	Parameters              []HelmParameter     `json:"parameters,omitempty"`
	FileParameters          []HelmFileParameter `json:"fileParameters,omitempty"`
	SkipCrds                bool                `json:"skipCrds,omitempty"`
	Namespace               string              `json:"namespace,omitempty"` // of the release
	Version                 string              `json:"version,omitempty"`   // of Helm: "v3"
	// what templates see as the cluster's; empty: what the environment has
	KubeVersion string   `json:"kubeVersion,omitempty"`
	APIVersions []string `json:"apiVersions,omitempty"`

	SkipTests            bool `json:"skipTests,omitempty"`
	SkipSchemaValidation bool `json:"skipSchemaValidation,omitempty"`
}

// HelmFileParameter is one --set-file of a chart: Path is like one of ValueFiles.
type HelmFileParameter struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// HelmParameter is one --set of a chart.
type HelmParameter struct {
	Name        string `json:"name"`
	Value       string `json:"value"`
	ForceString bool   `json:"forceString,omitempty"`
}

// PluginSource is a config management plugin of the engine that renders the source. The platform
// grants it by name.
type PluginSource struct {
	Name       string            `json:"name"`
	Env        []PluginEnv       `json:"env,omitempty"`
	Parameters []PluginParameter `json:"parameters,omitempty"`
}

// PluginEnv is one variable of the plugin's environment.
type PluginEnv struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// PluginParameter is one parameter of a plugin. Exactly one of String, Array and Map is set.
type PluginParameter struct {
	Name   string            `json:"name"`
	String string            `json:"string,omitempty"`
	Array  []string          `json:"array,omitempty"`
	Map    map[string]string `json:"map,omitempty"`
}

// DirectorySource sets how plain manifests are read.
type DirectorySource struct {
	Recurse bool `json:"recurse,omitempty"`
	// patterns of paths relative to the folder
	Include string `json:"include,omitempty"`
	Exclude string `json:"exclude,omitempty"`
	// how *.jsonnet is evaluated, only on an engine of the tenant's own
	Jsonnet *JsonnetSource `json:"jsonnet,omitempty"`
}

// JsonnetSource holds what is given to jsonnet. Libs are folders from the repository's root.
type JsonnetSource struct {
	ExtVars []JsonnetVar `json:"extVars,omitempty"`
	TLAs    []JsonnetVar `json:"tlas,omitempty"`
	Libs    []string     `json:"libs,omitempty"`
}

// JsonnetVar is an external variable or a top-level argument: a text, or code that is evaluated.
type JsonnetVar struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Code  bool   `json:"code,omitempty"`
}

// Override changes a deployment in the environment that it names, or in those that it selects;
// exactly one of the two. An omitted field is inherited. See Declaration.TargetIn for the order.
type Override struct {
	Environment EnvironmentName `json:"environment,omitempty"`
	Selector    *LabelSelector  `json:"selector,omitempty"`
	Namespace   string          `json:"namespace,omitempty"`
	Sync        SyncSettings    `json:"sync,omitzero"`
	Values      Values          `json:"values,omitempty"` // a map, merged into the source's values
	Source      SourceOverride  `json:"source,omitzero"`
}

// SourceOverride holds the source fields that may differ per environment; the repository and chart
// may not. A tool is replaced as a whole.
type SourceOverride struct {
	// ref, chart or path of the source that is changed; empty: the only one
	Of             string           `json:"of,omitempty"`
	Path           string           `json:"path,omitempty"`
	TargetRevision string           `json:"targetRevision,omitempty"`
	Kustomize      *KustomizeSource `json:"kustomize,omitempty"`
	Helm           *HelmSource      `json:"helm,omitempty"`
	Directory      *DirectorySource `json:"directory,omitempty"`
	Plugin         *PluginSource    `json:"plugin,omitempty"`
}

// DeletionPolicy selects what happens to the workload when its declaration is deleted.
type DeletionPolicy string

// Deletion policies.
const (
	DeletionDelete DeletionPolicy = "Delete"
	DeletionOrphan DeletionPolicy = "Orphan"
	// the Application stays, too, without an owner
	DeletionRelease DeletionPolicy = "Release"
)

// SyncRunSpec is one manual sync at a revision (tenants/<tenant>/syncs/<name>.yaml). Immutable once
// accepted.
type SyncRunSpec struct {
	Deployment DeploymentName `json:"deployment"`
	// an empty list is refused; omitted: every environment of the deployment
	Environments []EnvironmentName `json:"environments,omitempty"`
	// of the deployment's source repository: full commit id or tag
	Revision string `json:"revision,omitempty"`
	// the same for each of several sources, in their order; exactly one of the two is set
	Revisions []string `json:"revisions,omitempty"`
	// auto-sync stays off until targetRevision changes in Git
	Hold bool `json:"hold,omitempty"`
}

// SealedSpec is a SOPS-encrypted file. The declaration holds only its folder and its blob id.
type SealedSpec struct {
	// "environments" or "credentials": a secret serves only the declarations of its own folder
	Folder string `json:"folder"`
}
