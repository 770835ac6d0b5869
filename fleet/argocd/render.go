package argocd

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

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

// patternChars are the special characters of Argo CD's matcher (gobwas/glob, with '!' as a prefix
// for "not"). It matches AppProject sources and destinations, and the url and server of scoped
// Secrets (app_project_types.go, util/argo/argo.go).
const patternChars = "*?[]{}!\\"

// exact rejects text that is empty, has a pattern character, white space or a control character, or
// is longer than most bytes.
func exact(field, s string, most int) error {
	switch {
	case s == "":
		return fmt.Errorf("%s is empty", field)
	case len(s) > most:
		return fmt.Errorf("%s has %d bytes; at most %d are allowed", field, len(s), most)
	}
	for _, r := range s {
		switch {
		case strings.ContainsRune(patternChars, r):
			return fmt.Errorf("%s %q holds %q, which Argo CD reads as a pattern", field, s, r)
		case r <= ' ' || r == 0x7f || r > 0x7e:
			return fmt.Errorf("%s %q holds a character that is not plain printable ASCII", field, s)
		}
	}
	return nil
}

// exactServer accepts a server key: a checked URL and the query of ServerKey, whose '?' is the only
// pattern character. As a pattern it matches any one character, itself included. The rest of the
// key is unique, so it matches nothing else. With a zero env it accepts any environment's key. With
// own it is the cluster that the engine's Argo CD runs on: a URL that Argo CD would use with its
// own service account if it were without the query, and that no declaration names.
func exactServer(field, key string, env fleet.EnvironmentID, own bool) error {
	server, query, _ := strings.Cut(key, "?")
	name, isKey := strings.CutPrefix(query, "managedEnvironment=")
	if !isKey || env != (fleet.EnvironmentID{}) && key != fleet.ServerKey(server, env) {
		return fmt.Errorf("%s %q is not the server key of the environment", field, key)
	}
	for _, part := range []string{server, name} {
		if err := exact(field, part, 1024); err != nil {
			return err
		}
	}
	if own {
		if server != fleet.InClusterServer {
			return fmt.Errorf("%s %q is not the engine's own cluster, %s", field, key,
				fleet.InClusterServer)
		}
		return nil
	}
	if err := fleet.CheckServerURL(server); err != nil {
		return fmt.Errorf("%s %q: %w", field, key, err)
	}
	return nil
}

// onOwnCluster reports whether an object is on the own cluster of the engine that it is rendered
// for, and rejects one that is on another engine's.
func onOwnCluster(field string, on, engine fleet.EngineName) (bool, error) {
	if on != "" && (on != engine || engine.OfEnvironment()) {
		return false, fmt.Errorf("%s: engine %s does not run on the cluster of engine %s", field,
			engine, on)
	}
	return on != "", nil
}

// checkEngine accepts the name of a declared engine or of an environment's own cluster, which is
// two names joined by a dot.
func checkEngine(name fleet.EngineName) error {
	first, second, own := strings.Cut(string(name), ".")
	if !own {
		return fleet.ValidateName(first)
	}
	if len(name) > 63 {
		return fmt.Errorf("the name is %d characters long; at most 63 are allowed", len(name))
	}
	return errors.Join(fleet.ValidateName(first), fleet.ValidateName(second))
}

// exactDestination accepts a destination of an engine: on an environment's own cluster only that
// cluster, elsewhere a server key. With a zero env it accepts any environment's key.
func exactDestination(field string, d fleet.Destination, engine fleet.EngineName,
	env fleet.EnvironmentID) error {
	own, err := onOwnCluster(field, d.OnEngine, engine)
	if err != nil {
		return err
	}
	server := d.Server
	if !engine.OfEnvironment() {
		return exactServer(field, server, env, own)
	}
	if server != fleet.InClusterServer {
		return fmt.Errorf("%s %q is not the environment's own cluster, %s", field, server,
			fleet.InClusterServer)
	}
	if env != (fleet.EnvironmentID{}) && engine != fleet.AgentEngine(env) {
		return fmt.Errorf("%s: engine %s is not the own cluster of environment %s", field, engine,
			env)
	}
	return nil
}

// exactRepo accepts the URL of a repository, without credentials in it.
func exactRepo(field, url string) error {
	if _, err := fleet.ParseRepoURL(url); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return exact(field, url, 1024)
}

// place is the tenant of an object and the engine that it is rendered for.
type place struct {
	tenant fleet.TenantName
	name   fleet.EngineName
	engine fleet.EngineSpec
}

