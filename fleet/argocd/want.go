package argocd

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// desired is a row that is ready to be written.
type desired struct {
	row     mirror.Row
	r       *resource
	epoch   int64
	tree    map[string]any // the object with its credential, in canonical form
	content [sha256.Size]byte
	applied string // the hash annotation
}

// prepare adds the credential and hashes the content. Before any request it rejects rows that no
// engine accepts.
func prepare(row mirror.Row, secret fleet.Secret, lease mirror.Lease) (*desired, error) {
	tree, err := decodeTree(row.Manifest.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", row.Key.Kind, row.Key.Name, err)
	}
	w := &desired{row: row, r: resourceOf(row.Key.Kind), epoch: lease.Epoch, tree: tree}
	if w.r == secrets {
		data, _ := tree["data"].(map[string]any)
		if data == nil {
			return nil, fmt.Errorf("%s %s: its manifest has no data", row.Key.Kind, row.Key.Name)
		}
		if err := fill(row.Key.Kind, data, secret); err != nil {
			return nil, fmt.Errorf("%s %s: secret %s: %w", row.Key.Kind, row.Key.Name,
				credentialName(row), err)
		}
	}
	body, err := canonical(tree)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", row.Key.Kind, row.Key.Name, err)
	}
	if len(body) > maxObject {
		return nil, fmt.Errorf("%s %s: %w: %d bytes; an engine takes at most %d", row.Key.Kind,
			row.Key.Name, engine.ErrTooLarge, len(body), maxObject)
	}
	w.content = sha256.Sum256(body)
	w.applied = appliedHash(w.r, row.Manifest.Hash, w.content)
	return w, nil
}

func credentialName(row mirror.Row) string {
	if row.Credential == nil {
		return "(none declared)"
	}
	return row.Credential.Name
}

// patch returns the apply request. For a known object it has the UID and version as preconditions.
// Otherwise it requires that no object exists: no object has resourceVersion 1, so an apply with
// this version can only create.
func (w *desired) patch(known *entry) ([]byte, error) {
	meta, _ := w.tree["metadata"].(map[string]any)
	meta = maps.Clone(meta)
	annotations, _ := meta["annotations"].(map[string]any)
	annotations = maps.Clone(annotations)
	if annotations == nil {
		annotations = map[string]any{}
	}
	annotations[annotationHash] = w.applied
	annotations[annotationEpoch] = strconv.FormatInt(w.epoch, 10)
	if w.row.Revision != "" {
		annotations[annotationRevision] = string(w.row.Revision)
	}
	meta["annotations"] = annotations
	meta["resourceVersion"] = "1"
	if known != nil {
		meta["uid"], meta["resourceVersion"] = known.UID, known.ResourceVersion
	}
	tree := maps.Clone(w.tree)
	tree["metadata"] = meta
	return json.Marshal(tree)
}

// written returns the cache's entry after a successful write.
func (w *desired) written(known *entry, m *liveMetadata, name fleet.EngineName) *entry {
	e := &entry{}
	if known != nil {
		*e = *known
	}
	labels, _ := w.tree["metadata"].(map[string]any)["labels"].(map[string]any)
	text := map[string]string{}
	for k, v := range labels {
		text[k], _ = v.(string)
	}
	e.id = identityOf(text)
	e.Live = engine.Live{
		Key: w.row.Key, UID: m.UID, ResourceVersion: m.ResourceVersion, Ours: true,
		Tenant: e.id.tenant, Environment: e.id.environment, Deployment: e.id.deployment,
		Engine:   name,
		Revision: w.row.Revision, Epoch: w.epoch, Hash: w.row.Manifest.Hash,
		Hold:    fleet.SyncRunName(m.Annotations[annotationHold]),
		Manager: e.Manager, Deleting: m.DeletionTimestamp != nil, Operating: e.Operating,
		Parked: e.Parked,
	}
	e.content, e.applied, e.finalizers = w.content, w.applied, intern(m.Finalizers)
	if w.r == applications {
		spec, _ := w.tree["spec"].(map[string]any)
		e.project, _ = spec["project"].(string)
		destination, _ := spec["destination"].(map[string]any)
		e.server, _ = destination["server"].(string)
		e.syncOptions = nil
		options, _ := child(spec, "syncPolicy")["syncOptions"].([]any)
		for _, o := range options {
			text, _ := o.(string)
			e.syncOptions = append(e.syncOptions, text)
		}
		if known == nil {
			e.contact = engine.Contact{
				Key: w.row.Key, UID: m.UID, Tenant: e.Tenant, Environment: e.Environment,
			}
			e.observation = mirror.Observation{Key: w.row.Key, UID: m.UID,
				ResourceVersion: m.ResourceVersion, Sync: mirror.SyncUnknown,
				Health: mirror.HealthUnknown}
		}
	}
	return e
}

// verdict is the action for one object.
type verdict int

const (
	doNothing verdict = iota
	doCreate
	doUpdate
	doRestore // another writer has changed it
	isForeign
	isFenced
	isDeleting
)

// decide compares the row with the known object. It is pure.
func (w *desired) decide(known *entry) verdict {
	switch {
	case known == nil:
		return doCreate
	case !known.Ours || known.Tenant != w.row.Tenant:
		return isForeign
	case known.Epoch > w.epoch:
		return isFenced
	case known.Deleting:
		return isDeleting
	case known.Drifted:
		return doRestore
	case known.content == w.content && known.applied == w.applied:
		return doNothing
	}
	return doUpdate
}
