package argocd

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
)

// restore overwrites what somebody else has changed. An apply gives us our own fields back; what a
// stranger has added (a second source, ignoreDifferences, a finalizer, an operation) is taken out
// by a merge patch first. Both demand the state that was read.
func (e *Engine) restore(ctx context.Context, w *want, known *entry) (engine.Outcome, error) {
	wait, again := e.quarrels.enter(w.row.Key, e.options.Now(), e.options.Conflict)
	if wait > 0 {
		return engine.Outcome{State: fleet.ApplyConflict, Message: quarrelText(known),
			RetryAfter: wait}, nil
	}
	live, fresh, err := e.readWhole(ctx, w)
	if err != nil {
		return engine.Outcome{}, err
	}
	// meanwhile it went, is being deleted, belongs to a later lease, or is mended
	if w.decide(fresh) != doRestore {
		return e.step(ctx, w, fresh)
	}
	if fresh, err = e.takeOut(ctx, w, fresh, live); err != nil {
		return engine.Outcome{}, err
	}
	out, err := e.write(ctx, w, fresh)
	if err == nil && again {
		out.State, out.Message, out.RetryAfter = fleet.ApplyConflict, quarrelText(known),
			e.options.Conflict
	}
	return out, err
}

func quarrelText(known *entry) string {
	who := firstOf(known.intruder, known.Manager,
		"something that leaves no name, perhaps an admission webhook,")
	return fmt.Sprintf(
		"%s keeps changing it on the engine; it is overwritten at growing intervals: change the "+
			"declaration instead, or take away its right to write", who)
}

// readWhole is an uncached read of the object, whole and as an entry; nil when it is gone.
func (e *Engine) readWhole(ctx context.Context, w *want) (map[string]any, *entry, error) {
	var raw json.RawMessage
	err := e.client.do(ctx, request{method: http.MethodGet,
		path: w.r.object(e.namespace, w.row.Key.Name)}, &raw)
	if e.absent(err, w.r) {
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

// takeOut removes what the manifest does not have from a live object and returns its entry as it
// stands then. An object that changed since it was read gives a conflict, so that it is decided
// anew.
func (e *Engine) takeOut(ctx context.Context, w *want, read *entry, live map[string]any) (*entry,
	error) {
	patch := strangers(w.tree, live)
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

// merge sends a merge patch that demands the known object in the known version.
func (e *Engine) merge(ctx context.Context, row fleet.Row, patch map[string]any,
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

// strangers is the merge patch that takes out of live what wanted does not have, where that could
// steer Argo CD: spec or data, our own labels and annotations, the cascade finalizer, an operation
// that has not begun. Empty when there is nothing.
func strangers(wanted, live map[string]any) map[string]any {
	patch := map[string]any{}
	for _, part := range []string{"spec", "data"} {
		if p := surplus(child(wanted, part), child(live, part)); len(p) > 0 {
			patch[part] = p
		}
	}
	if p := strangersInMetadata(child(wanted, "metadata"), child(live, "metadata")); len(p) > 0 {
		patch["metadata"] = p
	}
	if op := child(live, "operation"); len(op) > 0 && isIntruder(op, child(live, "status")) {
		patch["operation"] = nil
	}
	return patch
}

func strangersInMetadata(wanted, live map[string]any) map[string]any {
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

// surplus names, with nulls, what live has beyond wanted. Lists are replaced whole by the apply, so
// only maps are gone into.
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

// isIntruder reports whether an operation is neither ours nor Argo CD's own and has not begun. One
// that runs is let run: what is half done is worse than what is done.
func isIntruder(operation, status map[string]any) bool {
	by := child(operation, "initiatedBy")
	automated, _ := by["automated"].(bool)
	phase, _ := child(status, "operationState")["phase"].(string)
	return by["username"] != operationUser && !automated && phase != "Running" &&
		phase != "Terminating"
}
