package reconciler_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/stack"
)

// An artifact that the Argo CD of an engine cannot deploy is a problem of its file, and comes in
// after an upgrade without a commit.
func TestAnArtifactComesInAfterAnUpgradeOfArgoCD(t *testing.T) {
	t.Parallel()
	const path = "tenants/acme/deployments/web.yaml"
	files := small()
	files["fleet/tenants/acme.yaml"] = strings.Replace(files["fleet/tenants/acme.yaml"],
		"repositories: [", "allow: {artifacts: [\"oci://git.example.com/acme/\"]}\n  "+
			"repositories: [\"oci://git.example.com/acme/\", ", 1)
	h := newHouse(t, files)
	first := h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	argoCD := func(version string) {
		if err := stack.ExecSQL(t.Context(), h.url, `UPDATE engines SET argocd = $1`,
			version); err != nil {
			t.Fatal(err)
		}
	}
	rejected := func(want bool) error {
		problems, _, err := h.store.Views.Problems(t.Context(), view.Scope{Tenant: "acme"},
			view.Filter{}, view.Page{Limit: 10})
		if err != nil {
			return err
		}
		if got := len(problems) == 1 && problems[0].Code == catalog.CodeArtifact &&
			problems[0].Path == path && problems[0].Line > 0; got != want || !want &&
			len(problems) > 0 {
			return fmt.Errorf("problems %+v", problems)
		}
		return nil
	}
	artifact := func() error {
		for k, r := range h.rows() {
			if k.Kind == fleet.ObjectApplication && r.Tenant == "acme" &&
				!strings.Contains(string(r.Manifest.Body), "oci://") {
				return errors.New(k.Name + " is not of the artifact")
			}
		}
		return nil
	}
	argoCD("v2.14.21")
	h.commit("an artifact", map[string]string{path: strings.Replace(files[path],
		"https://git.example.com/acme/web", "oci://git.example.com/acme/web", 1)})
	h.eventually("the deployment is rejected", func() error { return rejected(true) })
	if artifact() == nil {
		t.Error("the artifact goes to an Argo CD that takes it for a Git repository")
	}
	h.passes(first, 3)
	argoCD("v3.5.7")
	h.eventually("the deployment is accepted", func() error {
		return errors.Join(rejected(false), artifact())
	})
}