// exactNamespace accepts any namespace except reserved ones and the engine's own. A granted one may
// be reserved, and the engine's own if the engine serves this tenant alone or
// it is the platform's.
func (p place) exactNamespace(field, ns string, granted bool) error {
	check := fleet.ValidateNamespace
	if granted {
		check = fleet.CheckNamespace
	}
	if err := check(ns); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	if ns == p.engine.ArgoCD.Namespace && !(granted &&
		(p.name.OfEnvironment() || p.engine.Trusts(p.tenant))) {
		return fmt.Errorf("%s %q is Argo CD's own namespace on the engine", field, ns)
	}
	return nil
}

// alone reports whether the engine serves this tenant and no other: write access to its namespace
// is the instance.
func (p place) alone() bool {
	return p.name.OfEnvironment() || p.engine.Serves(p.tenant)
}

type apiGroupKind = metav1.GroupKind

func groupKind(gk fleet.GroupKind) apiGroupKind {
	return apiGroupKind{Group: gk.Group, Kind: gk.Kind}
}

// renderApplication renders one deployment in one environment. It omits automation while a SyncRun
// holds the Application. It sets no finalizer, so that an accidental deletion of the Application
// keeps its workload.
func renderApplication(engine fleet.EngineSpec, key fleet.ObjectKey, a fleet.Application) (object,
	error) {
	id := identity{tenant: a.ID.Tenant, environment: a.ID.Environment, deployment: a.ID.Deployment}
	if err := id.check(key); err != nil {
		return object{}, err
	}
	if a.Name != key.Name {
		return object{}, fmt.Errorf("application name %q is not the object's", a.Name)
	}
	if want := fleet.ProjectName(a.ID.Tenant); a.Project != want {
		return object{}, fmt.Errorf("project %q is not its tenant's project %q", a.Project, want)
	}
	if a.Hold != "" {
		if err := fleet.ValidateName(string(a.Hold)); err != nil {
			return object{}, fmt.Errorf("hold: %w", err)
		}
	}
	if err := exactDestination("destination.server", a.Destination, key.Engine,
		a.ID.In()); err != nil {
		return object{}, err
	}
	at := place{tenant: a.ID.Tenant, name: key.Engine, engine: engine}
	if err := at.exactNamespace("destination.namespace", a.Destination.Namespace,
		a.Destination.Granted); err != nil {
		return object{}, err
	}
	source, sources, err := renderSources(a.Sources, a.SourceList, a.ID.Deployment)
	if err != nil {
		return object{}, err
	}
	for _, s := range a.Sources {
		if s.Artifact() && !a.TrustedArtifacts && !at.alone() {
			return object{}, fmt.Errorf("repoURL %q: the engine is not dedicated to the tenant "+
				"alone, the platform does not trust the artifact, and a file .argocd-source.yaml "+
				"of it can choose the tool that renders it", s.RepoURL)
		}
		if s.Directory != nil && s.Directory.Jsonnet != nil && !at.alone() {
			return object{}, fmt.Errorf("directory.jsonnet: the engine is not dedicated to the " +
				"tenant alone, and jsonnet can read files of its repo-server")
		}
	}
	policy, err := renderSync(a)
	if err != nil {
		return object{}, fmt.Errorf("sync.%w", err)
	}
	spec := v1alpha1.ApplicationSpec{
		Project: a.Project,
		Source:  source,
		Sources: sources,
		Destination: v1alpha1.ApplicationDestination{Server: a.Destination.Server,
			Namespace: a.Destination.Namespace},
		SyncPolicy: policy,
	}
	if err := renderDetails(&spec, a); err != nil {
		return object{}, err
	}
	meta := metadata{Name: key.Name, Labels: id.labels()}
	if a.Adopt != "" {
		if err := fleet.ValidateObject(a.Adopt); err != nil {
			return object{}, fmt.Errorf("adopt: %w", err)
		}
		if a.AdoptOrCreate && (fleet.HasIdentityForm(a.Adopt) || strings.Contains(a.Adopt, "/")) {
			return object{}, fmt.Errorf("adopt: %q has the form of a name that Argosy gives, or is "+
				"in another namespace: none is created", a.Adopt)
		}
		// The engine checks that the namespace is the tenant's: after a move it may be of another
		// engine, which must fail no plan.
		meta.Namespace, meta.Name = fleet.SplitObject(a.Adopt)
	}
	return object{APIVersion: argoAPI, Kind: "Application", Metadata: meta, Spec: spec}, nil
}

