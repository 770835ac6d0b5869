package adoption

import (
	"strings"
	"testing"
)

// Annotations on which Argo CD acts are fields of the deployment, and the tenant is granted the
// services that it uses.
func TestAnnotationsOfArgoCDAreFields(t *testing.T) {
	t.Parallel()
	im, files := converged(t, strings.Replace(named("web"), "namespace: argocd}",
		`namespace: argocd, annotations: {
  argocd.argoproj.io/compare-options: "ServerSideDiff=true, IncludeMutationWebhook=true",
  argocd.argoproj.io/manifest-generate-paths: ".; ../base;/shared/",
  notifications.argoproj.io/subscribe.on-deployed.slack: "shop; shop-alerts",
  notifications.argoproj.io/subscribe.webhook: "", example.com/a: b}}`, 1))
	got := files["tenants/platform/deployments/web.yaml"]
	for _, want := range []string{"diff: serverWithWebhooks",
		"watchPaths:\n    - .\n    - /base\n    - /shared\n",
		"recipients:\n        - shop\n        - shop-alerts\n", "trigger: on-deployed",
		"service: webhook"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if lost := im.apps[0].metadataLost("argocd"); len(lost) != 1 ||
		!strings.Contains(lost[0].Path, "example.com/a") {
		t.Errorf("lost: %+v", lost)
	}
	tenant := files["fleet/tenants/platform.yaml"]
	if !strings.Contains(tenant, "- service: slack\n        recipients:\n          - shop\n") ||
		!strings.Contains(tenant, "- service: webhook\n") {
		t.Errorf("the grant is\n%s", tenant)
	}
}
