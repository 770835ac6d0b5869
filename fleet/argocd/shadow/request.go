package shadow

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v2/util/git"
)

// Settings are what the application-controller sends with every request, from the ConfigMap
// argocd-cm.
type Settings map[string]string

// Versions are those of the destination cluster, as the application-controller knows them.
type Versions struct {
	Kubernetes string
	APIs       []string
}

// Repositories are the repositories and the credentials for URLs of the instance. They are never
// kept and never printed.
type Repositories struct {
	repositories []*v1alpha1.Repository
	credentials  []*v1alpha1.RepoCreds
}

// Add reads the data of a Secret with a label argocd.argoproj.io/secret-type. Other Secrets add
// nothing.
func (r *Repositories) Add(secretType string, data map[string][]byte) error {
	text := func(name string) string { return string(data[name]) }
	var failed error
	flag := func(name string) bool {
		if text(name) == "" {
			return false
		}
		value, err := strconv.ParseBool(text(name))
		if err != nil {
			failed = fmt.Errorf("field %s of a repository is no boolean", name)
		}
		return value
	}
	number := func(name string) int64 {
		if text(name) == "" {
			return 0
		}
		value, err := strconv.ParseInt(text(name), 10, 64)
		if err != nil {
			failed = fmt.Errorf("field %s of a repository is no number", name)
		}
		return value
	}
	switch secretType {
	case "repository":
		r.repositories = append(r.repositories, &v1alpha1.Repository{
			Repo: text("url"), Name: text("name"), Type: text("type"), Project: text("project"),
			Username: text("username"), Password: text("password"),
			SSHPrivateKey: text("sshPrivateKey"), TLSClientCertData: text("tlsClientCertData"),
			TLSClientCertKey: text("tlsClientCertKey"), Proxy: text("proxy"),
			NoProxy: text("noProxy"), GithubAppPrivateKey: text("githubAppPrivateKey"),
			GitHubAppEnterpriseBaseURL: text("githubAppEnterpriseBaseUrl"),
			GCPServiceAccountKey:       text("gcpServiceAccountKey"),
			InsecureIgnoreHostKey:      flag("insecureIgnoreHostKey"), Insecure: flag("insecure"),
			EnableLFS: flag("enableLfs"), EnableOCI: flag("enableOCI"),
			ForceHttpBasicAuth:      flag("forceHttpBasicAuth"),
			GithubAppId:             number("githubAppID"),
			GithubAppInstallationId: number("githubAppInstallationID"),
		})
	case "repo-creds":
		r.credentials = append(r.credentials, &v1alpha1.RepoCreds{
			URL: text("url"), Type: text("type"), Username: text("username"),
			Password: text("password"), SSHPrivateKey: text("sshPrivateKey"),
			TLSClientCertData: text("tlsClientCertData"), Proxy: text("proxy"),
			TLSClientCertKey: text("tlsClientCertKey"), NoProxy: text("noProxy"),
			GithubAppPrivateKey:        text("githubAppPrivateKey"),
			GitHubAppEnterpriseBaseURL: text("githubAppEnterpriseBaseUrl"),
			GCPServiceAccountKey:       text("gcpServiceAccountKey"), EnableOCI: flag("enableOCI"),
			ForceHttpBasicAuth:      flag("forceHttpBasicAuth"),
			GithubAppId:             number("githubAppID"),
			GithubAppInstallationId: number("githubAppInstallationID"),
		})
	}
	return failed
}

// get returns the repository of a URL for a project: the project's own, else one of all projects,
// with credentials for URLs that begin like it.
func (r *Repositories) get(url, project string) *v1alpha1.Repository {
	found := &v1alpha1.Repository{Repo: url}
	for _, o := range r.repositories {
		if !git.SameURL(o.Repo, url) {
			continue
		}
		if o.Project == project {
			found = o
			break
		}
		if o.Project == "" {
			found = o
		}
	}
	return r.enrich(found)
}

func (r *Repositories) enrich(o *v1alpha1.Repository) *v1alpha1.Repository {
	o = o.DeepCopy()
	if o.HasCredentials() {
		return o
	}
	most, url := 0, git.NormalizeGitURL(o.Repo)
	var best *v1alpha1.RepoCreds
	for _, c := range r.credentials {
		if prefix := git.NormalizeGitURL(c.URL); strings.HasPrefix(url, prefix) &&
			len(prefix) > most {
			most, best = len(prefix), c
		}
	}
	if best != nil {
		o.CopyCredentialsFrom(best)
		o.InheritedCreds = true
	}
	return o
}

