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
)

// decodeLive reads an object. One that has something unheard-of in its spec or status is known by
// its metadata alone, and counts as drifted: it must not keep the others of its kind from being
// read.
func decodeLive(raw []byte) (*liveObject, error) {
	var o liveObject
	if err := json.Unmarshal(raw, &o); err != nil {
		var bare struct{ Metadata liveMetadata }
		if err := json.Unmarshal(raw, &bare); err != nil {
			return nil, fmt.Errorf("%w: what is no object: %w", engine.ErrUnreachable, err)
		}
		o = liveObject{Metadata: bare.Metadata}
	}
	if o.Metadata.ResourceVersion == "" {
		return nil, fmt.Errorf("%w: an object without a version", engine.ErrUnreachable)
	}
	return &o, nil
}

// liveObject is the part of an object that we read from the API server.
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

// request is the id of the SyncRun that asked for the operation, or "".
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

// failedResources is what a sync could not do: the first resource, and how many failed.
type failedResources struct {
	first string // "Kind namespace/name: message"
	count int
}

// UnmarshalJSON decodes the list only if something in it may have failed: it has an entry for each
// resource.
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

// entry is what the cache keeps of one object: no content, no secret, only what decisions need.
type entry struct {
	engine.Live
	id identity
	// of the object in its canonical form, with everything that steers Argo CD
	content     [sha256.Size]byte
	applied     string // the hash annotation, whole
	finalizers  []string
	project     string   // of Applications
	server      string   // of Applications
	syncOptions []string // of Applications
	running     bool     // an operation runs
	request     string   // the SyncRun that the running or last operation belongs to
	asked       string   // the SyncRun that was last asked for
	// who asked for an operation that has not begun and is neither ours nor Argo CD's own
	intruder string
	stalled  bool // Argo CD is told to leave it alone
	contact  engine.Contact
	seen     fleet.Observation
}

// cascades reports whether a finalizer stands that makes Argo CD delete the workload when the
// Application goes.
func (e *entry) cascades() bool {
	for _, f := range e.finalizers {
		if strings.HasPrefix(f, cascadeFinalizer) {
			return true
		}
	}
	return false
}

// entryOf reads an object.
func (e *Engine) entryOf(r *resource, o *liveObject) *entry {
	m := &o.Metadata
	id := identityOf(m.Labels)
	key := fleet.ObjectKey{Engine: e.name, Kind: r.kindOf(m.Labels), Name: m.Name}
	out := &entry{id: id, applied: m.Annotations[annotationHash], finalizers: intern(m.Finalizers),
		stalled: m.Annotations[annotationSkipReconcile] == "true"}
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
		r == applications && out.cascades() || out.intruder != "")
	return out
}

func (e *Engine) readApplication(out *entry, o *liveObject) {
	var spec struct {
		Project     string
		Destination struct{ Server string }
		SyncPolicy  struct{ SyncOptions []string }
	}
	_ = json.Unmarshal(o.Spec, &spec) // a stranger's malformed spec is a stranger's affair
	out.project, out.server = unique.Make(spec.Project).Value(),
		unique.Make(spec.Destination.Server).Value()
	out.syncOptions = intern(spec.SyncPolicy.SyncOptions)
	out.asked = o.Metadata.Annotations[annotationSync]
	out.seen = observationOf(out.Key, o)
	out.contact = contactOf(&out.Live, out.stalled, o)
	out.Parked = !out.contact.Parked.IsZero()
	state := o.Status.OperationState
	out.running = state != nil && (state.Phase == "Running" || state.Phase == "Terminating")
	out.request = out.seen.OperationID
	if id := o.Operation.request(); id != "" {
		out.request = id
	}
	out.Operating = o.Operation != nil || out.running
	if op := o.Operation; op != nil && !out.running && !op.InitiatedBy.Automated &&
		op.InitiatedBy.Username != operationUser {
		out.intruder = "operation by " + firstOf(op.InitiatedBy.Username, "somebody unnamed")
	}
}

// contentOf hashes the object in the form that a manifest has: our labels and stable annotations,
// and all of its spec or data, so that a field that a stranger has added shows as well.
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

// otherManager names who else last wrote fields that we own, as the API server recorded it.
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
