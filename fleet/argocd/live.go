package argocd

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
	"unique"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/printable"
)

// resource is a collection of the API server with objects of this installation.
type resource struct {
	namespace  string // empty: Argo CD's own
	kinds      []fleet.ObjectKind
	apiVersion string
	kind       string
	prefix     string // of the path, before /namespaces
	plural     string
	selector   string // label selector of the followed objects
}

var (
	applications = &resource{kinds: []fleet.ObjectKind{fleet.ObjectApplication},
		apiVersion: argoAPI, kind: "Application", prefix: "/apis/" + argoAPI,
		plural: "applications"}
	projects = &resource{kinds: []fleet.ObjectKind{fleet.ObjectProject}, apiVersion: argoAPI,
		kind: "AppProject", prefix: "/apis/" + argoAPI, plural: "appprojects"}
	// Only our own Secrets are read: the namespace holds others, such as argocd-secret.
	secrets = &resource{kinds: []fleet.ObjectKind{fleet.ObjectCluster, fleet.ObjectRepository},
		apiVersion: "v1", kind: "Secret", prefix: "/api/v1", plural: "secrets",
		selector: labelManagedBy + "=" + managedBy}
	resources = []*resource{projects, secrets, applications}
)

// followed returns the resources that an engine watches.
func followed(o Options) []*resource {
	if o.Public {
		return []*resource{projects, applications}
	}
	return resources
}

func resourceOf(kind fleet.ObjectKind) *resource {
	switch kind {
	case fleet.ObjectProject:
		return projects
	case fleet.ObjectApplication:
		return applications
	default:
		return secrets
	}
}

// in returns the same resource in another namespace than Argo CD's own.
func (r *resource) in(namespace string) *resource {
	other := *r
	other.namespace = namespace
	return &other
}

// places are the namespaces with Applications of an engine: Argo CD's own, and further ones, each
// of one tenant (fleet.EngineSpec.ApplicationNamespaces).
type places struct {
	own     string
	further map[string]fleet.TenantName
}

// path returns the path of an object: a name in Argo CD's own namespace, or "<namespace>/<name>".
func (p places) path(r *resource, object string) string {
	namespace, name := fleet.SplitObject(object)
	return r.object(cmp.Or(namespace, p.own), name)
}

// collection returns the path of a resource.
func (p places) collection(r *resource) string { return r.collection(cmp.Or(r.namespace, p.own)) }

// object returns the name of a live object, with its namespace if that is not Argo CD's own.
func (p places) object(m *liveMetadata) string {
	if m.Namespace == p.own {
		return m.Name
	}
	return fleet.JoinObject(m.Namespace, m.Name)
}

// check refuses an Application of a tenant in a namespace that is not the tenant's.
func (p places) check(object string, t fleet.TenantName) error {
	namespace, _ := fleet.SplitObject(object)
	if namespace != "" && p.further[namespace] != t {
		return fmt.Errorf("%w: Application %s: the engine does not give namespace %s to tenant %s "+
			"(applicationNamespaces)", engine.ErrRefused, object, namespace, t)
	}
	return nil
}

func (r *resource) collection(namespace string) string {
	return r.prefix + "/namespaces/" + url.PathEscape(namespace) + "/" + r.plural
}

func (r *resource) object(namespace, name string) string {
	return r.collection(namespace) + "/" + url.PathEscape(name)
}

// kindOf returns the kind of a live object. A Secret is a cluster unless its label names a
// repository.
func (r *resource) kindOf(labels map[string]string) fleet.ObjectKind {
	if r == secrets && labels[labelSecretType] == "repository" {
		return fleet.ObjectRepository
	}
	return r.kinds[0]
}

// keyName returns the name in an object's key: the object's own, or of an adopted Application that
// of its identity. The mirror knows Applications by their identity, not by their objects' names. In
// a namespace of a tenant, whose people may write any label, an Application has that tenant's
// identities alone.
func (p places) keyName(r *resource, m *liveMetadata) string {
	object := p.object(m)
	if r.kind == applications.kind && m.Labels[labelManagedBy] == managedBy && m.Name != "" &&
		m.Annotations[annotationAdopted] == object &&
		p.check(object, fleet.TenantName(m.Labels[labelTenant])) == nil {
		return identityOf(m.Labels).name(fleet.ObjectApplication)
	}
	return object
}

