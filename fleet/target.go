package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Target is a deployment in one of its environments: the input of its Application.
type Target struct {
	Environment    *Declaration
	Namespace      string
	Sources        []Source // one or several, with overrides and variables resolved
	SourceList     bool     // the deployment has sources, even if there is one
	Sync           Sync     // with every default resolved
	DeletionPolicy DeletionPolicy
	Adopt          Adoption // the existing Application to take over; the zero value for none

	Wave                 int
	IgnoreDifferences    []IgnoreDifference
	RevisionHistoryLimit *int
	Info                 []Info
	Links                []Link
	Notifications        []Notification
	WatchPaths           []string
}

// Unresolved is a text of a deployment that one of its environments gives no valid value.
type Unresolved struct {
	Field string // that holds the text, e.g. spec.overrides[1].source.path
	Err   error  // names the environment
}

// TargetIn returns a deployment in one environment. Settings come from the defaults, the
// deployment, its overrides that select the environment, in the order of the file, and the one that
// names it, last; a later one wins. Then variables are replaced, and each text that held one passes
// the checks of a text that was written so.
func (d *Declaration) TargetIn(env *Declaration, defaults Defaults) (Target, []Unresolved) {
	spec := d.Deployment
	overrides := spec.overridesIn(env)
	own := Defaults{Sync: spec.Sync, DeletionPolicy: spec.DeletionPolicy,
		RevisionHistoryLimit: spec.RevisionHistoryLimit,
		IgnoreDifferences:    spec.IgnoreDifferences}.Or(defaults)
	sync := own.Sync
	for _, i := range overrides {
		sync = spec.Overrides[i].Sync.Or(sync)
	}
	r := resolver{scope: scope{d.Key, env}}
	namespace, _ := r.namespace(spec, overrides)
	return Target{
		Environment:    env,
		Namespace:      namespace,
		Sources:        r.sources(spec, overrides),
		SourceList:     len(spec.Sources) > 0,
		Sync:           sync.Resolved(SyncSettings{}),
		DeletionPolicy: cmp.Or(own.DeletionPolicy, DeletionDelete),
		Adopt:          spec.AdoptedIn(EnvironmentName(env.Key.Name)),

		Wave:                 spec.Wave,
		IgnoreDifferences:    own.IgnoreDifferences,
		RevisionHistoryLimit: own.RevisionHistoryLimit,
		Info:                 spec.Info,
		Links:                spec.Links,
		Notifications:        spec.Notifications,
		WatchPaths:           spec.WatchPaths,
	}, r.unresolved
}

// NamespaceIn returns the namespace of a deployment in one environment, and the field that it is
// written in. It is no valid name if the environment lacks a label that the namespace needs.
func (d *Declaration) NamespaceIn(env *Declaration) (namespace, field string) {
	r := resolver{scope: scope{d.Key, env}}
	return r.namespace(d.Deployment, d.Deployment.overridesIn(env))
}

// Varies reports whether environments may give the deployment different texts.
func (d *DeploymentSpec) Varies() bool {
	if len(d.Overrides) > 0 || HasVariables(d.Destination.Namespace) {
		return true
	}
	return slices.ContainsFunc(d.AllSources(), func(s Source) bool {
		found := false
		(&resolver{}).texts(&s, written{}, func(_ string, text string, _ kindOfText) string {
			found = found || HasVariables(text)
			return text
		})
		return found
	})
}

// overridesIn returns the places of the overrides that apply to an environment, in their order.
func (d *DeploymentSpec) overridesIn(env *Declaration) []int {
	var selecting, naming []int
	for i := range d.Overrides {
		switch o := &d.Overrides[i]; {
		case !o.AppliesTo(env):
		case o.Environment != "":
			naming = append(naming, i)
		default:
			selecting = append(selecting, i)
		}
	}
	return append(selecting, naming...)
}

// AppliesTo reports whether the override names or selects the environment.
func (o *Override) AppliesTo(env *Declaration) bool {
	if o.Environment != "" {
		return string(o.Environment) == env.Key.Name
	}
	return o.Selector.Matches(env.Labels)
}

// OverriddenSource returns the place of the source that an override changes, in the order of the
// file, or why it is not exactly one. Its values go to the same source, or to the only one of
// several that Helm renders.
func (d *DeploymentSpec) OverriddenSource(o *Override) (int, error) {
	sources := d.AllSources()
	if len(sources) == 1 && o.Source.Of == "" {
		return 0, nil
	}
	is := func(s Source) bool { return s.Ref == o.Source.Of || s.sourceName() == o.Source.Of }
	what := fmt.Sprintf("has ref, chart or path %q", o.Source.Of)
	if o.Source.Of == "" {
		if o.Source != (SourceOverride{}) {
			return 0, errors.New("the deployment has several sources")
		}
		is = func(s Source) bool { return s.Helm != nil || s.Chart != "" }
		what = "is rendered by Helm"
	}
	found := -1
	for i, s := range sources {
		switch {
		case !is(s):
		case found >= 0:
			return 0, fmt.Errorf("more than one source %s", what)
		default:
			found = i
		}
	}
	if found < 0 {
		return 0, fmt.Errorf("no source %s", what)
	}
	return found, nil
}

