package argocd

import (
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
// projects, and one without namespaces covers the whole cluster.
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
	if err := exactServer("server", c.Server, c.ID); err != nil {
		return object{}, err
	}
	if len(c.Namespaces) == 0 {
		return object{}, fmt.Errorf("namespaces: none; Argo CD would take that for all of them")
	}
	for _, ns := range c.Namespaces {
		if err := exactNamespace("namespaces", ns, engine); err != nil {
			return object{}, err
		}
	}
	config, err := publicConfig(c.CAData)
	if err != nil {
		return object{}, err
	}
	namespaces := slices.Compact(slices.Sorted(slices.Values(c.Namespaces)))
	data := map[string][]byte{
		"name": []byte(c.Name), "server": []byte(c.Server), "project": []byte(c.Project),
		"namespaces": []byte(strings.Join(namespaces, ",")), "config": config,
	}
	if c.ClusterResources {
		data["clusterResources"] = []byte("true")
	}
	return secretObject(key, id, "cluster", data), nil
}

// publicConfig returns Argo CD's cluster config without the credential.
func publicConfig(caData string) ([]byte, error) {
	var config v1alpha1.ClusterConfig
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
// unscoped Secret serves every tenant (repository_secrets.go, getRepositorySecret's fallback).
func renderRepository(key fleet.ObjectKey, r fleet.Repository) (object, error) {
	id := identity{tenant: r.ID.Tenant, credential: r.ID.Name}
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
	data := map[string][]byte{"type": []byte("git"), "url": []byte(r.URL),
		"project": []byte(r.Project)}
	return secretObject(key, id, "repository", data), nil
}

func secretObject(key fleet.ObjectKey, id identity, secretType string,
	data map[string][]byte) object {
	labels := id.labels()
	labels[labelSecretType] = secretType
	return object{APIVersion: "v1", Kind: "Secret", Metadata: metadata{
		Name: key.Name, Labels: labels}, Type: "Opaque", Data: data}
}
