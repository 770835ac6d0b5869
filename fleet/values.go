package fleet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Values are the values of a Helm chart: a text of YAML as it was written or, for values that were
// written as a map, the map as indented JSON with sorted keys. JSON is YAML, so that Helm reads
// both.
type Values string

// IsMap reports whether the values were written as a map, or as a text that is the same: JSON.
func (v Values) IsMap() bool {
	return strings.HasPrefix(string(v), "{") && json.Valid([]byte(v))
}

// UnmarshalJSON reads a text, or a map.
func (v *Values) UnmarshalJSON(b []byte) error {
	if !bytes.HasPrefix(bytes.TrimSpace(b), []byte("{")) {
		return json.Unmarshal(b, (*string)(v))
	}
	tree, err := Values(b).tree()
	if err != nil {
		return err
	}
	*v, err = ValuesOf(tree)
	return err
}

// ValuesOf returns a map as Values.
func ValuesOf(tree map[string]any) (Values, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(tree); err != nil {
		return "", fmt.Errorf("values: %w", err)
	}
	return Values(strings.TrimSuffix(out.String(), "\n")), nil
}

// tree decodes a map and keeps numbers as written.
func (v Values) tree() (map[string]any, error) {
	d := json.NewDecoder(strings.NewReader(string(v)))
	d.UseNumber()
	tree := map[string]any{}
	if err := d.Decode(&tree); err != nil {
		return nil, fmt.Errorf("values are no map: %w", err)
	}
	return tree, nil
}

// Merge lays values over these by Helm's rule for several files of values: maps merge, lists and
// scalars replace, and null replaces too, by which Helm removes the chart's own value. Both are
// maps or empty.
func (v Values) Merge(over Values) (Values, error) {
	if v == "" || over == "" {
		return v + over, nil
	}
	below, err := v.tree()
	if err != nil {
		return "", err
	}
	above, err := over.tree()
	if err != nil {
		return "", err
	}
	mergeMaps(below, above)
	return ValuesOf(below)
}

func mergeMaps(into, over map[string]any) {
	for k, v := range over {
		above, isMap := v.(map[string]any)
		if below, was := into[k].(map[string]any); was && isMap {
			mergeMaps(below, above)
			continue
		}
		into[k] = v
	}
}
