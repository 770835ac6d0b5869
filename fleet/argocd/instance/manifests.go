package instance

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"argosy.dev/argosy/fleet"
)

// Manifests are the objects of one version of Argo CD, as it publishes them.
type Manifests struct {
	Version string // such as "3.5.7"
	objects []*unstructured.Unstructured
}

// definitions are the kinds whose CustomResourceDefinitions Argosy installs. It runs no
// ApplicationSet controller.
var definitions = []string{"applications.argoproj.io", "appprojects.argoproj.io"}

// workloads are the names of the Deployments and StatefulSets that Argosy runs, by their container.
var workloads = map[string]string{
	"argocd-application-controller": "argocd-application-controller",
	"argocd-repo-server":            "argocd-repo-server",
	"argocd-redis":                  "redis",
}

// components are the labels of the objects that Argosy keeps. Argo CD's API server, Dex, the
// notifications and the ApplicationSet controller are entry points that Argosy does not guard.
var components = []string{"application-controller", "metrics", "repo-server", "redis"}

// Parse reads the files of a directory: namespace-install.yaml and the CustomResourceDefinitions of
// a version. It reads every file that ends in .yaml and rejects manifests that lack an object which
// Argosy needs, or that have images of another version.
func Parse(version string, files map[string][]byte) (*Manifests, error) {
	m := &Manifests{Version: version}
	seen := map[string]string{}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(path, ".yaml") {
			continue
		}
		all, err := decode(files[path])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, o := range all {
			if !kept(o) {
				continue
			}
			id := o.GetKind() + " " + o.GetName()
			if other, ok := seen[id]; ok {
				return nil, fmt.Errorf("%s: %s is also in %s", path, id, other)
			}
			seen[id] = path
			m.objects = append(m.objects, o)
		}
	}
	return m, m.check(seen)
}

func decode(text []byte) (all []*unstructured.Unstructured, err error) {
	reader := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		switch err := reader.Decode(&o.Object); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		case len(o.Object) == 0:
			continue
		case o.GetKind() == "" || o.GetName() == "":
			return nil, errors.New("an object has no kind or no metadata.name")
		}
		all = append(all, o)
	}
}

// kept reports whether Argosy installs an object.
func kept(o *unstructured.Unstructured) bool {
	switch o.GetKind() {
	case "CustomResourceDefinition":
		return slices.Contains(definitions, o.GetName())
	case "ConfigMap":
		_, ok := configMaps[o.GetName()]
		return ok
	case "Secret", "Namespace", "AppProject", "ClusterRole", "ClusterRoleBinding":
		return false
	}
	component := o.GetLabels()["app.kubernetes.io/component"]
	if o.GetKind() == "NetworkPolicy" && component == "" {
		name, _, _ := unstructured.NestedString(o.Object, "spec", "podSelector", "matchLabels",
			"app.kubernetes.io/name")
		component = strings.TrimPrefix(name, "argocd-")
	}
	return slices.Contains(components, component)
}

// needed are the files that have what Argosy installs. The CustomResourceDefinition of
// ApplicationSets is larger than a file of the config repo may be.
const needed = "namespace-install.yaml, crds/application-crd.yaml and crds/appproject-crd.yaml"

func (m *Manifests) check(seen map[string]string) error {
	var missing []string
	for _, name := range definitions {
		missing = append(missing, "CustomResourceDefinition "+name)
	}
	for _, name := range slices.Sorted(maps.Keys(configMaps)) {
		missing = append(missing, "ConfigMap "+name)
	}
	missing = append(missing, "StatefulSet argocd-application-controller",
		"Deployment argocd-repo-server", "Deployment argocd-redis")
	missing = slices.DeleteFunc(missing, func(id string) bool { return seen[id] != "" })
	if len(missing) > 0 {
		return fmt.Errorf("the manifests lack %s; copy %s of Argo CD %s",
			strings.Join(missing, ", "), needed, m.Version)
	}
	for _, o := range m.objects {
		if workloads[o.GetName()] == "" || o.GetName() == "argocd-redis" {
			continue
		}
		for _, c := range containers(o) {
			image, _ := c["image"].(string)
			if tag := tagOf(image); tag != "v"+strings.TrimPrefix(m.Version, "v") {
				return fmt.Errorf("the image %s of %s is not of version %s", image, o.GetName(),
					m.Version)
			}
		}
	}
	return nil
}

// tagOf returns the tag of an image, without its digest.
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	return image[strings.LastIndex(image, ":")+1:]
}

// containers returns the containers of a Pod template, which may be changed.
func containers(o *unstructured.Unstructured) (all []map[string]any) {
	spec, _ := at(o.Object, "spec", "template", "spec")
	for _, field := range []string{"initContainers", "containers"} {
		list, _ := spec[field].([]any)
		for _, c := range list {
			if c, ok := c.(map[string]any); ok {
				all = append(all, c)
			}
		}
	}
	return all
}

// at returns a nested object without a copy.
func at(o map[string]any, path ...string) (map[string]any, bool) {
	for _, name := range path {
		next, ok := o[name].(map[string]any)
		if !ok {
			return nil, false
		}
		o = next
	}
	return o, true
}

// Check returns why the files cannot be a ring's manifests; nil if they can.
func Check(r fleet.Ring, files map[string][]byte) error {
	if err := r.Manifests.CheckManifests(files); err != nil {
		return err
	}
	_, err := Parse(r.Version, files)
	return err
}

// codeManifests is the code of a ring that does not have the manifests which it declares.
const codeManifests = "ring-manifests"

// Problem returns what is wrong with the files of a ring of a Fleet; nil if they are right. err is
// why they could not be read.
func Problem(d *fleet.Declaration, ring int, files map[string][]byte, err error) *fleet.Problem {
	r := d.Fleet.Rings[ring]
	field, fix := r.Manifests.Field(), "copy "+needed+" of Argo CD "+r.Version+" there"
	if err == nil {
		err = Check(r, files)
		if len(files) > 0 && fleet.ManifestsDigest(files) != r.Manifests.Digest {
			field = "digest"
			fix = "review the files, and write the digest that `argosy rings digest " +
				r.Manifests.Argument() + "` prints"
		}
	}
	if err == nil {
		return nil
	}
	return &fleet.Problem{Severity: fleet.SeverityError, Code: codeManifests, Path: d.Path,
		Key: d.Key, Field: fmt.Sprintf("spec.rings[%d].manifests.%s", ring, field),
		Message: err.Error(), Fix: fix}
}
