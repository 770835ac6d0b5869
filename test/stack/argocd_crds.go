package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"
)

// InstallArgoCRDs installs the kinds Application and AppProject of one of ArgoVersions, for tests
// that need the kinds without a controller.
func (c *Cluster) InstallArgoCRDs(ctx context.Context, version string) error {
	return c.installArgoCRDs(ctx, version, "application", "appproject")
}

func (c *Cluster) installArgoCRDs(ctx context.Context, version string, kinds ...string) error {
	release, err := argoRelease(version)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	var files []string
	for _, kind := range kinds {
		file, err := argoFile(version, filepath.Join("crds", kind+"-crd.yaml"))
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		files = append(files, file)
	}
	return c.installCRDs(ctx, files, release)
}

// argoRelease is the exact version that scripts/parts.sh has built, e.g. v3.5.7.
func argoRelease(version string) (string, error) {
	file, err := argoFile(version, "VERSION")
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(file)
	return strings.TrimSpace(string(text)), err
}

func argoFile(version, file string) (string, error) {
	name := "argocd-" + version
	return part(name, filepath.Join(name, file))
}

func readManifest(file string) (*unstructured.Unstructured, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &u.Object); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return u, nil
}

var crdKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
	Kind: "CustomResourceDefinition"}

// installCRDs applies the CRDs in the files and waits until the API server
// serves them. A cluster that has them of a newer release keeps those: they
// serve the older Argo CD too, and not the other way round.
func (c *Cluster) installCRDs(ctx context.Context, files []string, release string) error {
	const annotation = "stack.argosy.dev/release"
	var names []string
	for _, file := range files {
		crd, err := readManifest(file)
		if err != nil {
			return err
		}
		names = append(names, crd.GetName())
		live, err := c.Get(ctx, crd)
		if err == nil && !older(live.GetAnnotations()[annotation], release) {
			continue
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err := unstructured.SetNestedField(crd.Object, release, "metadata", "annotations",
			annotation); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := c.Apply(ctx, crd); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := c.Await(ctx, func(ctx context.Context) error {
			return c.established(ctx, name)
		}); err != nil {
			return err
		}
	}
	return nil
}

// older reports whether version a is below b. A text that is no version is below all.
func older(a, b string) bool {
	va, err := version.ParseSemantic(a)
	return err != nil || va.LessThan(version.MustParseSemantic(b))
}

func (c *Cluster) established(ctx context.Context, name string) error {
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(crdKind)
	crd.SetName(name)
	live, err := c.Get(ctx, crd)
	if err != nil {
		return err
	}
	conditions, _, err := unstructured.NestedSlice(live.Object, "status", "conditions")
	for _, condition := range conditions {
		if c, ok := condition.(map[string]any); ok && c["type"] == "Established" &&
			c["status"] == "True" {
			return nil
		}
	}
	return errors.Join(fmt.Errorf("CRD %s is not established", name), err)
}

// ArgoManifests returns the manifests that Argo CD publishes for one of ArgoVersions, by path, and
// its exact version without a "v": namespace-install.yaml and the definitions of Application and
// AppProject.
func ArgoManifests(version string) (exact string, files map[string][]byte, err error) {
	release, err := argoRelease(version)
	if err != nil {
		return "", nil, err
	}
	_, self, _, _ := runtime.Caller(0)
	dir := filepath.Join(filepath.Dir(self), "../../charts/argosy-engine/files/argocd", release)
	files = map[string][]byte{}
	for _, path := range []string{"namespace-install.yaml", "crds/application-crd.yaml",
		"crds/appproject-crd.yaml"} {
		text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(path)))
		if err != nil {
			return "", nil, fmt.Errorf("%w; run scripts/parts.sh", err)
		}
		files[path] = text
	}
	return strings.TrimPrefix(release, "v"), files, nil
}
