package argocd

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"argosy.dev/argosy/fleet"
)

// maxObject bounds the bytes of a manifest. etcd allows 1.5 MiB, and Argo CD adds its status to the
// same object.
const maxObject = 1 << 20

// Renderer makes manifests of desired objects. It is pure and safe for concurrent use.
type Renderer struct{}

// Render returns the object for an engine as canonical JSON without secrets. An error means that
// the object must not reach Argo CD: a name that does not match its identity, a pattern character
// of Argo CD, or more than 1 MiB. The error names the object and the field.
func (Renderer) Render(engine fleet.EngineSpec, o fleet.Object) (fleet.Manifest, error) {
	obj, err := build(engine, o)
	if err != nil {
		return fleet.Manifest{}, fmt.Errorf("%s %s: %w", o.Key.Kind, o.Key.Name, err)
	}
	obj.Metadata.Annotations = map[string]string{annotationEngine: string(o.Key.Engine)}
	if a := o.Application; a != nil {
		if a.Hold != "" {
			obj.Metadata.Annotations[annotationHold] = string(a.Hold)
		}
		if a.Wave < fleet.MinWave || a.Wave > fleet.MaxWave {
			return fleet.Manifest{}, fmt.Errorf("%s %s: wave %d is not %d to %d", o.Key.Kind,
				o.Key.Name, a.Wave, fleet.MinWave, fleet.MaxWave)
		}
		if a.Wave != 0 {
			obj.Metadata.Annotations[fleet.WaveAnnotation] = strconv.Itoa(a.Wave)
		}
		if err := renderAnnotations(obj.Metadata.Annotations, *a); err != nil {
			return fleet.Manifest{}, fmt.Errorf("%s %s: %w", o.Key.Kind, o.Key.Name, err)
		}
	}
	if o.Application != nil && o.Application.Adopt != "" {
		obj.Metadata.Annotations[annotationAdopted] = o.Application.Adopt
		if o.Application.AdoptOrCreate {
			obj.Metadata.Annotations[annotationOrCreate] = "true"
		}
	}
	if c := o.Cluster; c != nil && c.ServiceAccount != nil {
		obj.Metadata.Annotations[fleet.AccountAnnotation] = c.ServiceAccount.String()
	}
	if c := o.Cluster; c != nil && len(c.Evacuated) > 0 {
		obj.Metadata.Annotations[annotationEvacuated] = joinEngines(c.Evacuated)
	}
	if c := o.Cluster; c != nil && len(c.Slices) > 0 {
		obj.Metadata.Annotations[annotationSlices] = fleet.JoinSlices(c.Slices)
	}
	if o.Project != nil && o.Project.AdoptionPaused != "" {
		by := o.Project.AdoptionPaused
		if by != fleet.PausedByTenant && by != fleet.PausedByEngine {
			return fleet.Manifest{}, fmt.Errorf("%s %s: adoption paused by %q", o.Key.Kind,
				o.Key.Name, by)
		}
		obj.Metadata.Annotations[annotationAdoptionPaused] = string(by)
	}
	body, err := canonicalOf(obj)
	if err != nil {
		return fleet.Manifest{}, fmt.Errorf("%s %s: %w", o.Key.Kind, o.Key.Name, err)
	}
	if len(body) > maxObject {
		return fleet.Manifest{},
			fmt.Errorf(
				"%s %s: it would be %d bytes; an engine takes at most %d: shorten its values",
				o.Key.Kind, o.Key.Name, len(body), maxObject)
	}
	return fleet.Manifest{Body: body, Hash: hashOf(body)}, nil
}

// Retarget returns the manifest of an Application as another engine gets it. Render rejects sources
// that can read files of a repo-server which several tenants share, and so does Retarget: the
// manifest may be of an engine that serves its tenant alone.
func (Renderer) Retarget(engine fleet.EngineSpec, to fleet.EngineName, tenant fleet.TenantName,
	m fleet.Manifest) (fleet.Manifest, error) {
	if err := checkEngine(to); err != nil {
		return fleet.Manifest{}, fmt.Errorf("engine: %w", err)
	}
	tree, err := decodeTree(m.Body)
	if err != nil {
		return fleet.Manifest{}, err
	}
	if at := (place{tenant: tenant, name: to, engine: engine}); !at.alone() {
		if err := shareable(m.Body); err != nil {
			return fleet.Manifest{}, fmt.Errorf("engine %s is not dedicated to the tenant alone, "+
				"and %w", to, err)
		}
	}
	meta, _ := tree["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	if annotations[annotationEngine] == nil {
		return fleet.Manifest{}, fmt.Errorf("the manifest has no annotation %s", annotationEngine)
	}
	annotations[annotationEngine] = string(to)
	body, err := canonical(tree)
	if err != nil {
		return fleet.Manifest{}, err
	}
	return fleet.Manifest{Body: body, Hash: hashOf(body)}, nil
}

// shareable reports which source of an Application must not reach a repo-server that several
// tenants share.
func shareable(body []byte) error {
	type source struct {
		RepoURL   string
		Directory struct{ Jsonnet json.RawMessage }
	}
	var app struct {
		Spec struct {
			Source  source
			Sources []source
		}
	}
	if err := json.Unmarshal(body, &app); err != nil {
		return fmt.Errorf("its manifest is no Application: %w", err)
	}
	for _, s := range append(app.Spec.Sources, app.Spec.Source) {
		switch {
		case len(s.Directory.Jsonnet) > 0:
			return errors.New("a source has directory.jsonnet")
		case fleet.Source{RepoURL: s.RepoURL}.Artifact():
			return fmt.Errorf("source %s is an OCI artifact", s.RepoURL)
		}
	}
	return nil
}

// build makes the typed object, or rejects it.
func build(engine fleet.EngineSpec, o fleet.Object) (object, error) {
	set := 0
	for _, is := range []bool{o.Project != nil, o.Cluster != nil, o.Repository != nil,
		o.Application != nil} {
		if is {
			set++
		}
	}
	if set != 1 {
		return object{}, fmt.Errorf("exactly one of its parts must be set, not %d", set)
	}
	if err := checkEngine(o.Key.Engine); err != nil {
		return object{}, fmt.Errorf("engine: %w", err)
	}
	switch {
	case o.Project != nil && o.Key.Kind == fleet.ObjectProject:
		return renderProject(engine, o.Key, *o.Project)
	case o.Cluster != nil && o.Key.Engine.OfEnvironment():
		return object{},
			fmt.Errorf("an environment's own cluster needs no cluster Secret, and gets none")
	case o.Cluster != nil && o.Key.Kind == fleet.ObjectCluster:
		return renderCluster(engine, o.Key, *o.Cluster)
	case o.Repository != nil && o.Key.Kind == fleet.ObjectRepository:
		return renderRepository(o.Key, *o.Repository)
	case o.Application != nil && o.Key.Kind == fleet.ObjectApplication:
		return renderApplication(engine, o.Key, *o.Application)
	}
	return object{}, fmt.Errorf("its key's kind %q does not match its content", o.Key.Kind)
}

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