// Labels and annotations of our objects. Together with Git they suffice to rebuild the mirror.
const (
	labelManagedBy   = "app.kubernetes.io/managed-by"
	labelTenant      = "argosy.dev/tenant"
	labelEnvironment = "argosy.dev/environment"
	labelDeployment  = "argosy.dev/deployment"
	labelCredential  = "argosy.dev/credential"
	labelPart        = "argosy.dev/repository" // fleet.RepositoryPart
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

	// annotationExpires and annotationRenews are the times at which the token of a cluster Secret
	// with fleet.AccountAnnotation expires, and at which it is replaced.
	annotationExpires = "argosy.dev/token-expires"
	annotationRenews  = "argosy.dev/token-renews"

	annotationSkipReconcile = "argocd.argoproj.io/skip-reconcile"

	// annotationAdopted is the object name of an adopted Application, which keeps its name. A copy
	// of it under another name is foreign.
	annotationAdopted = "argosy.dev/adopted"
	// annotationOrCreate lets the engine create the Application of annotationAdopted if there is
	// none.
	annotationOrCreate = "argosy.dev/adopt-or-create"
	// annotationBefore is what the adoption has changed, for the release.
	annotationBefore = "argosy.dev/before"

	// annotationEvacuated of a cluster Secret names the evacuated engines that its environment was
	// on. It outlives the database: an engine that comes back does not get the environment.
	annotationEvacuated = "argosy.dev/evacuated-from"

	// annotationSlices of a cluster Secret names the slices of a split environment on the engine.
	annotationSlices = "argosy.dev/slices"

	// annotationAdoptionPaused of a tenant's AppProject pauses adoptions; its value is the kind of
	// the declaration that does.
	annotationAdoptionPaused = "argosy.dev/adoption-paused-by"

	managedBy    = "argosy"
	fieldManager = "argosy"
)

// ownLabels, stableAnnotations and the annotations of notifications are part of a manifest. The
// other annotations are added during the apply.
var (
	ownLabels = []string{labelManagedBy, labelTenant, labelEnvironment, labelDeployment,
		labelCredential, labelPart, labelSecretType}
	stableAnnotations = append([]string{annotationEngine, annotationHold, annotationAdopted,
		annotationOrCreate, annotationAdoptionPaused, fleet.WaveAnnotation,
		fleet.AccountAnnotation, annotationEvacuated, annotationSlices, annotationExpires,
		annotationRenews, annotationCompare, annotationPaths},
		linkAnnotations...)
)

func isOwnLabel(key string) bool { return slices.Contains(ownLabels, key) }

func isStableAnnotation(key string) bool {
	return slices.Contains(stableAnnotations, key) || strings.HasPrefix(key, subscriptionPrefix)
}

// metadata is the part of ObjectMeta that we write. It has no finalizers on purpose.
type metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"` // if not Argo CD's own
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
	part        string // of a credential for a folder: fleet.RepositoryPart
}