// sourceNamespace accepts a namespace with Applications of the tenant.
func (p place) sourceNamespace(field, ns string) error {
	if err := fleet.ValidateNamespace(ns); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	if !slices.Contains(p.engine.ApplicationNamespacesOf(p.tenant), ns) ||
		ns == p.engine.ArgoCD.Namespace {
		return fmt.Errorf("%s: engine %s does not give namespace %q to tenant %s "+
			"(applicationNamespaces)", field, p.name, ns, p.tenant)
	}
	return nil
}

// renderSources renders a list as sources, otherwise one source as source. Argo CD does not take a
// list of one for the source itself: it records, compares and syncs the revisions of lists apart.
func renderSources(all []fleet.Source, asList bool, deployment fleet.DeploymentName) (
	*v1alpha1.ApplicationSource, v1alpha1.ApplicationSources, error) {
	if len(all) == 0 || len(all) > maxSources {
		return nil, nil, fmt.Errorf("sources: %d; 1 to %d are allowed", len(all), maxSources)
	}
	if len(all) == 1 && !asList {
		source, err := renderSource(all[0], all, deployment)
		if err != nil {
			return nil, nil, fmt.Errorf("source.%w", err)
		}
		return source, nil, nil
	}
	sources := make(v1alpha1.ApplicationSources, len(all))
	for i, s := range all {
		for _, other := range all[:i] {
			if s.Ref != "" && other.Ref == s.Ref {
				return nil, nil, fmt.Errorf("sources[%d].ref: %q is another source's too", i, s.Ref)
			}
		}
		source, err := renderSource(s, all, deployment)
		if err != nil {
			return nil, nil, fmt.Errorf("sources[%d].%w", i, err)
		}
		sources[i] = *source
	}
	return nil, sources, nil
}

const maxSources = 20

// renderSource defaults the name of a Helm release to the deployment. Argo CD's default is the
// Application's name, which may exceed Helm's limit of 53 characters.
func renderSource(s fleet.Source, all []fleet.Source, deployment fleet.DeploymentName) (
	*v1alpha1.ApplicationSource, error) {
	if err := checkSource(s, all); err != nil {
		return nil, err
	}
	out := &v1alpha1.ApplicationSource{RepoURL: s.RepoURL, Path: s.Path, Chart: s.Chart,
		TargetRevision: s.TargetRevision, Ref: s.Ref}
	if k := s.Kustomize; k != nil && !reflect.DeepEqual(*k, fleet.KustomizeSource{}) {
		out.Kustomize = renderKustomize(k)
	}
	if d := s.Directory; d != nil && *d != (fleet.DirectorySource{}) {
		out.Directory = &v1alpha1.ApplicationSourceDirectory{Recurse: d.Recurse,
			Include: d.Include, Exclude: d.Exclude, Jsonnet: renderJsonnet(d.Jsonnet)}
	}
	if s.Plugin != nil {
		out.Plugin = renderPlugin(s.Plugin)
	}
	if s.Helm == nil && s.Chart == "" {
		return out, nil
	}
	var err error
	out.Helm, err = renderHelm(s.Helm, deployment)
	return out, err
}

func renderJsonnet(j *fleet.JsonnetSource) (out v1alpha1.ApplicationSourceJsonnet) {
	if j == nil {
		return out
	}
	variables := func(all []fleet.JsonnetVar) (vars []v1alpha1.JsonnetVar) {
		for _, v := range all {
			vars = append(vars, v1alpha1.JsonnetVar{Name: v.Name, Value: v.Value, Code: v.Code})
		}
		return vars
	}
	return v1alpha1.ApplicationSourceJsonnet{ExtVars: variables(j.ExtVars), TLAs: variables(j.TLAs),
		Libs: j.Libs}
}

func renderPlugin(p *fleet.PluginSource) *v1alpha1.ApplicationSourcePlugin {
	out := &v1alpha1.ApplicationSourcePlugin{Name: p.Name}
	for _, e := range p.Env {
		out.Env = append(out.Env, &v1alpha1.EnvEntry{Name: e.Name, Value: e.Value})
	}
	for _, parameter := range p.Parameters {
		q := v1alpha1.ApplicationSourcePluginParameter{Name: parameter.Name}
		switch {
		case len(parameter.Array) > 0:
			q.OptionalArray = &v1alpha1.OptionalArray{Array: parameter.Array}
		case len(parameter.Map) > 0:
			q.OptionalMap = &v1alpha1.OptionalMap{Map: parameter.Map}
		default:
			q.String_ = &parameter.String
		}
		out.Parameters = append(out.Parameters, q)
	}
	return out
}

