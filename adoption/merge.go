package adoption

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	configschema "argosy.dev/argosy/config-schema"
)

// Merge returns a declaration that an earlier import wrote with what a later one adds. The lists of
// both are joined and the larger number counts, so that a part that is imported later takes no
// grant, namespace or host from an earlier part. Another value is that of the later import.
func Merge(earlier, later []byte) ([]byte, error) {
	old, err := parse(string(earlier))
	if err != nil {
		return nil, err
	}
	next, err := parse(string(later))
	if err != nil {
		return nil, err
	}
	if old == nil || next == nil {
		return nil, fmt.Errorf("it is no declaration")
	}
	for _, other := range [][2]string{{"cluster", "agent"}, {"agent", "cluster"}} {
		if object(next, "spec")[other[0]] != nil {
			delete(object(old, "spec"), other[1]) // an environment has one of the two
		}
	}
	tree, _ := joined(old, next).(map[string]any)
	spec := object(tree, "spec")
	if all, _ := spec["allNamespaces"].(bool); all {
		delete(spec, "namespaces")
	}
	body, err := configschema.WriteDocument(tree)
	if err != nil {
		return nil, err
	}
	var head []string
	for line := range strings.Lines(string(earlier) + string(later)) {
		if strings.HasPrefix(line, "#") && !slices.Contains(head, line) {
			head = append(head, line)
		}
	}
	return append([]byte(strings.Join(head, "")), body...), nil
}

// SameButSelector reports whether an earlier import wrote a deployment with the selector of an
// ApplicationSet, of which a later one finds the Applications alone, released from it.
func SameButSelector(earlier, later []byte) bool {
	old, errOld := parse(string(earlier))
	next, errNext := parse(string(later))
	if errOld != nil || errNext != nil ||
		object(old, "spec", "destination")["environmentSelector"] == nil {
		return false
	}
	for _, tree := range []map[string]any{old, next} {
		delete(object(tree, "spec", "destination"), "environmentSelector")
		delete(object(tree, "spec", "destination"), "environments")
	}
	return same(old, next)
}

// joined is a tree with all that two trees have.
func joined(old, next any) any {
	switch b := next.(type) {
	case map[string]any:
		a, ok := old.(map[string]any)
		if !ok {
			return next
		}
		out := clone(a).(map[string]any)
		for k, v := range b {
			if have, ok := out[k]; ok {
				v = joined(have, v)
			}
			out[k] = v
		}
		return out
	case []any:
		a, ok := old.([]any)
		if !ok {
			return next
		}
		return joinedLists(a, b)
	case json.Number:
		x, errX := asFloat(old)
		y, errY := b.Float64()
		if errX == nil && errY == nil && x > y {
			return old
		}
	}
	return next
}

func asFloat(v any) (float64, error) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, fmt.Errorf("no number")
	}
	return n.Float64()
}

// joinedLists joins entries that are named, and adds the others once, in the order of their text.
func joinedLists(old, next []any) []any {
	out := slices.Clone(old)
	for _, e := range next {
		m, _ := e.(map[string]any)
		name := text(m, "name")
		i := slices.IndexFunc(out, func(have any) bool {
			other, _ := have.(map[string]any)
			return same(have, e) || name != "" && text(other, "name") == name
		})
		if i < 0 {
			out = append(out, e)
		} else {
			out[i] = joined(out[i], e)
		}
	}
	key := func(v any) []byte {
		m, _ := v.(map[string]any)
		if name := text(m, "name"); name != "" {
			return []byte(name)
		}
		b, err := json.Marshal(v)
		if err != nil {
			return nil
		}
		return b
	}
	slices.SortStableFunc(out, func(a, b any) int { return bytes.Compare(key(a), key(b)) })
	return out
}
