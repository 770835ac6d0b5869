package argocd

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unique"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

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
	Name, UID, ResourceVersion string
	DeletionTimestamp          *string
	Labels, Annotations        map[string]string
	Finalizers                 []string
	ManagedFields              []struct {
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
	Sync           struct{ Status, Revision string }
	Health         struct{ Status, Message string }
	Resources      []struct{}
	ReconciledAt   string
	Conditions     []struct{ Type, Message string }
	OperationState *struct {
		Phase, Message string
		Operation      liveOperation
		SyncResult     struct{ Resources failedResources }
	}
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
	id identity
	// of the object in canonical form, with all fields that affect Argo CD
	content       [sha256.Size]byte
	applied       string // the complete hash annotation
	finalizers    []string
	project       string   // of Applications
	server        string   // of Applications
	syncOptions   []string // of Applications
	running       bool     // an operation is running
	request       string   // SyncRun of the running or last operation
	requestedSync string   // the last requested SyncRun
	// requester of a foreign operation that has not started
	foreignOperation string
	skipReconcile    bool // skip-reconcile is set
	contact          engine.Contact
	observation      mirror.Observation
}

// cascades reports whether a finalizer makes Argo CD delete the workload with the Application.
func (e *entry) cascades() bool {
	for _, f := range e.finalizers {
		if strings.HasPrefix(f, cascadeFinalizer) {
			return true
		}
	}
	return false
}

// newEntry converts an object of an engine.
func (e *Engine) entryOf(r *resource, o *liveObject) *entry {
	m := &o.Metadata
	id := identityOf(m.Labels)
	key := fleet.ObjectKey{Engine: e.name, Kind: r.kindOf(m.Labels), Name: m.Name}
	out := &entry{id: id, applied: m.Annotations[annotationHash], finalizers: intern(m.Finalizers),
		skipReconcile: m.Annotations[annotationSkipReconcile] == "true"}
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
	out.content = contentOf(r, o)
	out.Manager = otherManager(r, m)
	if r == applications {
		e.readApplication(out, o)
	}
	out.Drifted = out.Ours && !out.Deleting && (out.applied != appliedHash(r, hash, out.content) ||
		r == applications && out.cascades() || out.foreignOperation != "")
	return out
}

func (e *Engine) readApplication(out *entry, o *liveObject) {
	var spec struct {
		Project     string
		Destination struct{ Server string }
		SyncPolicy  struct{ SyncOptions []string }
	}
	_ = json.Unmarshal(o.Spec, &spec) // a malformed spec of a foreign Application does not matter
	out.project, out.server = unique.Make(spec.Project).Value(),
		unique.Make(spec.Destination.Server).Value()
	out.syncOptions = intern(spec.SyncPolicy.SyncOptions)
	out.requestedSync = o.Metadata.Annotations[annotationSync]
	out.observation = observationOf(out.Key, o)
	out.contact = contactOf(&out.Live, out.skipReconcile, o)
	out.Parked = !out.contact.Parked.IsZero()
	state := o.Status.OperationState
	out.running = state != nil && (state.Phase == "Running" || state.Phase == "Terminating")
	out.request = out.observation.OperationID
	if id := o.Operation.request(); id != "" {
		out.request = id
	}
	out.Operating = o.Operation != nil || out.running
	if op := o.Operation; op != nil && !out.running && !op.InitiatedBy.Automated &&
		op.InitiatedBy.Username != operationUser {
		out.foreignOperation = "operation by " + firstOf(op.InitiatedBy.Username, "an unnamed user")
	}
}

// contentOf hashes the object in the form of a manifest: our labels and stable annotations, and the
// whole spec or data, so that added fields change the hash too.
func contentOf(r *resource, o *liveObject) [sha256.Size]byte {
	tree := map[string]any{"apiVersion": r.apiVersion, "kind": r.kind, "metadata": map[string]any{
		"name": o.Metadata.Name, "labels": pick(o.Metadata.Labels, ownLabels),
		"annotations": pick(o.Metadata.Annotations, stableAnnotations),
	}}
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

func pick(from map[string]string, keys []string) map[string]any {
	out := map[string]any{}
	for _, k := range keys {
		if v, ok := from[k]; ok {
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
