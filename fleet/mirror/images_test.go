package mirror_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet/mirror"
)

func TestImagesAreSortedUniqueAndBounded(t *testing.T) {
	t.Parallel()
	got := mirror.ImagesOf([]string{"nginx:1.27", "ghcr.io/acme/web@sha256:0a", "nginx:1.27"})
	if want := []string{"ghcr.io/acme/web@sha256:0a", "nginx:1.27"}; !slices.Equal(got.List(),
		want) {
		t.Errorf("%q, want %q", got.List(), want)
	}
	var many []string
	for i := range 10_000 {
		many = append(many, "nginx:"+strconv.Itoa(i))
	}
	if n := len(mirror.ImagesOf(many).List()); n != mirror.MaxRunningImages {
		t.Errorf("%d images are kept, want %d", n, mirror.MaxRunningImages)
	}
}

func TestTextThatIsNoImageIsDropped(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "a b", "<script>", "-x", "a\nb", "\x1b[31m", "a\u202eb",
		strings.Repeat("a", 513)} {
		if got := mirror.ImagesOf([]string{name}); len(got.List()) > 0 || !got.Reported() {
			t.Errorf("%q: %q, reported %v", name, got.List(), got.Reported())
		}
	}
}

func TestNoImagesDifferFromUnreportedOnes(t *testing.T) {
	t.Parallel()
	if none := mirror.ImagesOf(nil); !none.Reported() || len(none.List()) != 0 {
		t.Errorf("none: %q", none)
	}
	if unreported := mirror.Images(""); unreported.Reported() {
		t.Error("the zero value is reported")
	}
}
