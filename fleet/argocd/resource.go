package argocd

import (
	"net/url"

	"argosy.dev/argosy/fleet"
)

// resource is a collection of the API server with objects of ours.
type resource struct {
	kinds      []fleet.ObjectKind
	apiVersion string
	kind       string
	prefix     string // of the path, before /namespaces
	plural     string
	selector   string // label selector of the followed objects
}

var (
	applications = &resource{kinds: []fleet.ObjectKind{fleet.ObjectApplication},
		apiVersion: argoAPI, kind: "Application", prefix: "/apis/" + argoAPI,
		plural: "applications"}
	projects = &resource{kinds: []fleet.ObjectKind{fleet.ObjectProject}, apiVersion: argoAPI,
		kind: "AppProject", prefix: "/apis/" + argoAPI, plural: "appprojects"}
	// Only our own Secrets are read: the namespace holds others, such as argocd-secret.
	secrets = &resource{kinds: []fleet.ObjectKind{fleet.ObjectCluster, fleet.ObjectRepository},
		apiVersion: "v1", kind: "Secret", prefix: "/api/v1", plural: "secrets",
		selector: labelManagedBy + "=" + managedBy}
	resources = []*resource{projects, secrets, applications}
)

// followed returns the resources that an engine watches.
func followed(o Options) []*resource {
	if o.Public {
		return []*resource{projects, applications}
	}
	return resources
}

func resourceOf(kind fleet.ObjectKind) *resource {
	switch kind {
	case fleet.ObjectProject:
		return projects
	case fleet.ObjectApplication:
		return applications
	default:
		return secrets
	}
}

func (r *resource) collection(namespace string) string {
	return r.prefix + "/namespaces/" + url.PathEscape(namespace) + "/" + r.plural
}

func (r *resource) object(namespace, name string) string {
	return r.collection(namespace) + "/" + url.PathEscape(name)
}

// kindOf returns the kind of a live object. A Secret is a cluster unless its label names a
// repository.
func (r *resource) kindOf(labels map[string]string) fleet.ObjectKind {
	if r == secrets && labels[labelSecretType] == "repository" {
		return fleet.ObjectRepository
	}
	return r.kinds[0]
}
