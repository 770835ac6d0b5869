// Package original brings Applications into the form in which Argo CD compares them: two specs with
// one form have one meaning for Argo CD. An import proves with it that a declaration renders what
// was there before.
//
// The form is Argo CD's own (NormalizeApplicationSpec, NormalizeSource), and what its types and its
// controller take for equal: defaults that are written out, deprecated fields, spellings of one
// repository, values as text or as an object.
package original

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// Application is an Application in its normal form.
type Application struct {
	// Spec is the normal form of the spec.
	Spec map[string]any
	// Unknown are the fields that Argo CD's types lack, by path. Argo CD ignores them.
	Unknown map[string]any
}

// Normalize returns the normal form of an Application. charts reports whether the folder of a
// source without a tool holds a Helm chart, for which Argo CD takes the name of the Application as
// the name of the release; nil: unknown, and then the release is left out of the form.
func Normalize(object map[string]any, charts func(folder string) bool) (Application, error) {
	raw, _ := object["spec"].(map[string]any)
	raw, err := copyOf(raw)
	if err != nil {
		return Application{}, err
	}
	readEnabled(raw)
	var spec v1alpha1.ApplicationSpec
	if err := convert(raw, &spec); err != nil {
		return Application{}, fmt.Errorf("spec is no Application's: %w", plain(err))
	}
	unknown := map[string]any{}
	lacking("spec", raw, reflect.TypeFor[v1alpha1.ApplicationSpec](), unknown)
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	if err := normalize(&spec, name, charts); err != nil {
		return Application{}, err
	}
	var form map[string]any
	if err := convert(spec, &form); err != nil {
		return Application{}, err
	}
	if err := readValues(form); err != nil {
		return Application{}, err
	}
	return Application{Spec: form, Unknown: unknown}, nil
}

// readEnabled rewrites automated.enabled, which Argo CD has since 3.1, in the older form: no
// automated at all if it is false.
func readEnabled(spec map[string]any) {
	policy, _ := spec["syncPolicy"].(map[string]any)
	automated, _ := policy["automated"].(map[string]any)
	switch enabled, written := automated["enabled"].(bool); {
	case written && !enabled:
		delete(policy, "automated")
	case written:
		delete(automated, "enabled")
	}
}

func normalize(spec *v1alpha1.ApplicationSpec, name string, charts func(string) bool) error {
	if spec.Project == "" {
		spec.Project = v1alpha1.DefaultAppProjectName
	}
	normalizeSync(spec)
	sources := spec.Sources
	if len(sources) == 0 && spec.Source != nil {
		sources = v1alpha1.ApplicationSources{*spec.Source}
	}
	for i := range sources {
		if err := normalizeSource(&sources[i], name, charts); err != nil {
			return err
		}
	}
	if len(spec.Sources) > 0 {
		spec.Source = nil // Argo CD reads sources alone
	} else if spec.Source != nil {
		spec.Source = &sources[0]
	}
	return nil
}

func normalizeSync(spec *v1alpha1.ApplicationSpec) {
	policy := spec.SyncPolicy
	if policy == nil {
		return
	}
	var options v1alpha1.SyncOptions
	for _, o := range policy.SyncOptions {
		if !defaultOptions[o] && !slices.Contains(options, o) {
			options = append(options, o)
		}
	}
	slices.Sort(options)
	policy.SyncOptions = options
	if m := policy.ManagedNamespaceMetadata; m != nil && len(m.Labels) == 0 &&
		len(m.Annotations) == 0 {
		policy.ManagedNamespaceMetadata = nil
	}
	if policy.IsZero() {
		spec.SyncPolicy = nil
	}
}

// defaultOptions are the sync options that have the meaning of an option that is left out.
var defaultOptions = map[string]bool{
	"": true, "CreateNamespace=false": true, "Validate=true": true, "PruneLast=false": true,
	"ApplyOutOfSyncOnly=false": true, "ServerSideApply=false": true, "Replace=false": true,
	"RespectIgnoreDifferences=false": true, "FailOnSharedResource=false": true,
	"SkipDryRunOnMissingResource=false": true,
	"PrunePropagationPolicy=foreground": true, "Force=false": true, "Prune=true": true,
	"Delete=true": true, "ClientSideApplyMigration=true": true,
}

func normalizeSource(s *v1alpha1.ApplicationSource, name string, charts func(string) bool) error {
	if s.Kustomize.IsZero() {
		s.Kustomize = nil
	}
	if d := s.Directory; d != nil && d.IsZero() && d.Include == "" && d.Exclude == "" {
		s.Directory = nil
	}
	if s.Plugin.IsZero() && s.Plugin != nil && s.Plugin.Name == "" && len(s.Plugin.Env) == 0 {
		// an empty plugin asks Argo CD to detect one, so it stays
		s.Plugin = &v1alpha1.ApplicationSourcePlugin{}
	}
	if s.Chart == "" {
		s.RepoURL = gitURL(s.RepoURL)
		if s.TargetRevision == "" {
			s.TargetRevision = "HEAD"
		}
		if s.Path != "" && !path.IsAbs(s.Path) {
			s.Path = path.Clean(s.Path)
		}
	} else {
		s.RepoURL = strings.TrimSuffix(s.RepoURL, "/")
		s.Path = ""
	}
	return normalizeHelm(s, name, charts)
}

