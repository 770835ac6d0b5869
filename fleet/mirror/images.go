package mirror

import (
	"slices"
	"strings"
	"unique"
)

// Limits of Images.
const (
	MaxRunningImages = 20
	maxImageName     = 512
)

// Images are the container images that an Application's workload runs, in a form that can be
// compared. The zero value: they are not reported, as by an agent of an earlier version.
type Images string

// noImages are reported, and none.
const noImages = "\n"

// ImagesOf returns the images in order, each once, at most MaxRunningImages. It drops texts that
// are no image: a workload chooses them.
func ImagesOf(names []string) Images {
	var kept []string
	for _, name := range names[:min(len(names), 50*MaxRunningImages)] {
		if validImage(name) {
			kept = append(kept, name)
		}
	}
	slices.Sort(kept)
	kept = slices.Compact(kept)
	if kept = kept[:min(len(kept), MaxRunningImages)]; len(kept) == 0 {
		return noImages
	}
	// the Applications of a deployment run the same images
	return Images(unique.Make(strings.Join(kept, "\n") + "\n").Value())
}

// Reported reports whether the images are known.
func (i Images) Reported() bool { return i != "" }

// List returns the images; it is empty if there are none or they are not reported.
func (i Images) List() []string { return strings.Fields(string(i)) }

func validImage(name string) bool {
	if name == "" || len(name) > maxImageName || !isAlphanumeric(name[0]) {
		return false
	}
	for c := range len(name) {
		if !isAlphanumeric(name[c]) && strings.IndexByte("._-/:@+", name[c]) < 0 {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