func renderKustomize(k *fleet.KustomizeSource) *v1alpha1.ApplicationSourceKustomize {
	out := &v1alpha1.ApplicationSourceKustomize{NamePrefix: k.NamePrefix, NameSuffix: k.NameSuffix,
		Namespace: k.Namespace, CommonLabels: k.CommonLabels,
		CommonAnnotations: k.CommonAnnotations, LabelWithoutSelector: k.LabelWithoutSelector,
		ForceCommonLabels: k.ForceCommonLabels, ForceCommonAnnotations: k.ForceCommonAnnotations,
		Components: k.Components, Version: k.Version}
	for _, image := range k.Images {
		out.Images = append(out.Images, v1alpha1.KustomizeImage(image))
	}
	for _, r := range k.Replicas {
		out.Replicas = append(out.Replicas, v1alpha1.KustomizeReplica{Name: r.Name,
			Count: intstr.FromInt(r.Count)})
	}
	for _, p := range k.Patches {
		patch := v1alpha1.KustomizePatch{Patch: p.Patch, Path: p.Path}
		if t := p.Target; t != nil {
			patch.Target = &v1alpha1.KustomizeSelector{
				KustomizeResId: v1alpha1.KustomizeResId{
					KustomizeGvk: v1alpha1.KustomizeGvk{Group: t.Group, Version: t.Version,
						Kind: t.Kind},
					Name: t.Name, Namespace: t.Namespace},
				LabelSelector: t.LabelSelector, AnnotationSelector: t.AnnotationSelector}
		}
		if o := p.Options; o != nil {
			patch.Options = map[string]bool{}
			if o.AllowNameChange {
				patch.Options["allowNameChange"] = true
			}
			if o.AllowKindChange {
				patch.Options["allowKindChange"] = true
			}
		}
		out.Patches = append(out.Patches, patch)
	}
	return out
}

const maxRelease = 53 // characters of a Helm release's name

func renderHelm(h *fleet.HelmSource,
	deployment fleet.DeploymentName) (*v1alpha1.ApplicationSourceHelm, error) {
	if h == nil {
		h = &fleet.HelmSource{}
	}
	out := &v1alpha1.ApplicationSourceHelm{ReleaseName: cmp.Or(h.ReleaseName, string(deployment)),
		ValueFiles: h.ValueFiles, Values: string(h.Values)}
	if n := len(out.ReleaseName); n > maxRelease {
		return nil, fmt.Errorf("helm.releaseName %q has %d characters; Helm allows %d",
			out.ReleaseName, n, maxRelease)
	}
	out.IgnoreMissingValueFiles, out.SkipCrds = h.IgnoreMissingValueFiles, h.SkipCrds
	out.Namespace, out.Version = h.Namespace, h.Version
	out.KubeVersion, out.APIVersions = h.KubeVersion, h.APIVersions
	out.SkipTests, out.SkipSchemaValidation = h.SkipTests, h.SkipSchemaValidation
	for _, p := range h.FileParameters {
		out.FileParameters = append(out.FileParameters, v1alpha1.HelmFileParameter{Name: p.Name,
			Path: p.Path})
	}
	for _, p := range h.Parameters {
		out.Parameters = append(out.Parameters, v1alpha1.HelmParameter{Name: p.Name, Value: p.Value,
			ForceString: p.ForceString})
	}
	return out, nil
}

// checkSource is the last check before Argo CD's repo-server, which interprets paths, value files
// and revisions (CVE-2022-24731, CVE-2022-24877: paths out of the repository; a value file may be a
// URL; a revision may be a range of versions).
func checkSource(s fleet.Source, all []fleet.Source) error {
	if err := exactRepo("repoURL", s.RepoURL); err != nil {
		return err
	}
	if u, _ := fleet.ParseRepoURL(s.RepoURL); s.Chart != "" && !u.Helm() ||
		s.Chart == "" && !u.Git() && !u.Artifact() {
		return fmt.Errorf("repoURL %q is not of a repository that has the path or chart", s.RepoURL)
	}
	if err := checkTarget(s); err != nil {
		return err
	}
	if err := checkRef(s, all); err != nil {
		return err
	}
	if s.Path != "" && s.Chart != "" || s.Path == "" && s.Chart == "" && s.Ref == "" {
		return fmt.Errorf("path: exactly one of path and chart must be set")
	}
	if s.Path != "" {
		if err := inside("path", s.Path); err != nil {
			return err
		}
	}
	if s.Chart != "" {
		if err := inside("chart", s.Chart); err != nil {
			return err
		}
	}
	return checkTool(s, all)
}

