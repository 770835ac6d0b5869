package adoption

import (
	"encoding/json"
	"strings"
)

// The marks of Argosy on its objects in an Argo CD.
const (
	markManager = "app.kubernetes.io/managed-by"
	markTenant  = "argosy.dev/tenant"
	markBefore  = "argosy.dev/before"
	markProbe   = "argosy.dev/probe"
	marks       = "argosy.dev/"
)

// beforeAdoption returns the originals as they were before Argosy adopted them, so that an import
// proposes the same however many are adopted. It leaves out what Argosy created: that is declared.
func beforeAdoption(all []Original) []Original {
	kept := make([]Original, 0, len(all))
	for _, o := range all {
		labels := object(o.Object, "metadata", "labels")
		if labels[markProbe] == "true" {
			continue
		}
		if labels[markManager] != "argosy" || labels[markTenant] == nil {
			kept = append(kept, o)
			continue
		}
		was := text(o.Object, "metadata", "annotations", markBefore)
		if o.Kind != KindApplication || was == "" {
			continue
		}
		if restored, ok := restore(o.Object, was); ok {
			o.Object, o.adopted = restored, true
			kept = append(kept, o)
		}
	}
	return kept
}

// createdFor are the tenants of the Applications that Argosy created.
func createdFor(all []Original) map[string]bool {
	tenants := map[string]bool{}
	for _, o := range all {
		labels := object(o.Object, "metadata", "labels")
		if o.Kind == KindApplication && labels[markManager] == "argosy" &&
			labels[markProbe] != "true" && labels[markTenant] != nil &&
			text(o.Object, "metadata", "annotations", markBefore) == "" {
			tenants[text(labels, markTenant)] = true
		}
	}
	return tenants
}

// restore returns a copy of an adopted Application with the fields that its adoption changed.
func restore(live map[string]any, was string) (map[string]any, bool) {
	var before struct {
		Project     string
		Destination map[string]any
		Finalizers  []any
		Labels      map[string]string
	}
	copied, err := json.Marshal(live)
	if err != nil {
		return nil, false
	}
	var out map[string]any
	dec := json.NewDecoder(strings.NewReader(string(copied)))
	dec.UseNumber()
	if dec.Decode(&out) != nil || json.Unmarshal([]byte(was), &before) != nil ||
		before.Destination == nil {
		return nil, false
	}
	spec, meta := object(out, "spec"), object(out, "metadata")
	spec["project"], spec["destination"] = before.Project, before.Destination
	finalizers, _ := meta["finalizers"].([]any)
	meta["finalizers"] = append(finalizers, before.Finalizers...)
	for _, part := range []string{"labels", "annotations"} {
		for key := range object(meta, part) {
			if key == markManager || strings.HasPrefix(key, marks) {
				delete(object(meta, part), key)
			}
		}
	}
	for key, value := range before.Labels {
		object(meta, "labels")[key] = value
	}
	return out, true
}
