package adoption

import (
	"strings"

	"argosy.dev/argosy/fleet"
)

// This file judges annotations of Applications that other controllers act on. No declaration has
// them: Argosy writes each Application as its declaration states, so no other controller may.

// parentsKeys are annotations that Argo CD reads from the manifest of an Application in an app of
// apps.
var parentsKeys = map[string]bool{"argocd.argoproj.io/sync-options": true,
	"argocd.argoproj.io/hook": true, "argocd.argoproj.io/hook-delete-policy": true}

// unannotated returns why the declaration lacks an annotation, and whether the workload would
// behave otherwise without it.
func (a *app) unannotated(k string) (reason string, hard bool) {
	annotations := object(a.Object, "metadata", "annotations")
	live := text(a.Object, "metadata", "uid") != ""
	v := text(annotations, k)
	switch name := strings.TrimPrefix(k, "argocd.argoproj.io/"); {
	case k == fleet.KargoAnnotation && live:
		return "Kargo no longer changes the Application, whose fields are those of the config " +
			"repo: let its Stage push to Git in place of argocd-update; with --adopt, remove the " +
			"annotation first", false
	case k == fleet.KargoAnnotation:
		return "Kargo no longer changes the Application, whose fields are those of the config " +
			"repo: let its Stage push to Git in place of argocd-update; if it has changed the " +
			"live Application, import that with --kubeconfig", false
	case strings.HasPrefix(k, fleet.ImageUpdaterPrefix):
		return updates(annotations, live)
	case parentsKeys[k]:
		return "Argo CD reads it where an app of apps deploys the Application, which the " +
			"declaration replaces", false
	case k == compareKey && (strings.Contains(v, "ServerSideDiff=true") ||
		strings.Contains(v, "Mutation")), name == "skip-reconcile" && v == "true":
		return "a controller acts on it, and no declaration has annotations", true
	}
	return "no declaration has annotations", false
}

// updates judges the annotations of Argo CD Image Updater: without it, the images stay as they are.
// It writes to the live Application, or to a file of the repository.
func updates(annotations map[string]any, live bool) (reason string, hard bool) {
	target := text(annotations, fleet.ImageUpdaterPrefix+"write-back-target")
	switch to := fleet.ImageUpdatesOf(annotations); {
	case to == fleet.ImagesNowhere:
		return "Argo CD Image Updater ignores it without image-list", false
	case to == fleet.ImagesInGit && target == "":
		return "Argo CD Image Updater commits the images to .argocd-source-<name>.yaml, which no " +
			"engine reads: let it write to the kustomization or the values (write-back-target) " +
			"first", true
	case to == fleet.ImagesInGit:
		return "Argo CD Image Updater no longer finds the Application by its annotations: write " +
			"an ImageUpdater resource, which can commit to Git as before", false
	case !live:
		return "Argo CD Image Updater has changed the images of the live Application, and these " +
			"manifests lack them: import it with --kubeconfig", true
	}
	return "Argo CD Image Updater no longer changes the images of the Application, which stay as " +
			"they are now: let it commit to Git (an ImageUpdater resource with write-back to a " +
			"kustomization or values file); with --adopt, remove the annotation image-list first",
		false
}
