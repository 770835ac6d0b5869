package apitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"text/template"
	"time"

	"sigs.k8s.io/yaml"
)

// Load reads a mirror from YAML. {{ago "5m"}} in it is replaced by the time that long before now.
func Load(text string, now time.Time) (Mirror, error) {
	t, err := template.New("mirror").Funcs(template.FuncMap{"ago": func(d string) (string, error) {
		v, err := time.ParseDuration(d)
		return now.Add(-v).UTC().Format(time.RFC3339Nano), err
	}}).Parse(text)
	if err != nil {
		return Mirror{}, fmt.Errorf("mirror: %w", err)
	}
	var filled bytes.Buffer
	if err := t.Execute(&filled, nil); err != nil {
		return Mirror{}, fmt.Errorf("mirror: %w", err)
	}
	content, err := yaml.YAMLToJSON(filled.Bytes())
	if err != nil {
		return Mirror{}, fmt.Errorf("mirror: %w", err)
	}
	var m Mirror
	strict := json.NewDecoder(bytes.NewReader(content))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&m); err != nil {
		return Mirror{}, fmt.Errorf("mirror: %w", err)
	}
	return m, nil
}