// sourceName is the chart of a source, or its path.
func (s Source) sourceName() string {
	if s.Chart != "" {
		return s.Chart
	}
	return s.Path
}

// resolver replaces the variables of one deployment in one environment.
type resolver struct {
	scope
	unresolved []Unresolved
}

// written is the field that holds each part of a source.
type written struct{ path, revision, tool, values string }

func (r *resolver) namespace(spec *DeploymentSpec, overrides []int) (name, field string) {
	text, field := spec.Destination.Namespace, "spec.destination.namespace"
	for _, i := range overrides {
		if ns := spec.Overrides[i].Namespace; ns != "" {
			text, field = ns, fmt.Sprintf("spec.overrides[%d].namespace", i)
		}
	}
	return r.text(field, text, namespaceText), field
}

// checkNamespaceForm leaves it to the environment's list of namespaces which ones are allowed.
func checkNamespaceForm(s string) error {
	if len(s) > maxName || !isLabel(s) {
		return errors.New("a namespace is 1 to 63 of a-z, 0-9 and '-', beginning and ending with " +
			"a letter or digit")
	}
	return nil
}

func (r *resolver) sources(spec *DeploymentSpec, overrides []int) []Source {
	sources := slices.Clone(spec.AllSources())
	at := make([]written, len(sources))
	for i := range sources {
		base := "spec.source"
		if len(spec.Sources) > 0 {
			base = fmt.Sprintf("spec.sources[%d]", i)
		}
		at[i] = written{path: base, revision: base, tool: base, values: base + ".helm.values"}
	}
	for _, i := range overrides {
		o := &spec.Overrides[i]
		if o.Source == (SourceOverride{}) && o.Values == "" {
			continue
		}
		field := fmt.Sprintf("spec.overrides[%d]", i)
		n, err := spec.OverriddenSource(o)
		if err != nil {
			r.fail(field+".source", err)
			continue
		}
		r.override(&sources[n], &at[n], o, field)
	}
	for i := range sources {
		r.resolve(&sources[i], at[i])
		if len(overrides) > 0 {
			r.inside(sources[i], at[i])
		}
	}
	return sources
}

// inside refuses files that are inside the repository from the folder that they were written for,
// and outside it from the folder of an override.
func (r *resolver) inside(s Source, at written) {
	check := func(field, file string) {
		if strings.HasPrefix(file, "$") {
			return // of a ref, from the root of its repository
		}
		if err := CheckBelow(s.Path, file); err != nil {
			r.fail(at.tool+field, fmt.Errorf("in environment %q %w", r.env.Key.Name, err))
		}
	}
	if h := s.Helm; h != nil {
		for i, file := range h.ValueFiles {
			check(fmt.Sprintf(".helm.valueFiles[%d]", i), file)
		}
		for i, p := range h.FileParameters {
			check(fmt.Sprintf(".helm.fileParameters[%d].path", i), p.Path)
		}
	}
	if k := s.Kustomize; k != nil {
		for i, folder := range k.Components {
			check(fmt.Sprintf(".kustomize.components[%d]", i), folder)
		}
	}
}

func (r *resolver) override(s *Source, at *written, o *Override, field string) {
	if o.Source.Path != "" {
		s.Path, at.path = o.Source.Path, field+".source"
	}
	if o.Source.TargetRevision != "" {
		s.TargetRevision, at.revision = o.Source.TargetRevision, field+".source"
	}
	if o.Source.Kustomize != nil || o.Source.Helm != nil || o.Source.Directory != nil ||
		o.Source.Plugin != nil {
		s.Kustomize, s.Helm, s.Directory, s.Plugin = o.Source.Kustomize, o.Source.Helm,
			o.Source.Directory, o.Source.Plugin
		at.tool, at.values = field+".source", field+".source.helm.values"
	}
	if o.Values == "" {
		return
	}
	var helm HelmSource
	if s.Helm != nil {
		helm = *s.Helm
	}
	merged, err := helm.Values.Merge(o.Values)
	if err == nil && len(merged) > MaxValues {
		err = fmt.Errorf("in environment %q the merged values have %d bytes; at most %d are "+
			"allowed", r.env.Key.Name, len(merged), MaxValues)
	}
	if err != nil {
		r.fail(field+".values", err)
		return
	}
	helm.Values, at.values = merged, field+".values"
	s.Helm = &helm
}

