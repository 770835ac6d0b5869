package fleet

import "strings"

// Annotations of Applications by which other controllers change them: Kargo's, the prefix of Argo
// CD Image Updater's, and the one without which the latter changes nothing.
const (
	KargoAnnotation        = "kargo.akuity.io/authorized-stage"
	ImageUpdaterPrefix     = "argocd-image-updater.argoproj.io/"
	ImageUpdaterAnnotation = ImageUpdaterPrefix + "image-list"
)

// ImageUpdates is where Argo CD Image Updater writes the images of an Application.
type ImageUpdates string

// Values of ImageUpdates.
const (
	ImagesNowhere       ImageUpdates = "nowhere"
	ImagesInApplication ImageUpdates = "application"
	ImagesInGit         ImageUpdates = "git"
)

// ImageUpdatesOf returns where Argo CD Image Updater writes the images of an Application with these
// annotations: with a list of images, to the Application, unless the method is git or git:<secret>.
// It ignores the blanks around a method.
func ImageUpdatesOf(annotations map[string]any) ImageUpdates {
	images, _ := annotations[ImageUpdaterAnnotation].(string)
	method, _ := annotations[ImageUpdaterPrefix+"write-back-method"].(string)
	method, _, _ = strings.Cut(method, ":")
	switch {
	case strings.TrimSpace(images) == "":
		return ImagesNowhere
	case strings.TrimSpace(method) == "git":
		return ImagesInGit
	}
	return ImagesInApplication
}