func (id identity) labels() map[string]string {
	m := map[string]string{labelManagedBy: managedBy, labelTenant: string(id.tenant)}
	for k, v := range map[string]string{labelEnvironment: string(id.environment),
		labelDeployment: string(id.deployment), labelCredential: string(id.credential),
		labelPart: id.part} {
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
		part:        labels[labelPart],
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
		return fleet.RepositoryName(fleet.CredentialID{Tenant: id.tenant, Name: id.credential},
			id.part)
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

// decodeLive decodes an object. An object with an undecodable spec or status keeps only its
// metadata and counts as drifted: it must not block the list of its kind.
func decodeLive(raw []byte) (*liveObject, error) {
	var o liveObject
	if err := json.Unmarshal(raw, &o); err != nil {
		var bare struct{ Metadata liveMetadata }
		if err := json.Unmarshal(raw, &bare); err != nil {
			return nil, fmt.Errorf("%w: the response is not an object: %w", engine.ErrUnreachable,
				err)
		}
		o = liveObject{Metadata: bare.Metadata}
	}
	if o.Metadata.ResourceVersion == "" {
		return nil, fmt.Errorf("%w: an object without a resourceVersion", engine.ErrUnreachable)
	}
	return &o, nil
}

// liveObject has the fields of an object that we read.
type liveObject struct {
	Metadata  liveMetadata
	Spec      json.RawMessage
	Type      string
	Data      map[string]any
	Operation *liveOperation
	Status    liveStatus
}

type liveMetadata struct {
	Namespace, Name, UID, ResourceVersion string

	DeletionTimestamp   *string
	Labels, Annotations map[string]string
	Finalizers          []string
	OwnerReferences     []struct{ Kind, Name string }
	ManagedFields       []struct {
		Manager, Operation, Time string
		FieldsV1                 json.RawMessage
	}
}

type liveOperation struct {
	InitiatedBy struct {
		Username  string
		Automated bool
	}
	Info []struct{ Name, Value string }
	Sync liveRevisions
}

// liveRevisions are the commits of a sync: of one source, or of several.
type liveRevisions struct {
	Revision  string
	Revisions []string
}

func (r liveRevisions) joined() string {
	return clip(firstOf(r.Revision, fleet.JoinRevisions(r.Revisions)), 256)
}

// request returns the ID of the SyncRun that requested the operation, or "".
func (o *liveOperation) request() string {
	if o == nil || o.InitiatedBy.Username != operationUser {
		return ""
	}
	for _, i := range o.Info {
		if i.Name == operationInfo {
			return i.Value
		}
	}
	return ""
}

type liveStatus struct {
	Sync           liveSync
	Health         struct{ Status, Message string }
	Resources      []struct{ Namespace string }
	Summary        struct{ Images []string }
	History        []struct{}
	ReconciledAt   string
	Conditions     []struct{ Type, Message string }
	OperationState *struct {
		Phase, Message string
		Operation      liveOperation
		SyncResult     struct {
			liveRevisions
			Resources failedResources
		}
	}
}

type liveSync struct {
	Status, Revision string
	Revisions        []string // of several sources
	ComparedTo       json.RawMessage
}

// liveTarget is the part of a spec that Argo CD repeats in comparedTo.
type liveTarget struct{ Source, Sources, Destination json.RawMessage }

// compared reports whether Argo CD has compared the Application with its present source and
// destination. It sets comparedTo together with the result, so an older result has the older ones.
func (o *liveObject) compared() bool {
	var is, was liveTarget
	if json.Unmarshal(o.Spec, &is) != nil || json.Unmarshal(o.Status.Sync.ComparedTo, &was) != nil {
		return false
	}
	return sameJSON(is.Source, was.Source) && sameJSON(is.Sources, was.Sources) &&
		sameJSON(is.Destination, was.Destination)
}

// sameJSON compares two values of one response. Argo CD writes an empty destination or source where
// the spec has none.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	if len(a) > 0 && json.Unmarshal(a, &x) != nil || len(b) > 0 && json.Unmarshal(b, &y) != nil {
		return false
	}
	return reflect.DeepEqual(withoutZeros(x), withoutZeros(y))
}

// withoutZeros removes what omitempty omits: Argo CD repeats a spec without it, and reads zero and
// missing values alike. It keeps automated: {}, which turns automation on, and a chart's values,
// which have a meaning of their own.
func withoutZeros(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			_, object := e.(map[string]any)
			switch below := withoutZeros(e); {
			case k == "valuesObject" && object:
				out[k] = e
			case below != nil:
				out[k] = below
			case k == "automated" && object:
				out[k] = map[string]any{}
			}
		}
		if len(out) > 0 {
			return out
		}
		return nil
	case []any:
		if len(v) == 0 {
			return nil
		}
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = withoutZeros(e)
			if _, object := e.(map[string]any); object && out[i] == nil {
				out[i] = map[string]any{}
			} else if out[i] == nil {
				out[i] = e
			}
		}
		return out
	case string:
		if v == "" {
			return nil
		}
	case bool:
		if !v {
			return nil
		}
	}
	return v
}

// failedResources holds the first failed resource of a sync and the number of failed ones.
type failedResources struct {
	first string // "Kind namespace/name: message"
	count int
}

// UnmarshalJSON decodes the list only if it may contain a failure: it has an entry per resource.
func (f *failedResources) UnmarshalJSON(b []byte) error {
	if !bytes.Contains(b, []byte("Failed")) && !bytes.Contains(b, []byte("Error")) {
		return nil
	}
	var all []struct{ Kind, Namespace, Name, Status, HookPhase, Message string }
	if err := json.Unmarshal(b, &all); err != nil {
		return nil //nolint:nilerr // a status that is no list names no resource
	}
	for _, r := range all {
		if r.Status != "SyncFailed" && r.HookPhase != "Failed" && r.HookPhase != "Error" {
			continue
		}
		if f.count++; f.count == 1 && r.Message != "" {
			name := r.Name
			if r.Namespace != "" {
				name = r.Namespace + "/" + name
			}
			f.first = clip(r.Kind+" "+name+": "+r.Message, maxText)
		}
	}
	return nil
}

