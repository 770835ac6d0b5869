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

	"filippo.io/age"
	"github.com/getsops/sops/v3"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/test/sealed"
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
	write(t, root, map[string]string{"acme/git/token": "a", "globex/git/token": "g", "_fleet/engine-eu-1/kubeconfig": "k"})
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
	if s, err := r.Get(t.Context(), fleet.CredentialSource{Name: "engine-eu-1"}); err != nil || value(s, "kubeconfig") != "k" {
		t.Errorf("the platform's own secret: %v", err)
	}
	for _, ref := range []fleet.CredentialSource{
		{Tenant: "acme", Name: "../globex/git"}, {Tenant: "../globex", Name: "git"}, {Tenant: "_fleet", Name: "engine-eu-1"},
		{Tenant: "acme", Name: ""}, {Tenant: "acme", Name: "."}, {Tenant: "acme", Name: ".."},
	} {
		if _, err := r.Get(t.Context(), ref); err == nil || errors.Is(err, ErrNotFound) {
			t.Errorf("%+v is looked up: %v", ref, err)
		}
	}
}

func TestDirectoryFollowsNoLinkOutOfTheSecret(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{"globex/git/token": "g", "acme/git/user": "u", "acme/mounted/..data/token": "m"})
	if err := os.Symlink("../../globex/git/token", filepath.Join(root, "acme/git/token")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..data/token", filepath.Join(root, "acme/mounted/token")); err != nil {
		t.Fatal(err)
	}
	var r Resolver
	if err := r.AddDirectory(root); err != nil {
		t.Fatal(err)
	}
	if s, err := r.Get(t.Context(), fleet.CredentialSource{Tenant: "acme", Name: "git"}); err == nil {
		t.Errorf("a link into another tenant's folder was read: %q", value(s, "token"))
	}
	if s, err := r.Get(t.Context(), fleet.CredentialSource{Tenant: "acme", Name: "mounted"}); err != nil || value(s, "token") != "m" {
		t.Errorf("a mounted Secret's own link is not read: %v", err)
	}
}

func TestMissingSecretSaysWhereToPutIt(t *testing.T) {
	root := t.TempDir()
	var r Resolver
	if _, err := r.Get(t.Context(), fleet.CredentialSource{Tenant: "acme", Name: "git"}); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "argosy.yaml") {
		t.Errorf("without a place: %v", err)
	}
	if err := r.AddDirectory(root); err != nil {
		t.Fatal(err)
	}
	_, err := r.Get(t.Context(), fleet.CredentialSource{Tenant: "acme", Name: "git"})
	if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), filepath.Join(root, "acme", "git")) || !strings.Contains(err.Error(), "tenant acme") {
		t.Errorf("the error does not say where: %v", err)
	}
}

func TestDirectoryRotationIsTold(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{"acme/git/token": "old", "globex/git/token": "same"})
	var r Resolver
	if err := r.AddDirectory(root); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	told := make(chan string, 10)
	r.Watch(ctx, func(tenant fleet.TenantName, name string) { told <- fmt.Sprintf("%s/%s", tenant, name) })
	// The first look may come before or after this write: write until it is seen.
	for i := 0; ; i++ {
		write(t, root, map[string]string{"acme/git/token": fmt.Sprint("new", i)})
		select {
		case got := <-told:
			if got != "acme/git" {
				t.Fatalf("told of %s", got)
			}
			return
		case <-ctx.Done():
			t.Fatal("the rotation was not told")
		case <-time.After(directoryPoll):
		}
	}
}

func seal(t *testing.T, recipient string, values map[string]any) []byte {
	t.Helper()
	b, err := sealed.File(recipient, values)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func sealedResolver(t *testing.T, files map[string][]byte, ids ...*age.X25519Identity) *Resolver {
	t.Helper()
	var text strings.Builder
	for _, id := range ids {
		text.WriteString(id.String() + "\n")
	}
	file := filepath.Join(t.TempDir(), "age.txt")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &Resolver{}
	err := r.AddAge(file, func(_ context.Context, blob string) ([]byte, error) {
		b, ok := files[blob]
		if !ok {
			return nil, errors.New("no such blob")
		}
		return b, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func identity(t *testing.T) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestSealedSecretOpensWithTheOperatorsIdentity(t *testing.T) {
	id := identity(t)
	r := sealedResolver(t, map[string][]byte{"b1": seal(t, id.Recipient().String(), map[string]any{"username": "bot", "password": "s3cr3t"})}, id)
	s, err := r.Get(t.Context(), fleet.CredentialSource{Tenant: "acme", Name: "git", Sealed: "b1"})
	if err != nil || value(s, "username") != "bot" || value(s, "password") != "s3cr3t" {
		t.Fatalf("got %v, %v", s.Keys(), err)
	}
}

func TestSealedSecretThatDoesNotOpenSaysWhyAndNothingElse(t *testing.T) {
	id, stranger := identity(t), identity(t)
	good := seal(t, id.Recipient().String(), map[string]any{"password": "s3cr3t", "other": "0ther"})
	var swapped []string
	for _, line := range strings.Split(string(good), "\n") {
		if strings.HasPrefix(line, "other:") {
			continue // a value taken away
		}
		swapped = append(swapped, line)
	}
	for name, c := range map[string]struct {
		ids  []*age.X25519Identity
		file []byte
		want string
	}{
		"a stranger's identity":    {[]*age.X25519Identity{stranger}, good, "none of the configured age identities"},
		"a value that was removed": {[]*age.X25519Identity{id}, []byte(strings.Join(swapped, "\n")), "MAC"},
		"no sops file":             {[]*age.X25519Identity{id}, []byte("password: s3cr3t\n"), "no sops file"},
		"a nested value":           {[]*age.X25519Identity{id}, seal(t, id.Recipient().String(), map[string]any{"a": sops.TreeBranch{{Key: "b", Value: "s3cr3t"}}}), "flat map"},
	} {
		t.Run(name, func(t *testing.T) {
			r := sealedResolver(t, map[string][]byte{"b": c.file}, c.ids...)
			_, err := r.Get(t.Context(), fleet.CredentialSource{Tenant: "acme", Name: "git", Sealed: "b"})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want it to say %q", err, c.want)
			}
			if strings.Contains(err.Error(), "s3cr3t") || strings.Contains(err.Error(), "AGE-SECRET-KEY") {
				t.Fatalf("the error tells the secret: %v", err)
			}
		})
	}
}

func TestSealedSecretNeverAsksTheMachinesOwnKeys(t *testing.T) {
	mine, theirs := identity(t), identity(t)
	t.Setenv("SOPS_AGE_KEY", theirs.String())
	r := sealedResolver(t, map[string][]byte{"b": seal(t, theirs.Recipient().String(), map[string]any{"password": "x"})}, mine)
	if _, err := r.Get(t.Context(), fleet.CredentialSource{Tenant: "acme", Name: "git", Sealed: "b"}); err == nil {
		t.Fatal("a key of the environment opened the file")
	}
}
