package argocd

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"

	"argosy.dev/argosy/fleet"
)

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