// checkTarget accepts one revision, or a range of versions, which the catalog has found granted.
func checkTarget(s fleet.Source) error {
	if s.Artifact() {
		if err := fleet.CheckArtifactRevision(s.TargetRevision); err != nil {
			return fmt.Errorf("targetRevision %q: %w", s.TargetRevision, err)
		}
		return nil
	}
	if s.Chart != "" && fleet.IsVersionRange(s.TargetRevision) {
		return nil
	}
	if err := exact("targetRevision", s.TargetRevision, 256); err != nil {
		return err
	}
	if strings.ContainsAny(s.TargetRevision, "^~<>=|,:") || strings.HasPrefix(s.TargetRevision,
		"-") || strings.Contains(s.TargetRevision, "..") {
		return fmt.Errorf(
			"targetRevision %q is a range or an expression, not one branch, tag, commit or version",
			s.TargetRevision)
	}
	return nil
}

// checkRef accepts a name for a source whose files others read. Argo CD reads them from Git, and
// the source itself has no chart (util/argo: GetRefSources).
func checkRef(s fleet.Source, all []fleet.Source) error {
	switch {
	case s.Ref == "":
		return nil
	case len(all) == 1:
		return fmt.Errorf("ref: there is no other source that could read its files")
	case s.Chart != "" || s.Artifact():
		return fmt.Errorf("ref: only a Git repository has files for other sources")
	}
	if err := fleet.ValidateRef(s.Ref); err != nil {
		return fmt.Errorf("ref: %w", err)
	}
	return nil
}