func normalizeHelm(s *v1alpha1.ApplicationSource, name string, charts func(string) bool) error {
	h := s.Helm
	if h != nil && h.Version == "v3" {
		h.Version = ""
	}
	if h.IsZero() {
		h = nil
	}
	plain := s.Kustomize == nil && s.Directory == nil && s.Plugin == nil
	if h == nil && (s.Chart != "" || plain && s.Path != "" && charts != nil && charts(s.Path)) {
		h = &v1alpha1.ApplicationSourceHelm{}
	}
	s.Helm = h
	if h == nil {
		return nil
	}
	if h.ReleaseName == "" {
		h.ReleaseName = name
	}
	if h.ValuesObject == nil && h.Values == "" {
		return nil
	}
	text := []byte(h.Values)
	if h.ValuesObject != nil { // it wins over values
		text = h.ValuesObject.Raw
	}
	values, err := yaml.YAMLToJSON(text)
	if err != nil {
		// Helm fails on them too; the text is compared as it is
		return nil
	}
	h.ValuesObject, h.Values = nil, string(values)
	if trimmed := strings.TrimSpace(h.Values); trimmed == "{}" || trimmed == "null" {
		h.Values = ""
	}
	return nil
}

// readValues puts the values of every chart as a tree in place of their JSON, so that a difference
// has the path of one value.
func readValues(spec map[string]any) error {
	sources, _ := spec["sources"].([]any)
	if one, ok := spec["source"]; ok {
		sources = append(slices.Clone(sources), one)
	}
	for _, s := range sources {
		source, _ := s.(map[string]any)
		helm, _ := source["helm"].(map[string]any)
		text, _ := helm["values"].(string)
		if text == "" {
			continue
		}
		values, err := tree([]byte(text))
		if err != nil {
			continue // text that is no map stays text
		}
		helm["values"] = values
	}
	return nil
}

// gitURL is one spelling of a Git repository's URL, as Argo CD compares them (NormalizeGitURL):
// without a trailing slash and ".git", with ssh:// for the scp form, and with the host in lower
// case. The path keeps its case: Argo CD fetches it as it is written, and a Git host may know two
// repositories that differ in it.
func gitURL(raw string) string {
	u := strings.TrimSpace(raw)
	if !strings.Contains(u, "://") {
		if host, rest, ok := strings.Cut(u, ":"); ok && strings.Contains(host, "@") {
			u = "ssh://" + host + "/" + strings.TrimPrefix(rest, "/")
		}
	}
	if scheme, rest, ok := strings.Cut(u, "://"); ok {
		host, path, _ := strings.Cut(rest, "/")
		u = strings.ToLower(scheme+"://"+host) + "/" + path
	}
	return strings.TrimSuffix(strings.TrimSuffix(u, "/"), ".git")
}

// lacking collects the fields of a tree that a type has no field for, by path. A field with the
// value of one that is left out is not collected.
func lacking(at string, raw any, t reflect.Type, into map[string]any) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch raw := raw.(type) {
	case map[string]any:
		if t.Kind() == reflect.Map {
			for _, k := range slices.Sorted(maps.Keys(raw)) {
				lacking(at+"."+k, raw[k], t.Elem(), into)
			}
			return
		}
		if t.Kind() != reflect.Struct || t == reflect.TypeFor[runtime.RawExtension]() {
			return // any value
		}
		fields := map[string]reflect.Type{}
		fieldsOf(t, fields)
		for _, k := range slices.Sorted(maps.Keys(raw)) {
			if below, ok := fields[k]; ok {
				lacking(at+"."+k, raw[k], below, into)
			} else if !empty(raw[k]) {
				into[at+"."+k] = raw[k]
			}
		}
	case []any:
		if t.Kind() == reflect.Slice {
			for i, v := range raw {
				lacking(fmt.Sprintf("%s[%d]", at, i), v, t.Elem(), into)
			}
		}
	}
}

// fieldsOf collects the fields of a struct by their names in JSON.
func fieldsOf(t reflect.Type, into map[string]reflect.Type) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		below := f.Type
		for below.Kind() == reflect.Pointer {
			below = below.Elem()
		}
		switch {
		case f.Anonymous && name == "" && below.Kind() == reflect.Struct:
			fieldsOf(below, into)
		case name != "" && name != "-":
			into[name] = f.Type
		}
	}
}

// empty reports whether a value is absent in every type: a number or a false can be a setting.
func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

func copyOf(v map[string]any) (map[string]any, error) {
	if v == nil {
		return nil, fmt.Errorf("it has no spec")
	}
	var out map[string]any
	err := convert(v, &out)
	return out, err
}

// convert goes through JSON and keeps numbers as they are written.
func convert(from, to any) error {
	b, err := json.Marshal(from)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	return dec.Decode(to)
}

func tree(b []byte) (map[string]any, error) {
	var out map[string]any
	err := convert(json.RawMessage(b), &out)
	return out, err
}

// plain is an error of encoding/json without the names of Go types.
func plain(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Errorf("%s cannot be a %s", wrong.Field, wrong.Value)
	}
	return err
}