// entry is the cache's record of one object: only the fields that decisions need, without content
// or secrets.
type entry struct {
	engine.Live
	id     identity
	object string // see places.object: of an adopted Application not the name of the key
	before string // of an adopted Application: annotationBefore
	paused string // of an AppProject: annotationAdoptionPaused
	// of the object in canonical form, with all fields that affect Argo CD
	content       [sha256.Size]byte
	applied       string // the complete hash annotation
	finalizers    []string
	project       string          // of Applications
	server        string          // of Applications
	namespace     string          // of an Application's destination
	elsewhere     []string        // further namespaces with resources of an Application
	acted         bool            // Argo CD has an operation of the Application, or had one
	namespaces    []string        // of a cluster Secret; none: all
	syncOptions   []string        // of Applications
	sources       json.RawMessage // of Applications with several
	running       bool            // an operation is running
	request       string          // SyncRun of the running or last operation
	requestedSync string          // the last requested SyncRun
	// requester of a foreign operation that has not started
	foreignOperation string
	skipReconcile    bool        // skip-reconcile is set
	move             string      // annotationMove
	refreshes        bool        // it moves, and Argo CD is asked to compare it
	token            *tokenTimes // of a cluster Secret with fleet.AccountAnnotation
	contact          engine.Contact
	observation      mirror.Observation
}

// further reports whether the object is outside Argo CD's own namespace.
func (e *entry) further() bool {
	namespace, _ := fleet.SplitObject(e.object)
	return namespace != ""
}

// fenced reports whether a later lease has written to the object. In a tenant's namespace people
// may write any epoch, which proves nothing: there, only the versions of writes protect it.
func (e *entry) fenced(epoch int64) bool { return e.Epoch > epoch && !e.further() }

// cascades reports whether a finalizer makes Argo CD delete the workload with the Application.
func (e *entry) cascades() bool {
	for _, f := range e.finalizers {
		if strings.HasPrefix(f, cascadeFinalizer) {
			return true
		}
	}
	return false
}

// foreign returns the entry as one that is not ours.
func (e *entry) foreign() *entry {
	out := *e
	out.Key.Name, out.Ours, out.Drifted = e.object, false, false
	out.observation.Key, out.contact.Key = out.Key, out.Key
	return &out
}

// newEntry converts an object of an engine.
func newEntry(name fleet.EngineName, in places, r *resource, o *liveObject) *entry {
	m := &o.Metadata
	id := identityOf(m.Labels)
	key := fleet.ObjectKey{Engine: name, Kind: r.kindOf(m.Labels), Name: in.keyName(r, m)}
	out := &entry{id: id, applied: m.Annotations[annotationHash], finalizers: intern(m.Finalizers),
		skipReconcile: m.Annotations[annotationSkipReconcile] == "true",
		object:        in.object(m), before: m.Annotations[annotationBefore],
		move: m.Annotations[annotationMove],
		refreshes: m.Annotations[annotationMove] != "" &&
			m.Annotations[annotationRefresh] != "",
		paused: m.Annotations[annotationAdoptionPaused]}
	hash, _, _ := strings.Cut(out.applied, ".")
	epoch, _ := strconv.ParseInt(m.Annotations[annotationEpoch], 10, 64)
	out.Live = engine.Live{
		Key: key, UID: m.UID, ResourceVersion: m.ResourceVersion,
		Ours:   m.Labels[labelManagedBy] == managedBy && id.check(key) == nil,
		Tenant: id.tenant, Environment: id.environment, Deployment: id.deployment,
		Engine:   fleet.EngineName(m.Annotations[annotationEngine]),
		Revision: fleet.Revision(m.Annotations[annotationRevision]),
		Epoch:    epoch, Hash: hash, Hold: fleet.SyncRunName(m.Annotations[annotationHold]),
		Deleting: m.DeletionTimestamp != nil,
	}
	out.content = contentOf(r, out.object, o)
	out.Manager = otherManager(r, m)
	if r.kind == applications.kind {
		out.readApplication(o)
	} else {
		out.token, out.namespaces = tokenTimesOf(m.Annotations), namespacesIn(o.Data)
		out.Evacuated = enginesIn(m.Annotations[annotationEvacuated])
		out.Slices = fleet.SlicesIn(m.Annotations[annotationSlices])
	}
	moved, _, _ := strings.Cut(out.move, "/")
	out.Leaving, out.Arriving = moved != "" && moved == m.UID, moved != "" && moved != m.UID
	out.Drifted = out.Ours && !out.Deleting && out.move == "" &&
		(out.applied != appliedHash(r, hash, out.content) ||
			r.kind == applications.kind && out.cascades() || out.foreignOperation != "")
	return out
}

