package argocd

import (
	"cmp"
	"fmt"
	"path"
	"strings"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet"
)

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
	if err := exactDestination("destination.server", a.Destination.Server, key.Engine,
		a.ID.In()); err != nil {
		return object{}, err
	}
	if err := exactNamespace("destination.namespace", a.Destination.Namespace, engine); err != nil {
		return object{}, err
	}
	source, err := renderSource(a.Source, a.ID.Deployment)
	if err != nil {
		return object{}, err
	}
	spec := v1alpha1.ApplicationSpec{
		Project: a.Project,
		Source:  source,
		Destination: v1alpha1.ApplicationDestination{Server: a.Destination.Server,
			Namespace: a.Destination.Namespace},
		SyncPolicy: renderSync(a),
	}
	return object{APIVersion: argoAPI, Kind: "Application", Metadata: metadata{
		Name: key.Name, Labels: id.labels()}, Spec: spec}, nil
}

func renderSync(a fleet.Application) *v1alpha1.SyncPolicy {
	var policy v1alpha1.SyncPolicy
	if a.Sync.Automated && a.Hold == "" {
		policy.Automated = &v1alpha1.SyncPolicyAutomated{Prune: a.Sync.Prune,
			SelfHeal: a.Sync.SelfHeal}
	}
	if a.Sync.CreateNamespace {
		policy.SyncOptions = v1alpha1.SyncOptions{"CreateNamespace=true"}
	}
	if policy.Automated == nil && len(policy.SyncOptions) == 0 {
		return nil
	}
	return &policy
}

// renderSource defaults the name of a Helm release to the deployment. Argo CD's default is the
// Application's name, which may exceed Helm's limit of 53 characters.
func renderSource(s fleet.Source, deployment fleet.DeploymentName) (*v1alpha1.ApplicationSource,
	error) {
	if err := checkSource(s); err != nil {
		return nil, fmt.Errorf("source.%w", err)
	}
	out := &v1alpha1.ApplicationSource{RepoURL: s.RepoURL, Path: s.Path, Chart: s.Chart,
		TargetRevision: s.TargetRevision}
	if k := s.Kustomize; k != nil && (len(k.Images) > 0 || k.NamePrefix != "" ||
		k.NameSuffix != "") {
		out.Kustomize = &v1alpha1.ApplicationSourceKustomize{NamePrefix: k.NamePrefix,
			NameSuffix: k.NameSuffix}
		for _, image := range k.Images {
			out.Kustomize.Images = append(out.Kustomize.Images, v1alpha1.KustomizeImage(image))
		}
	}
	if d := s.Directory; d != nil && d.Recurse {
		out.Directory = &v1alpha1.ApplicationSourceDirectory{Recurse: true}
	}
	if s.Helm == nil && s.Chart == "" {
		return out, nil
	}
	var err error
	out.Helm, err = renderHelm(s.Helm, deployment)
	return out, err
}

const maxRelease = 53 // characters of a Helm release's name

func renderHelm(h *fleet.HelmSource,
	deployment fleet.DeploymentName) (*v1alpha1.ApplicationSourceHelm, error) {
	if h == nil {
		h = &fleet.HelmSource{}
	}
	out := &v1alpha1.ApplicationSourceHelm{ReleaseName: cmp.Or(h.ReleaseName, string(deployment)),
		ValueFiles: h.ValueFiles, Values: h.Values}
	if n := len(out.ReleaseName); n > maxRelease {
		return nil, fmt.Errorf("source.helm.releaseName %q has %d characters; Helm allows %d",
			out.ReleaseName, n, maxRelease)
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
func checkSource(s fleet.Source) error {
	if err := exactRepo("repoURL", s.RepoURL); err != nil {
		return err
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
	if (s.Path == "") == (s.Chart == "") {
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
	return checkTool(s)
}

func checkTool(s fleet.Source) error {
	tools := 0
	for _, is := range []bool{s.Kustomize != nil, s.Helm != nil, s.Directory != nil} {
		if is {
			tools++
		}
	}
	if tools > 1 {
		return fmt.Errorf("kustomize: at most one of kustomize, helm and directory may be set")
	}
	if k := s.Kustomize; k != nil {
		for _, image := range k.Images {
			if err := exact("kustomize.images", image, 512); err != nil {
				return err
			}
		}
	}
	if h := s.Helm; h != nil {
		for _, file := range h.ValueFiles {
			if err := inside("helm.valueFiles", file); err != nil {
				return err
			}
		}
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
