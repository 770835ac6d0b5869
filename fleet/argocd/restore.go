package argocd

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// restore overwrites changes by other writers. The apply restores our own fields. Before it, a
// merge patch removes foreign additions (a second source, ignoreDifferences, a finalizer, an
// operation). Both have the read state as a precondition.
func (e *Engine) restore(ctx context.Context, w *desired, known *entry) (engine.Outcome, error) {
	wait, again := e.conflicts.mayOverwrite(w.row.Key, e.options.Now(), e.options.Conflict)
	if wait > 0 {
		return engine.Outcome{State: mirror.ApplyConflict, Message: conflictMessage(known),
			RetryAfter: wait}, nil
	}
	live, fresh, err := e.readWhole(ctx, w)
	if err != nil {
		return engine.Outcome{}, err
	}
	// meanwhile it was deleted, is terminating, belongs to a later lease, or is fixed
	if w.decide(fresh) != doRestore {
		return e.applyOnce(ctx, w, fresh)
	}
	if fresh, err = e.removeForeign(ctx, w, fresh, live); err != nil {
		return engine.Outcome{}, err
	}
	out, err := e.write(ctx, w, fresh)
	if err == nil && again {
		out.State, out.Message, out.RetryAfter = mirror.ApplyConflict, conflictMessage(known),
			e.options.Conflict
	}
	return out, err
}

func conflictMessage(known *entry) string {
	who := firstOf(known.foreignOperation, known.Manager,
		"an unknown writer, perhaps an admission webhook,")
	return fmt.Sprintf(
		"%s keeps changing it on the engine; it is overwritten at growing intervals: change the "+
			"declaration instead, or revoke its write access", who)
}

// readWhole reads the object, bypassing the cache, as a tree and as an entry; nil if it does not
// exist.
func (e *Engine) readWhole(ctx context.Context, w *desired) (map[string]any, *entry, error) {
	var raw json.RawMessage
	err := e.client.do(ctx, request{method: http.MethodGet,
		path: w.r.object(e.namespace, w.row.Key.Name)}, &raw)
	if e.provesAbsence(err, w.r) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	o, err := decodeLive(raw)
	if err != nil {
		return nil, nil, err
	}
	tree, err := decodeTree(raw)
	return tree, e.entryOf(w.r, o), err
}

// removeForeign removes the fields from a live object that the manifest does not have, and returns
// the entry after that. An object that has changed since the read causes a conflict, so that the
// decision is made again.
func (e *Engine) removeForeign(ctx context.Context, w *desired, read *entry,
	live map[string]any) (*entry,
	error) {
	patch := foreignFields(w.tree, live)
	if len(patch) == 0 {
		return read, nil
	}
	m, err := e.merge(ctx, w.row, patch, read)
	if err != nil {
		return nil, err
	}
	fresh := *read
	fresh.ResourceVersion, fresh.finalizers = m.ResourceVersion, m.Finalizers
	return &fresh, nil
}

// merge sends a merge patch with the known UID and version as preconditions.
func (e *Engine) merge(ctx context.Context, row mirror.Row, patch map[string]any,
	known *entry) (*liveMetadata, error) {
	meta, _ := patch["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		patch["metadata"] = meta
	}
	meta["uid"], meta["resourceVersion"] = known.UID, known.ResourceVersion
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("patch: %w", err)
	}
	var answer struct{ Metadata liveMetadata }
	err = e.mutate(ctx, row.Tenant, request{
		method: http.MethodPatch, path: resourceOf(row.Key.Kind).object(e.namespace, row.Key.Name),
		contentType: mergePatch, accept: metadataOnly, body: body,
		query: url.Values{"fieldManager": {fieldManager}},
	}, &answer)
	return &answer.Metadata, err
}

// foreignFields returns the merge patch that removes the fields of live that wanted does not have,
// as far as they affect Argo CD: spec or data, our own labels and annotations, the cascade
// finalizer, and an operation that has not started. It is empty if there are none.
func foreignFields(wanted, live map[string]any) map[string]any {
	patch := map[string]any{}
	for _, part := range []string{"spec", "data"} {
		if p := surplus(child(wanted, part), child(live, part)); len(p) > 0 {
			patch[part] = p
		}
	}
	if p := foreignMetadata(child(wanted, "metadata"), child(live, "metadata")); len(p) > 0 {
		patch["metadata"] = p
	}
	if op := child(live, "operation"); len(op) > 0 &&
		isForeignOperation(op, child(live, "status")) {
		patch["operation"] = nil
	}
	return patch
}

func foreignMetadata(wanted, live map[string]any) map[string]any {
	patch := map[string]any{}
	for part, keys := range map[string][]string{"labels": ownLabels,
		"annotations": stableAnnotations} {
		out := map[string]any{}
		for _, k := range keys {
			_, is := child(live, part)[k]
			if _, should := child(wanted, part)[k]; is && !should {
				out[k] = nil
			}
		}
		if len(out) > 0 {
			patch[part] = out
		}
	}
	finalizers, _ := live["finalizers"].([]any)
	kept := []any{}
	for _, f := range finalizers {
		if text, _ := f.(string); !strings.HasPrefix(text, cascadeFinalizer) {
			kept = append(kept, f)
		}
	}
	if len(kept) < len(finalizers) {
		patch["finalizers"] = kept
	}
	return patch
}

// surplus maps the fields that only live has to null. It does not descend into lists, which the
// apply replaces as a whole.
func surplus(wanted, live map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range live {
		have, there := wanted[k]
		if !there {
			out[k] = nil
			continue
		}
		below, isMap := v.(map[string]any)
		if haveMap, both := have.(map[string]any); isMap && both {
			if p := surplus(haveMap, below); len(p) > 0 {
				out[k] = p
			}
		}
	}
	return out
}

func child(m map[string]any, k string) map[string]any {
	c, _ := m[k].(map[string]any)
	return c
}

// isForeignOperation reports whether an operation is neither ours nor Argo CD's own and has not
// started. A running operation continues: a half-finished one is worse than a finished one.
func isForeignOperation(operation, status map[string]any) bool {
	by := child(operation, "initiatedBy")
	automated, _ := by["automated"].(bool)
	phase, _ := child(status, "operationState")["phase"].(string)
	return by["username"] != operationUser && !automated && phase != "Running" &&
		phase != "Terminating"
}