func (e *entry) readApplication(o *liveObject) {
	var spec struct {
		Project     string
		Destination struct{ Server, Namespace string }
		SyncPolicy  struct{ SyncOptions []string }
		Sources     json.RawMessage
	}
	_ = json.Unmarshal(o.Spec, &spec) // a malformed spec of a foreign Application does not matter
	e.project, e.server = unique.Make(spec.Project).Value(),
		unique.Make(spec.Destination.Server).Value()
	e.namespace = unique.Make(spec.Destination.Namespace).Value()
	for _, r := range o.Status.Resources {
		if r.Namespace != "" && r.Namespace != e.namespace &&
			!slices.Contains(e.elsewhere, r.Namespace) {
			e.elsewhere = append(e.elsewhere, unique.Make(r.Namespace).Value())
		}
	}
	e.acted = o.Operation != nil || o.Status.OperationState != nil || len(o.Status.History) > 0
	e.syncOptions, e.sources = intern(spec.SyncPolicy.SyncOptions), spec.Sources
	e.requestedSync = o.Metadata.Annotations[annotationSync]
	e.observation = observationOf(e.Key, o)
	e.contact = contactOf(&e.Live, e.skipReconcile, o)
	e.Parked = !e.contact.Parked.IsZero()
	state := o.Status.OperationState
	e.running = state != nil && (state.Phase == "Running" || state.Phase == "Terminating")
	e.request = e.observation.OperationID
	if id := o.Operation.request(); id != "" {
		e.request = id
	}
	e.Operating = o.Operation != nil || e.running
	e.Wave = fleet.ParseWave(o.Metadata.Annotations[fleet.WaveAnnotation])
	e.Sync, e.Health = e.observation.Sync, e.observation.Health
	e.Compared = e.Sync == mirror.SyncSynced && e.Health == mirror.HealthHealthy && o.compared()
	if op := o.Operation; op != nil && !e.running && !op.InitiatedBy.Automated &&
		op.InitiatedBy.Username != operationUser {
		e.foreignOperation = "operation by " + firstOf(op.InitiatedBy.Username, "an unnamed user")
	}
}

// contentOf hashes the object in the form of a manifest: our labels and stable annotations, and the
// whole spec or data, so that added fields change the hash too.
func contentOf(r *resource, object string, o *liveObject) [sha256.Size]byte {
	meta := map[string]any{"name": o.Metadata.Name, "labels": pick(o.Metadata.Labels, isOwnLabel),
		"annotations": pick(o.Metadata.Annotations, isStableAnnotation)}
	if namespace, _ := fleet.SplitObject(object); namespace != "" {
		meta["namespace"] = namespace
	}
	tree := map[string]any{"apiVersion": r.apiVersion, "kind": r.kind, "metadata": meta}
	if r == secrets {
		tree["type"], tree["data"] = o.Type, anyMap(o.Data)
	} else if spec, err := decodeTree(o.Spec); err == nil {
		tree["spec"] = spec
	}
	body, err := canonical(tree)
	if err != nil {
		return [sha256.Size]byte{}
	}
	return sha256.Sum256(body)
}

func anyMap(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}

func pick(from map[string]string, ours func(key string) bool) map[string]any {
	out := map[string]any{}
	for k, v := range from {
		if ours(k) {
			out[k] = v
		}
	}
	return out
}

// otherManager returns the last other manager of fields that we own, according to the API server.
func otherManager(r *resource, m *liveMetadata) string {
	part := []byte(`"f:spec"`)
	if r == secrets {
		part = []byte(`"f:data"`)
	}
	name, latest := "", ""
	for _, f := range m.ManagedFields {
		if f.Manager == fieldManager || f.Time < latest {
			continue
		}
		if bytes.Contains(f.FieldsV1, part) || bytes.Contains(f.FieldsV1, []byte("argosy.dev/")) {
			name, latest = f.Manager, f.Time
		}
	}
	return unique.Make(name).Value()
}

