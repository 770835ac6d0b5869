package secrets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
)

func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for path, content := range files {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func value(s fleet.Secret, key string) string {
	return string(s.Value(key))
}

func TestDirectoryReachesOnlyTheTenantsOwnSecrets(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{"acme/git/token": "a", "globex/git/token": "g",
		"_fleet/engine-eu-1/kubeconfig": "k"})
	var r Resolver
	if err := r.AddDirectory(root); err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[fleet.TenantName]string{"acme": "a", "globex": "g"} {
		s, err := r.Get(t.Context(), fleet.CredentialSource{Tenant: tenant, Name: "git"})
		if err != nil || value(s, "token") != want {
			t.Errorf("%s: %v, %v", tenant, value(s, "token"), err)
		}
	}
	if s, err := r.Get(t.Context(), fleet.CredentialSource{Name: "engine-eu-1"}); err != nil ||
		value(s, "kubeconfig") != "k" {
		t.Errorf("the platform's own secret: %v", err)
	}
	for _, ref := range []fleet.CredentialSource{
		{Tenant: "acme", Name: "../globex/git"}, {Tenant: "../globex", Name: "git"},
		{Tenant: "_fleet", Name: "engine-eu-1"},
		{Tenant: "acme", Name: ""}, {Tenant: "acme", Name: "."}, {Tenant: "acme", Name: ".."},
	} {
		if _, err := r.Get(t.Context(), ref); err == nil || errors.Is(err, ErrNotFound) {
			t.Errorf("%+v is looked up: %v", ref, err)
		}
	}
}

func TestDirectoryFollowsNoLinkOutOfTheSecret(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{"globex/git/token": "g", "acme/git/user": "u",
		"acme/mounted/..data/token": "m"})
	if err := os.Symlink("../../globex/git/token",
		filepath.Join(root, "acme/git/token")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..data/token", filepath.Join(root, "acme/mounted/token")); err != nil {
		t.Fatal(err)
	}
	var r Resolver
	if err := r.AddDirectory(root); err != nil {
		t.Fatal(err)
	}
	if s, err := r.Get(t.Context(), fleet.CredentialSource{
		Tenant: "acme", Name: "git"}); err == nil {
		t.Errorf("a link into another tenant's folder was read: %q", value(s, "token"))
	}
	if s, err := r.Get(t.Context(), fleet.CredentialSource{
		Tenant: "acme", Name: "mounted"}); err != nil || value(s, "token") != "m" {
		t.Errorf("a mounted Secret's own link is not read: %v", err)
	}
}

func TestMissingSecretNamesThePlacesForIt(t *testing.T) {
	root := t.TempDir()
	var r Resolver
	if _, err := r.Get(t.Context(), fleet.CredentialSource{
		Tenant: "acme", Name: "git"}); !errors.Is(err, ErrNotFound) ||
		!strings.Contains(err.Error(), "argosy.yaml") {
		t.Errorf("without a place: %v", err)
	}
	if err := r.AddDirectory(root); err != nil {
		t.Fatal(err)
	}
	_, err := r.Get(t.Context(), fleet.CredentialSource{Tenant: "acme", Name: "git"})
	if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(),
		filepath.Join(root, "acme", "git")) || !strings.Contains(err.Error(), "tenant acme") {
		t.Errorf("the error does not name the place: %v", err)
	}
}

func TestDirectoryRotationIsReported(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{"acme/git/token": "old", "globex/git/token": "same"})
	var r Resolver
	if err := r.AddDirectory(root); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	reported := make(chan string, 10)
	r.Watch(ctx, func(tenant fleet.TenantName, name string) {
		reported <- fmt.Sprintf("%s/%s", tenant, name)
	})
	// The first scan may run before or after this write: write until Watch reports it.
	for i := 0; ; i++ {
		write(t, root, map[string]string{"acme/git/token": fmt.Sprint("new", i)})
		select {
		case got := <-reported:
			if got != "acme/git" {
				t.Fatalf("got a report of %s", got)
			}
			return
		case <-ctx.Done():
			t.Fatal("no report of the rotation")
		case <-time.After(directoryPoll):
		}
	}
}
