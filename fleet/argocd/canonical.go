package argocd

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// canonical encodes a JSON value for hashing: sorted keys, no white space, and no null or empty
// list, which would make every apply a change. It keeps empty objects, because `automated: {}`
// turns automation on, and empty strings, because the core API group is one.
func canonical(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(prune(v)); err != nil {
		return nil, fmt.Errorf("canonical form: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// canonicalOf returns the canonical form of a typed value.
func canonicalOf(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("canonical form: %w", err)
	}
	tree, err := decodeTree(b)
	if err != nil {
		return nil, err
	}
	return canonical(tree)
}

// decodeTree decodes a JSON object and keeps numbers as written.
func decodeTree(b []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var tree map[string]any
	if err := dec.Decode(&tree); err != nil {
		return nil, fmt.Errorf("object is not JSON: %w", err)
	}
	return tree, nil
}

// prune removes, in place, the values that canonical omits.
func prune(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if p := prune(e); hasContent(p) {
				v[k] = p
			} else {
				delete(v, k)
			}
		}
	case []any:
		for i := range v {
			v[i] = prune(v[i])
		}
	}
	return v
}

func hasContent(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case []any:
		return len(v) > 0
	}
	return true
}

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