// helm returns the Helm repositories and credentials that charts of a project may depend on.
func (r *Repositories) helm(project *v1alpha1.AppProject) (repositories []*v1alpha1.Repository,
	credentials []*v1alpha1.RepoCreds) {
	permits := func(url string) bool {
		return project.IsSourcePermitted(v1alpha1.ApplicationSource{RepoURL: url})
	}
	for _, o := range r.repositories {
		if o.Type == "helm" && o.Name != "" && permits(o.Repo) {
			repositories = append(repositories, r.enrich(o))
		}
	}
	for _, c := range r.credentials {
		if strings.EqualFold(c.Type, "helm") && permits(c.URL) {
			credentials = append(credentials, c)
		}
	}
	return repositories, credentials
}

// Requests returns what the application-controller asks the repo-server for, one request for each
// source, as in GetRepoObjs of Argo CD. The revisions are those that it has compared last.
func Requests(app *v1alpha1.Application, project *v1alpha1.AppProject, s Settings, v Versions,
	r *Repositories, namespace string) ([]*Request, error) {
	sources := app.Spec.GetSources()
	several := app.Spec.HasMultipleSources()
	revisions := make([]string, len(sources))
	for i, source := range sources {
		revisions[i] = source.TargetRevision
		switch {
		case several && i < len(app.Status.Sync.Revisions):
			revisions[i] = cmp.Or(app.Status.Sync.Revisions[i], revisions[i])
		case !several:
			revisions[i] = cmp.Or(app.Status.Sync.Revision, revisions[i])
		}
	}
	refs := map[string]*v1alpha1.RefTarget{}
	for i, source := range sources {
		if len(sources) > 1 && source.Ref != "" {
			refs["$"+source.Ref] = &v1alpha1.RefTarget{Repo: *r.get(source.RepoURL, project.Name),
				TargetRevision: revisions[i], Chart: source.Chart}
		}
	}
	repositories, credentials := r.helm(project)
	var all []*Request
	for i := range sources {
		kustomize, err := s.kustomize(sources[i])
		if err != nil {
			return nil, err
		}
		all = append(all, &Request{
			Repo: r.get(sources[i].RepoURL, project.Name), Repos: repositories,
			Revision:    revisions[i],
			AppLabelKey: cmp.Or(s["application.instanceLabelKey"], "app.kubernetes.io/instance"),
			AppName:     app.InstanceName(namespace), Namespace: app.Spec.Destination.Namespace,
			ApplicationSource: sources[i].DeepCopy(), KustomizeOptions: kustomize,
			KubeVersion: v.Kubernetes, APIVersions: v.APIs, HelmRepoCreds: credentials,
			TrackingMethod:     cmp.Or(s["application.resourceTrackingMethod"], "label"),
			EnabledSourceTypes: s.enabled(), HelmOptions: s.helm(), Several: several,
			RefSources: refs, ProjectName: project.Name,
			ProjectSourceRepos: project.Spec.SourceRepos,
			GeneratePaths:      app.Annotations[v1alpha1.AnnotationKeyManifestGeneratePaths],
			InstallationID:     s["installationID"],
		})
	}
	return all, nil
}

func (s Settings) enabled() map[string]bool {
	all := map[string]bool{string(v1alpha1.ApplicationSourceTypePlugin): true}
	for kind, key := range map[v1alpha1.ApplicationSourceType]string{
		v1alpha1.ApplicationSourceTypeKustomize: "kustomize.enable",
		v1alpha1.ApplicationSourceTypeHelm:      "helm.enable",
		v1alpha1.ApplicationSourceTypeDirectory: "jsonnet.enable"} {
		all[string(kind)] = s[key] == "" || s[key] == "true"
	}
	return all
}

func (s Settings) helm() *v1alpha1.HelmOptions {
	value, ok := s["helm.valuesFileSchemes"]
	if !ok {
		value = "https,http"
	}
	o := &v1alpha1.HelmOptions{}
	for scheme := range strings.SplitSeq(value, ",") {
		if scheme = strings.TrimSpace(scheme); scheme != "" {
			o.ValuesFileSchemes = append(o.ValuesFileSchemes, scheme)
		}
	}
	return o
}

func (s Settings) kustomize(source v1alpha1.ApplicationSource) (*v1alpha1.KustomizeOptions, error) {
	if source.Kustomize == nil || source.Kustomize.Version == "" {
		return &v1alpha1.KustomizeOptions{BuildOptions: s["kustomize.buildOptions"]}, nil
	}
	version := source.Kustomize.Version
	path := cmp.Or(s["kustomize.path."+version], s["kustomize.version."+version])
	if path == "" {
		return nil, fmt.Errorf("kustomize version %s is not registered", version)
	}
	return &v1alpha1.KustomizeOptions{BinaryPath: path,
		BuildOptions: s["kustomize.buildOptions."+version]}, nil
}
