package adoption

import (
	"strings"
	"testing"
)

// Another controller that changes Applications loses that right: the report names the way to keep
// its work. Where the images would differ from the running ones, the Application is refused.
func TestAnnotationsOfOtherControllersAreJudged(t *testing.T) {
	t.Parallel()
	const images = `argocd-image-updater.argoproj.io/image-list: app=registry.example.com/app, `
	for name, c := range map[string]struct {
		annotations string
		live        bool
		reason      string
		hard        bool
	}{
		"Kargo": {"kargo.akuity.io/authorized-stage: 'shop:prod'", false,
			"if it has changed the live Application", false},
		"Kargo, live": {"kargo.akuity.io/authorized-stage: 'shop:prod'", true,
			"remove the annotation first", false},
		"images of a manifest": {images, false, "import it with --kubeconfig", true},
		"images of a live one": {images, true, "stay as they are now", false},
		"images in a file that no engine reads": {images +
			"argocd-image-updater.argoproj.io/write-back-method: 'git:repocreds'", true,
			"write-back-target", true},
		"images in a kustomization": {images +
			"argocd-image-updater.argoproj.io/write-back-method: git, " +
			"argocd-image-updater.argoproj.io/write-back-target: kustomization", false,
			"an ImageUpdater resource", false},
		"settings without images": {
			"argocd-image-updater.argoproj.io/app.force-update: 'true'", false,
			"ignores it", false},
		"options for the parent": {"argocd.argoproj.io/sync-options: Prune=false", false,
			"an app of apps", false},
		"a stopped Application": {"argocd.argoproj.io/skip-reconcile: 'true'", true,
			"a controller acts on it", true},
		"any other": {"example.com/a: b", true, "no declaration has annotations", false},
	} {
		uid := ""
		if c.live {
			uid = "uid: 0b1e, "
		}
		im, _ := converged(t, strings.Replace(named("web"), "namespace: argocd}",
			"namespace: argocd, "+uid+"annotations: {"+c.annotations+"}}", 1))
		lost := im.apps[0].metadataLost("argocd")
		if len(lost) == 0 {
			t.Errorf("%s: nothing is lost", name)
		}
		for _, d := range lost {
			if !strings.Contains(d.Reason, c.reason) || d.hard != c.hard {
				t.Errorf("%s: %s, hard %t: %s", name, d.Path, d.hard, d.Reason)
			}
		}
	}
	im, _ := converged(t, strings.Replace(named("web"), "namespace: argocd}",
		"namespace: argocd, annotations: {argocd.argoproj.io/refresh: hard}}", 1))
	if lost := im.apps[0].metadataLost("argocd"); len(lost) > 0 {
		t.Errorf("a request to Argo CD is a loss: %+v", lost)
	}
}