// kindOfText selects the checks of a text that held a variable.
type kindOfText int

const (
	namespaceText kindOfText = iota
	pathText
	fileText
	revisionText
	artifactText // revision of an OCI artifact
	imageText
	releaseText
	valueText  // of a parameter; every other "${" is a part of the text
	valuesText // as valueText
)

// MaxValues is the most bytes of a chart's values, merged and resolved.
const MaxValues = 64 << 10

var textChecks = map[kindOfText]struct {
	check func(string) error
	most  int // bytes
}{
	namespaceText: {checkNamespaceForm, maxName}, pathText: {CheckPath, 512},
	fileText: {CheckValueFile, 512}, revisionText: {CheckRevision, 256},
	artifactText: {checkOneOfArtifact, 256}, imageText: {CheckImage, 512},
	releaseText: {CheckRelease, maxRelease},
	valueText:   {anyText, 4096}, valuesText: {anyText, MaxValues},
}

func anyText(string) error { return nil }

// checkOneOfArtifact allows a digest and a tag: the grant of ranges is checked as they are written.
func checkOneOfArtifact(revision string) error {
	if IsDigest(revision) {
		return nil
	}
	return cmp.Or(CheckArtifactRevision(revision), CheckRevision(revision))
}

// resolve replaces the variables of a source, in copies of its parts.
func (r *resolver) resolve(s *Source, at written) {
	r.texts(s, at, func(field, text string, kind kindOfText) string {
		return r.text(field, text, kind)
	})
}

// texts passes each text of a source that may hold variables, with its field, and sets it to the
// result.
func (r *resolver) texts(s *Source, at written,
	each func(field, text string, kind kindOfText) string) {
	s.Path = each(at.path+".path", s.Path, pathText)
	revision := revisionText
	if s.Artifact() {
		revision = artifactText
	}
	s.TargetRevision = each(at.revision+".targetRevision", s.TargetRevision, revision)
	if k := s.Kustomize; k != nil && len(k.Images) > 0 {
		copied := *k
		copied.Images = slices.Clone(k.Images)
		for i := range copied.Images {
			copied.Images[i] = each(fmt.Sprintf("%s.kustomize.images[%d]", at.tool, i),
				copied.Images[i], imageText)
		}
		s.Kustomize = &copied
	}
	if h := s.Helm; h != nil {
		copied := *h
		copied.ReleaseName = each(at.tool+".helm.releaseName", h.ReleaseName, releaseText)
		copied.ValueFiles = slices.Clone(h.ValueFiles)
		for i := range copied.ValueFiles {
			copied.ValueFiles[i] = each(fmt.Sprintf("%s.helm.valueFiles[%d]", at.tool, i),
				copied.ValueFiles[i], fileText)
		}
		copied.Values = Values(each(at.values, string(h.Values), valuesText))
		copied.Parameters = slices.Clone(h.Parameters)
		for i := range copied.Parameters {
			copied.Parameters[i].Value = each(
				fmt.Sprintf("%s.helm.parameters[%d].value", at.tool, i),
				copied.Parameters[i].Value, valueText)
		}
		copied.FileParameters = slices.Clone(h.FileParameters)
		for i := range copied.FileParameters {
			copied.FileParameters[i].Path = each(
				fmt.Sprintf("%s.helm.fileParameters[%d].path", at.tool, i),
				copied.FileParameters[i].Path, fileText)
		}
		s.Helm = &copied
	}
}

// text replaces the variables of a text. A text without variables was checked as it was written.
func (r *resolver) text(field, text string, kind kindOfText) string {
	if !strings.Contains(text, "${") {
		return text
	}
	out, err := r.expand(text)
	if form := textChecks[kind]; err == nil {
		switch {
		case out == "" && kind != valueText && kind != valuesText:
			err = errors.New("it is empty")
		case len(out) > form.most:
			err = fmt.Errorf("it has %d bytes; at most %d are allowed", len(out), form.most)
		default:
			err = form.check(out)
		}
		if err != nil {
			err = fmt.Errorf("in environment %q it is %s: %w", r.env.Key.Name, shown(out), err)
		}
	}
	if err != nil {
		r.fail(field, err)
	}
	return out
}

// shown is a resolved text for a message.
func shown(s string) string {
	if len(s) > 100 {
		return strconv.QuoteToASCII(s[:100]) + "…"
	}
	return strconv.QuoteToASCII(s)
}

func (r *resolver) fail(field string, err error) {
	r.unresolved = append(r.unresolved, Unresolved{Field: field, Err: err})
}
