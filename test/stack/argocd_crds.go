package stack

import (
	"context"
	"fmt"
	"path/filepath"
)

// InstallArgoCRDs makes the cluster know Application and AppProject as of one of
// ArgoVersions, for tests that need Argo CD's kinds and nobody who acts on them.
func (c *Cluster) InstallArgoCRDs(ctx context.Context, version string) error {
	name := "argocd-" + version
	crds, err := part(name, filepath.Join(name, "crds"))
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	return c.installCRDs(ctx, []string{filepath.Join(crds, "application-crd.yaml"), filepath.Join(crds, "appproject-crd.yaml")}, version+".0")
}
