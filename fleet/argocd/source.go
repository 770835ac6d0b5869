package argocd

import (
	"cmp"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"argosy.dev/argosy/fleet"
)

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
