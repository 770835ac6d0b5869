package fleet

import "testing"

func TestImageUpdaterWritesToGitByItsMethodAlone(t *testing.T) {
	for _, c := range []struct {
		images, method string
		want           ImageUpdates
	}{
		{"", "git", ImagesNowhere},
		{" ", "", ImagesNowhere},
		{"app=registry.example.com/app", "", ImagesInApplication},
		{"app", "argocd", ImagesInApplication},
		{"app", "git", ImagesInGit},
		{"app", " git ", ImagesInGit},
		{"app", "git:repocreds", ImagesInGit},
		{"app", "git :secret:argocd/git-creds", ImagesInGit},
		{"app", "github", ImagesInApplication},
		{"app", "Git", ImagesInApplication},
		{"app", ":git", ImagesInApplication},
	} {
		got := ImageUpdatesOf(map[string]any{ImageUpdaterAnnotation: c.images,
			ImageUpdaterPrefix + "write-back-method": c.method})
		if got != c.want {
			t.Errorf("image-list %q, write-back-method %q: %s, want %s", c.images, c.method, got,
				c.want)
		}
	}
}