func intern(s []string) []string {
	for i := range s {
		s[i] = unique.Make(s[i]).Value()
	}
	return s
}

func firstOf(s ...string) string {
	for _, v := range s {
		if v != "" {
			return v
		}
	}
	return ""
}

const maxText = 1024

// observationOf converts the status of one Application.
func observationOf(key fleet.ObjectKey, o *liveObject) mirror.Observation {
	s := &o.Status
	out := mirror.Observation{
		Key: key, UID: o.Metadata.UID, ResourceVersion: o.Metadata.ResourceVersion,
		Sync: syncState(s.Sync.Status), Health: healthState(s.Health.Status),
		SyncedRevision: clip(firstOf(s.Sync.Revision,
			fleet.JoinRevisions(s.Sync.Revisions)), 256),
		Images:    mirror.ImagesOf(s.Summary.Images),
		Resources: len(s.Resources), ReconciledAt: reconciledAt(s.ReconciledAt),
		Message: messageOf(s),
	}
	if o.compared() {
		out.Compared, _, _ = strings.Cut(clip(o.Metadata.Annotations[annotationHash], 128), ".")
	}
	if state := s.OperationState; state != nil {
		out.OperationPhase = unique.Make(clip(state.Phase, 32)).Value()
		out.OperationID = clip(state.Operation.request(), 253)
		out.OperationRevision = firstOf(state.SyncResult.joined(), state.Operation.Sync.joined())
		if state.Phase == "Failed" || state.Phase == "Error" {
			out.OperationError = operationMessage(s)
		}
	}
	return out
}

// reconciledAt parses a time; zero if it is invalid.
func reconciledAt(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// messageOf prefers problems of the Application to problems of its workload.
func messageOf(s *liveStatus) string {
	var problems []string
	for _, c := range s.Conditions {
		if strings.HasSuffix(c.Type, "Error") || strings.HasSuffix(c.Type, "Warning") {
			problems = append(problems, c.Type+": "+c.Message)
		}
	}
	if len(problems) == 0 {
		problems = append(problems, s.Health.Message)
		if state := s.OperationState; state != nil && s.Health.Message == "" &&
			state.Phase != "Succeeded" {
			problems[0] = operationMessage(s) // e.g. why a running operation is being retried
		}
	}
	return clip(strings.Join(problems, "; "), maxText)
}

// operationMessage returns the first failed resource and then Argo CD's own message, which is only
// "one or more synchronization tasks are not valid".
func operationMessage(s *liveStatus) string {
	failed, message := s.OperationState.SyncResult.Resources, s.OperationState.Message
	if failed.first == "" {
		return clip(message, maxText)
	}
	if more := failed.count - 1; more == 1 {
		message = "1 other resource failed; " + message
	} else if more > 1 {
		message = fmt.Sprintf("%d other resources failed; %s", more, message)
	}
	return clip(strings.TrimSuffix(failed.first+"; "+message, "; "), maxText)
}

// syncState and healthState accept known values only: a value of a newer Argo CD becomes "Unknown".
func syncState(s string) mirror.SyncState {
	switch v := mirror.SyncState(s); v {
	case mirror.SyncSynced, mirror.SyncOutOfSync:
		return v
	}
	return mirror.SyncUnknown
}

func healthState(s string) mirror.HealthState {
	switch v := mirror.HealthState(s); v {
	case mirror.HealthHealthy, mirror.HealthProgressing, mirror.HealthDegraded,
		mirror.HealthSuspended,
		mirror.HealthMissing:
		return v
	}
	return mirror.HealthUnknown
}

// clip makes text of a tenant's workload storable and printable: valid UTF-8, no control
// characters, at most most bytes.
func clip(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s[:min(len(s), 4*most)])
	return printable.Truncate(s, most)
}

// differs reports whether b is worth a write to the mirror. Argo CD updates the reconciliation time
// of every Application every few minutes; that alone counts only once per reconciledStep.
func differs(a, b mirror.Observation) bool {
	if b.ReconciledAt.Sub(a.ReconciledAt) >= reconciledStep {
		return true
	}
	a.ReconciledAt, a.ResourceVersion = b.ReconciledAt, b.ResourceVersion
	return a != b
}
