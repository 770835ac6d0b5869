package adoption

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// combined is one generator in place of several of clusters that differ in one label: a merge in
// which the later ones change the values of their clusters. It returns nil if there is none. No
// cluster has two values of a label, so that each is selected once, as before.
func combined(generators []any) any {
	if len(generators) < 2 {
		return nil
	}
	var blocks, labels []map[string]any
	for _, raw := range generators {
		m, _ := raw.(map[string]any)
		block := object(m, "clusters")
		selector := object(block, "selector")
		if len(m) != 1 || len(object(selector, "matchLabels")) == 0 ||
			!onlyKeys(block, "selector", "values") || !onlyKeys(selector, "matchLabels") {
			return nil
		}
		blocks, labels = append(blocks, block), append(labels, object(selector, "matchLabels"))
	}
	key := differing(labels)
	if key == "" {
		return nil
	}
	var values []any
	for i, l := range labels {
		if slices.ContainsFunc(values, func(v any) bool { return same(v, l[key]) }) ||
			!slices.Equal(keys(object(blocks[i], "values")), keys(object(blocks[0], "values"))) {
			return nil
		}
		values = append(values, fmt.Sprint(l[key]))
	}
	common := maps.Clone(labels[0])
	delete(common, key)
	all := map[string]any{"selector": compact(map[string]any{"matchLabels": common,
		"matchExpressions": []any{map[string]any{"key": key, "operator": "In",
			"values": values}}})}
	if len(object(blocks[0], "values")) > 0 {
		all["values"] = clone(blocks[0]["values"])
	}
	first := map[string]any{"clusters": all}
	if !slices.ContainsFunc(blocks, func(b map[string]any) bool {
		return !same(b["values"], blocks[0]["values"])
	}) {
		return first
	}
	parts := append([]any{first}, clone(generators[1:]).([]any)...)
	return map[string]any{"merge": map[string]any{"mergeKeys": []any{"server"},
		"generators": parts}}
}

// onlyKeys reports whether a map has no other keys than some.
func onlyKeys(m map[string]any, some ...string) bool {
	return !slices.ContainsFunc(keys(m), func(k string) bool {
		return !slices.Contains(some, k) && compact(clone(m[k])) != nil
	})
}

// differing is the only key in which labels differ, or "".
func differing(labels []map[string]any) (key string) {
	for _, l := range labels[1:] {
		if !slices.Equal(keys(l), keys(labels[0])) {
			return ""
		}
		for _, k := range keys(l) {
			if same(l[k], labels[0][k]) {
				continue
			}
			if key != "" && key != k {
				return ""
			}
			key = k
		}
	}
	return key
}

// asWrittenPath is the path in an ApplicationSet as it was, before its generators were combined.
func (s *set) asWrittenPath(path string) string {
	if !s.combined {
		return path
	}
	return strings.Replace(path, "spec.generators[0].merge", "spec.generators", 1)
}
