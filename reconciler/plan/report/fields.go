package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"argosy.dev/argosy/fleet/printable"
)

// Field is one field of a manifest that differs. An added field has no Before, a removed one no
// After. Values are JSON; long text is cut.
type Field struct {
	Path   string `json:"path"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// Fields compares two manifests. Lists are compared as sets: elements are added or removed.
func Fields(before, after []byte) ([]Field, error) {
	b, err := decode(before)
	if err != nil {
		return nil, err
	}
	a, err := decode(after)
	if err != nil {
		return nil, err
	}
	var out []Field
	compare("", b, a, &out)
	return out, nil
}

func decode(body []byte) (any, error) {
	var v any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("a rendered manifest is not JSON: %w", err)
	}
	return v, nil
}

func compare(path string, before, after any, out *[]Field) {
	b, bothMaps := before.(map[string]any)
	a, ok := after.(map[string]any)
	if bothMaps && ok {
		keys := map[string]bool{}
		for k := range b {
			keys[k] = true
		}
		for k := range a {
			keys[k] = true
		}
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			compareKey(join(path, k), b, a, k, out)
		}
		return
	}
	bl, bothLists := before.([]any)
	al, ok := after.([]any)
	if bothLists && ok {
		compareLists(path, bl, al, out)
		return
	}
	if x, y := printed(before), printed(after); x != y {
		*out = append(*out, Field{path, shown(before), shown(after)})
	}
}

func compareKey(path string, b, a map[string]any, k string, out *[]Field) {
	x, was := b[k]
	y, is := a[k]
	switch {
	case was && is:
		compare(path, x, y, out)
	case was:
		leaves(path, x, func(path string, v any) {
			*out = append(*out, Field{Path: path, Before: shown(v)})
		})
	default:
		leaves(path, y, func(path string, v any) {
			*out = append(*out, Field{Path: path, After: shown(v)})
		})
	}
}

// leaves visits the fields of an added or removed object.
func leaves(path string, v any, visit func(string, any)) {
	m, ok := v.(map[string]any)
	if !ok || len(m) == 0 {
		visit(path, v)
		return
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		leaves(join(path, k), m[k], visit)
	}
}

func compareLists(path string, before, after []any, out *[]Field) {
	n := len(*out)
	count := map[string]int{}
	for _, x := range before {
		count[printed(x)]++
	}
	var come []any
	for _, x := range after {
		if count[printed(x)] > 0 {
			count[printed(x)]--
		} else {
			come = append(come, x)
		}
	}
	for _, x := range before {
		if count[printed(x)] > 0 {
			count[printed(x)]--
			*out = append(*out, Field{Path: path + "[]", Before: shown(x)})
		}
	}
	for _, x := range come {
		*out = append(*out, Field{Path: path + "[]", After: shown(x)})
	}
	if len(*out) == n && printed(before) != printed(after) {
		*out = append(*out, Field{path, shown(before), shown(after)})
	}
}

// join quotes keys with characters other than letters, digits, - and _, so that no key reads like a
// path.
func join(path, key string) string {
	for i := range len(key) {
		c := key[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' ||
			c == '_' {
			continue
		}
		return path + "[" + strconv.Quote(key) + "]"
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// printed returns the value as canonical JSON: decoded maps are encoded with sorted keys.
func printed(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v) // not reached: v was decoded from JSON
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// shown returns the value for people. Text is quoted, with all unprintable characters escaped, so
// that no value can end its line, change the direction of text or hide.
func shown(v any) string {
	s, text := v.(string)
	if !text {
		return Clip(printable.Name(printed(v)))
	}
	return Clip(strconv.Quote(s))
}