func checkTool(s fleet.Source, all []fleet.Source) error {
	tools := 0
	for _, is := range []bool{s.Kustomize != nil, s.Helm != nil, s.Directory != nil,
		s.Plugin != nil} {
		if is {
			tools++
		}
	}
	if tools > 1 {
		return fmt.Errorf(
			"kustomize: at most one of kustomize, helm, directory and plugin may be set")
	}
	if s.Plugin != nil {
		if err := exact("plugin.name", s.Plugin.Name, 100); err != nil {
			return err
		}
	}
	if k := s.Kustomize; k != nil {
		if err := checkKustomize(k, s.Path); err != nil {
			return err
		}
	}
	if h := s.Helm; h != nil {
		for _, file := range h.ValueFiles {
			if err := checkFile("helm.valueFiles", file, s, all); err != nil {
				return err
			}
		}
		for _, p := range h.FileParameters {
			if err := checkFile("helm.fileParameters", p.Path, s, all); err != nil {
				return err
			}
		}
		if h.Version != "" && h.Version != "v3" {
			return fmt.Errorf("helm.version %q: only v3 is allowed", h.Version)
		}
		if err := fleet.CheckKubeVersion(h.KubeVersion); h.KubeVersion != "" && err != nil {
			return fmt.Errorf("helm.kubeVersion %q: %w", h.KubeVersion, err)
		}
		for _, v := range h.APIVersions {
			if err := fleet.CheckAPIVersion(v); err != nil {
				return fmt.Errorf("helm.apiVersions %q: %w", v, err)
			}
		}
	}
	if d := s.Directory; d != nil {
		for _, pattern := range []string{d.Include, d.Exclude} {
			if err := fleet.CheckFilePattern(pattern); pattern != "" && err != nil {
				return fmt.Errorf("directory: %q: %w", pattern, err)
			}
		}
		if j := d.Jsonnet; j != nil {
			for _, lib := range j.Libs {
				if err := inside("directory.jsonnet.libs", lib); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// checkKustomize checks what Argo CD gives to kustomize as arguments (util/kustomize: Build).
func checkKustomize(k *fleet.KustomizeSource, folder string) error {
	for _, image := range k.Images {
		if err := exact("kustomize.images", image, 512); err != nil {
			return err
		}
	}
	for _, c := range k.Components {
		if err := fleet.CheckComponent(c); err != nil {
			return fmt.Errorf("kustomize.components: %w", err)
		}
		if err := insideFrom("kustomize.components", folder, c); err != nil {
			return err
		}
	}
	for _, p := range k.Patches {
		if p.Path == "" {
			continue
		}
		if err := inside("kustomize.patches.path", p.Path); err != nil {
			return err
		}
	}
	for _, r := range k.Replicas {
		if err := exact("kustomize.replicas", r.Name, 253); err != nil ||
			strings.ContainsAny(r.Name, "=") || r.Name[0] == '-' {
			return fmt.Errorf("kustomize.replicas: name %q is not the name of a workload", r.Name)
		}
	}
	for _, pairs := range []map[string]string{k.CommonLabels, k.CommonAnnotations} {
		for key, value := range pairs {
			if err := fleet.CheckKustomizePair(key, value); err != nil {
				return fmt.Errorf("kustomize: %q: %w", key, err)
			}
		}
	}
	return nil
}

// checkFile accepts a path inside the source's repository, relative to its folder, or
// "$<ref>/<path>" inside the repository of another source.
func checkFile(field, file string, s fleet.Source, all []fleet.Source) error {
	reference, below, named := strings.Cut(file, "/")
	ref, isRef := strings.CutPrefix(reference, "$")
	if !isRef {
		return insideFrom(field, s.Path, file)
	}
	if !named || ref == "" ||
		!slices.ContainsFunc(all, func(s fleet.Source) bool { return s.Ref == ref }) {
		return fmt.Errorf("%s %q: no source has the ref %q", field, file, ref)
	}
	return inside(field, below)
}

// insideFrom accepts a path relative to a folder of the repository. It may begin with "../" for the
// folders above, and leads to a path within the repository (util/io/path,
// ResolveValueFilePathOrUrl).
func insideFrom(field, folder, file string) error {
	plain := file
	for strings.HasPrefix(plain, "../") {
		plain = plain[len("../"):]
	}
	if err := inside(field, plain); err != nil {
		return err
	}
	if err := fleet.CheckBelow(folder, file); err != nil {
		return fmt.Errorf("%s %w", field, err)
	}
	return nil
}

// inside accepts a relative path within the repository but outside .git.
func inside(field, p string) error {
	if err := exact(field, p, 1024); err != nil {
		return err
	}
	if strings.HasPrefix(p, "/") || strings.HasPrefix(p, "-") || strings.ContainsAny(p, "%:$") {
		return fmt.Errorf("%s %q is not a plain relative path", field, p)
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." || strings.EqualFold(part, ".git") {
			return fmt.Errorf("%s %q leaves the repository", field, p)
		}
	}
	if clean := path.Clean(p); clean == ".." || strings.HasPrefix(clean, "../") ||
		path.IsAbs(clean) {
		return fmt.Errorf("%s %q leaves the repository", field, p)
	}
	return nil
}

const argoAPI = "argoproj.io/v1alpha1"

// every is Argo CD's pattern for everything. Only a grant of the platform is rendered so; no text
// of a declaration is.
const every = "*"

// argoKinds are denied to every tenant: the right to write an Application or an AppProject amounts
// to all rights of Argo CD.
var argoKinds = []fleet.GroupKind{{Group: "argoproj.io", Kind: "AppProject"},
	{Group: "argoproj.io", Kind: "Application"}, {Group: "argoproj.io", Kind: "ApplicationSet"}}

// renderProject renders a tenant's rights: exactly the granted repositories, destinations and
// cluster-scoped kinds, on clusters whose Secret belongs to the project. A missing list of sources,
// destinations or cluster-scoped kinds means "none".
func renderProject(engine fleet.EngineSpec, key fleet.ObjectKey, p fleet.Project) (object, error) {
	id := identity{tenant: p.Tenant}
	if err := id.check(key); err != nil {
		return object{}, err
	}
	if p.Name != key.Name {
		return object{}, fmt.Errorf("project name %q is not the object's", p.Name)
	}
	// Argo CD knows an environment's own cluster without a Secret, so no Secret could admit it.
	spec := v1alpha1.AppProjectSpec{PermitOnlyProjectScopedClusters: !key.Engine.OfEnvironment()}
	for _, repo := range p.SourceRepos {
		if err := exactRepo("sourceRepos", repo); err != nil {
			return object{}, err
		}
		spec.SourceRepos = append(spec.SourceRepos, repo)
	}
	at := place{tenant: p.Tenant, name: key.Engine, engine: engine}
	for _, d := range p.Destinations {
		if err := exactDestination("destinations.server", d, key.Engine,
			fleet.EnvironmentID{}); err != nil {
			return object{}, err
		}
		namespace := d.Namespace
		if d.All {
			if namespace != "" {
				return object{}, fmt.Errorf("destinations.namespace %q beside all", namespace)
			}
			namespace = every
		} else if err := at.exactNamespace("destinations.namespace", namespace,
			d.Granted); err != nil {
			return object{}, err
		}
		spec.Destinations = append(spec.Destinations, v1alpha1.ApplicationDestination{
			Server: d.Server, Namespace: namespace})
	}
	for _, ns := range p.SourceNamespaces {
		if err := at.sourceNamespace("sourceNamespaces", ns); err != nil {
			return object{}, err
		}
		spec.SourceNamespaces = append(spec.SourceNamespaces, ns)
	}
	if p.AllClusterResources {
		if len(p.ClusterResources) > 0 {
			return object{}, fmt.Errorf("clusterResources: a list beside all kinds")
		}
		spec.ClusterResourceWhitelist = []apiGroupKind{{Group: every, Kind: every}}
		for _, gk := range argoKinds {
			spec.ClusterResourceBlacklist = append(spec.ClusterResourceBlacklist, groupKind(gk))
		}
	}
	for _, gk := range p.ClusterResources {
		if err := exactGroupKind(gk); err != nil {
			return object{}, err
		}
		spec.ClusterResourceWhitelist = append(spec.ClusterResourceWhitelist, groupKind(gk))
	}
	for _, gk := range argoKinds {
		spec.NamespaceResourceBlacklist = append(spec.NamespaceResourceBlacklist, groupKind(gk))
	}
	sortProject(&spec)
	return object{APIVersion: argoAPI, Kind: "AppProject", Metadata: metadata{
		Name: key.Name, Labels: id.labels()}, Spec: spec}, nil
}

// sortProject makes equal grants byte-equal in any order.
func sortProject(spec *v1alpha1.AppProjectSpec) {
	slices.Sort(spec.SourceRepos)
	spec.SourceRepos = slices.Compact(spec.SourceRepos)
	slices.Sort(spec.SourceNamespaces)
	spec.SourceNamespaces = slices.Compact(spec.SourceNamespaces)
	slices.SortFunc(spec.Destinations, func(a, b v1alpha1.ApplicationDestination) int {
		return cmpPairs(a.Server, a.Namespace, b.Server, b.Namespace)
	})
	spec.Destinations = slices.Compact(spec.Destinations)
	slices.SortFunc(spec.ClusterResourceWhitelist, func(a, b apiGroupKind) int {
		return cmpPairs(a.Group, a.Kind, b.Group, b.Kind)
	})
	spec.ClusterResourceWhitelist = slices.Compact(spec.ClusterResourceWhitelist)
}

func cmpPairs(a1, a2, b1, b2 string) int {
	if c := strings.Compare(a1, b1); c != 0 {
		return c
	}
	return strings.Compare(a2, b2)
}

// exactGroupKind rejects patterns and Argo CD's own kinds.
func exactGroupKind(gk fleet.GroupKind) error {
	if err := exact("clusterResources.kind", gk.Kind, 63); err != nil {
		return err
	}
	if gk.Group != "" {
		if err := exact("clusterResources.group", gk.Group, 253); err != nil {
			return err
		}
	}
	if strings.EqualFold(gk.Group, "argoproj.io") {
		return fmt.Errorf("clusterResources: %s/%s is Argo CD's own and never granted", gk.Group,
			gk.Kind)
	}
	return nil
}

// renderCluster renders a cluster Secret without its credential. It always sets a project,
// namespaces and a unique server key: for Argo CD, a Secret without a project belongs to all
// projects, and one without namespaces covers the whole cluster, which only a grant of all
// namespaces may.
func renderCluster(engine fleet.EngineSpec, key fleet.ObjectKey, c fleet.Cluster) (object, error) {
	id := identity{tenant: c.ID.Tenant, environment: c.ID.Name}
	if err := id.check(key); err != nil {
		return object{}, err
	}
	if c.Name != key.Name {
		return object{}, fmt.Errorf("cluster name %q is not the object's", c.Name)
	}
	if want := fleet.ProjectName(c.ID.Tenant); c.Project != want {
		return object{}, fmt.Errorf("project %q is not its tenant's project %q", c.Project, want)
	}
	if err := checkAccount(&c); err != nil {
		return object{}, err
	}
	own, err := onOwnCluster("server", c.OnEngine, key.Engine)
	if err != nil {
		return object{}, err
	}
	if err := exactServer("server", c.Server, c.ID, own); err != nil {
		return object{}, err
	}
	if (len(c.Namespaces) == 0) != (c.AllNamespaces || c.Unused) || c.AllNamespaces && c.Unused {
		return object{}, fmt.Errorf("namespaces: %d beside all %t and none in use %t; Argo CD "+
			"would take none for all of them", len(c.Namespaces), c.AllNamespaces, c.Unused)
	}
	at := place{tenant: c.ID.Tenant, name: key.Engine, engine: engine}
	for _, ns := range c.Namespaces {
		if err := at.exactNamespace("namespaces", ns, slices.Contains(c.Granted, ns)); err != nil {
			return object{}, err
		}
	}
	config, err := publicConfig(c.CAData, c.Cloud)
	if err != nil {
		return object{}, err
	}
	namespaces := slices.Compact(slices.Sorted(slices.Values(c.Namespaces)))
	data := map[string][]byte{
		"name": []byte(c.Name), "server": []byte(c.Server), "project": []byte(c.Project),
		"config": config,
	}
	if c.Unused {
		namespaces = []string{unused}
	}
	if !c.AllNamespaces {
		data["namespaces"] = []byte(strings.Join(namespaces, ","))
	}
	if c.ClusterResources {
		data["clusterResources"] = []byte("true")
	}
	return secretObject(key, id, "cluster", data), nil
}

// checkAccount accepts the service account of the cluster's own environment and no other.
func checkAccount(c *fleet.Cluster) error {
	switch {
	case c.ServiceAccount == nil:
		return nil
	case *c.ServiceAccount != fleet.AccountOf(c.ID):
		return fmt.Errorf("service account %s is not the one of environment %s",
			c.ServiceAccount, c.ID)
	case c.Cloud != nil:
		return fmt.Errorf("service account %s beside an identity of a cloud", c.ServiceAccount)
	case c.OnEngine == "" && (c.Credential.Tenant != "" || c.Credential.Name == ""):
		return fmt.Errorf("service account %s: its tokens are requested on the engine's own "+
			"cluster, or with a credential of the platform", c.ServiceAccount)
	}
	return nil
}

// unused is the namespace of a cluster Secret whose environment uses none yet. No tenant can be
// granted it, and no AppProject has it as a destination.
const unused = "argosy-unused"

// publicConfig returns Argo CD's cluster config without the credential.
func publicConfig(caData string, cloud *fleet.CloudIdentity) ([]byte, error) {
	var config v1alpha1.ClusterConfig
	if cloud != nil {
		if err := authenticate(&config, cloud); err != nil {
			return nil, err
		}
	}
	if caData != "" {
		ca, err := base64.StdEncoding.DecodeString(caData)
		if err != nil {
			return nil, fmt.Errorf("caData is not base64")
		}
		if err := fleet.CheckCA(ca); err != nil {
			return nil, fmt.Errorf("caData %w", err)
		}
		config.CAData = ca
	}
	return json.Marshal(config)
}

// renderRepository renders a repository Secret without its credential. It always sets a project: an
// unscoped Secret serves every tenant (repository_secrets.go, getRepositorySecret's fallback). It
// never sets a name and never the type oci: Argo CD gives a Helm repository with a name, and every
// one of type oci, to the charts of all projects that may read the URL, for their dependencies, of
// any project that the Secret has (ListHelmRepositories, ListOCIRepositories, GetPermittedRepos).
func renderRepository(key fleet.ObjectKey, r fleet.Repository) (object, error) {
	id := identity{tenant: r.ID.Tenant, credential: r.ID.Name, part: r.Part}
	if err := id.check(key); err != nil {
		return object{}, err
	}
	if r.Name != key.Name {
		return object{}, fmt.Errorf("repository name %q is not the object's", r.Name)
	}
	if want := fleet.ProjectName(r.ID.Tenant); r.Project != want {
		return object{}, fmt.Errorf("project %q is not its tenant's project %q", r.Project, want)
	}
	if err := exactRepo("url", r.URL); err != nil {
		return object{}, err
	}
	repoType := cmp.Or(r.Type, fleet.RepositoryGit)
	u, _ := fleet.ParseRepoURL(r.URL)
	if repoType.Fits(u) != nil {
		return object{}, fmt.Errorf("type %q: %w", repoType, repoType.Fits(u))
	}
	if r.Part != "" && r.Part != fleet.RepositoryPart(u.Key()) {
		return object{}, fmt.Errorf("part %q is not that of its url", r.Part)
	}
	data := map[string][]byte{"type": []byte(repoType), "url": []byte(r.URL),
		"project": []byte(r.Project)}
	if repoType == fleet.RepositoryOCI {
		data["type"], data["enableOCI"] = []byte(fleet.RepositoryHelm), []byte("true")
	}
	return secretObject(key, id, "repository", data), nil
}

func secretObject(key fleet.ObjectKey, id identity, secretType string,
	data map[string][]byte) object {
	labels := id.labels()
	labels[labelSecretType] = secretType
	return object{APIVersion: "v1", Kind: "Secret", Metadata: metadata{
		Name: key.Name, Labels: labels}, Type: "Opaque", Data: data}
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
