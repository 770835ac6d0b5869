package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/cmd/argosy/settings"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/reconciler"
	"argosy.dev/argosy/reconciler/gitrepo"
	"argosy.dev/argosy/reconciler/secrets"
	"argosy.dev/argosy/test/stack"
)

// Gitea's SSH server admits the tenant's key, and the platform's known_hosts decide which server is
// asked.
func TestAListingIsReadOverSSH(t *testing.T) {
	_, database := newDatabase(t)
	host, err := stack.StartForge(t.Context(), stack.ForgeOptions{Database: database, SSH: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Stop() })
	repo, err := host.CreateRepo(t.Context(), host.Admin.Login, "services", true)
	if err != nil {
		t.Fatal(err)
	}
	head, err := repo.Push(t.Context(), host.Admin, stack.Change{Branch: "main",
		Message: "services", Write: map[string]string{"services/cart/config.yaml": "team: a\n"}})
	if err != nil {
		t.Fatal(err)
	}
	dir, keys := t.TempDir(), map[string]stack.SSHKey{}
	for _, name := range []string{"good", "stranger", "server"} {
		if keys[name], err = stack.NewSSHKey(); err != nil {
			t.Fatal(err)
		}
		folder := filepath.Join(dir, "acme", name)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "sshPrivateKey"), []byte(keys[name].Private),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := repo.AllowKey(t.Context(), keys["good"]); err != nil {
		t.Fatal(err)
	}
	resolver := &secrets.Resolver{}
	if err := resolver.AddDirectory(dir); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		secret, knownHosts string
		want               error
		text               string
	}{
		"listed": {secret: "good", knownHosts: host.KnownHosts},
		"another server": {"good", keys["server"].KnownHost(host.SSH), gitrepo.ErrUnavailable,
			"verify the key, then replace its line in source.knownHostsFile"},
		"an unknown server": {"good", keys["server"].KnownHost("git.example.com:22"),
			gitrepo.ErrUnavailable, "known_hosts has no line for " + host.SSH},
		"no server is known": {"good", "", gitrepo.ErrUnauthorized, "source.knownHostsFile"},
		"a stranger's key": {"stranger", host.KnownHosts, gitrepo.ErrUnauthorized,
			"check that it may read this repository"},
	} {
		t.Run(name, func(t *testing.T) {
			s := settings.Settings{DataDir: t.TempDir()}
			if c.knownHosts != "" {
				s.Source.KnownHostsFile = filepath.Join(t.TempDir(), "known_hosts")
				if err := os.WriteFile(s.Source.KnownHostsFile, []byte(c.knownHosts),
					0o600); err != nil {
					t.Fatal(err)
				}
			}
			l, err := newLister(s, resolver)
			if err != nil {
				t.Fatal(err)
			}
			tip, results, err := l.List(t.Context(), reconciler.ListingRead{Tenant: "acme",
				RepoURL: repo.SSHURL(), TargetRevision: "main", Requests: []fleet.ListingRequest{
					{Tenant: "acme", RepoURL: repo.SSHURL(), TargetRevision: "main",
						Paths: "services/*"}},
				Credential: &fleet.CredentialSource{Tenant: "acme", Folder: "credentials",
					Name: c.secret}})
			if c.want != nil {
				if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) ||
					results != nil {
					t.Errorf("%v %+v, want %v with %q", err, results, c.want, c.text)
				}
				return
			}
			if err != nil || string(tip) != head || len(results) != 1 ||
				len(results[0].Listing.Entries) != 1 ||
				results[0].Listing.Entries[0].Path != "services/cart" {
				t.Errorf("%s %+v %v", tip, results, err)
			}
		})
	}
}

func TestAListingIsReadWithTheSecretOfItsTenant(t *testing.T) {
	host, err := stack.StartGit(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Stop() })
	repo, err := host.CreateRepo(t.Context(), "acme/services")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"apps/cart/config.yaml":   "team: payments\n",
		"apps/search/config.yaml": strings.Repeat("# a comment\n", maxListedFile/10),
		"apps/shop/config.yaml":   "team: [",
	}
	for i := range fleet.MaxSetItems + 1 {
		files[fmt.Sprintf("many/%d/config.yaml", i)] = "team: payments\n"
	}
	head, err := repo.Commit(t.Context(), "apps", files)
	if err != nil {
		t.Fatal(err)
	}
	repo.RequireAuth("git", "canary")
	dir := t.TempDir()
	for name, password := range map[string]string{"good": "canary", "bad": "sparrow", "none": ""} {
		folder := filepath.Join(dir, "acme", name)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		for key, value := range map[string]string{"username": "git", "password": password} {
			path := filepath.Join(folder, key)
			if err := os.WriteFile(path, []byte(value+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	resolver := &secrets.Resolver{}
	if err := resolver.AddDirectory(dir); err != nil {
		t.Fatal(err)
	}
	l, err := newLister(settings.Settings{DataDir: t.TempDir()}, resolver)
	if err != nil {
		t.Fatal(err)
	}
	request := func(files bool, path string) fleet.ListingRequest {
		return fleet.ListingRequest{Tenant: "acme", RepoURL: repo.URL, TargetRevision: "main",
			Files: files, Paths: path}
	}
	read := func(secret string, requests ...fleet.ListingRequest) reconciler.ListingRead {
		r := reconciler.ListingRead{Tenant: "acme", RepoURL: repo.URL, TargetRevision: "main",
			Requests: requests}
		if secret != "" {
			r.Credential = &fleet.CredentialSource{Tenant: "acme", Folder: "credentials",
				Name: secret}
		}
		return r
	}
	folders, contents := request(false, "apps/*"), request(true, "apps/*/config.yaml")
	tip, results, err := l.List(t.Context(), read("good", folders, contents))
	if err != nil || string(tip) != head || len(results) != 2 {
		t.Fatalf("%s %+v %v", tip, results, err)
	}
	var got []string
	for _, r := range results {
		for _, e := range r.Listing.Entries {
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %v", e.Path, e.Fields["team"],
				e.Problem != "")))
		}
	}
	if want := []string{"apps/cart  false", "apps/search  false", "apps/shop  false",
		"apps/cart/config.yaml payments false", "apps/search/config.yaml  true",
		"apps/shop/config.yaml  true"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}

	known := read("good", folders)
	known.Known = tip
	if tip, results, err := l.List(t.Context(), known); string(tip) != head || results != nil ||
		err != nil {
		t.Errorf("a known commit: %s %v %v", tip, results, err)
	}
	// a request for too much fails alone
	many := request(false, "many/*")
	tip, results, err = l.List(t.Context(), read("good", folders, many))
	if err != nil || string(tip) != head || results[0].Err != nil || results[1].Err == nil ||
		len(results[0].Listing.Entries) != 3 {
		t.Errorf("a request for too much: %s %+v %v", tip, results, err)
	}
	_, _, err = l.List(t.Context(), read("good", many))
	if !errors.Is(err, reconciler.ErrTooMuch) || !strings.Contains(err.Error(), "narrow") {
		t.Errorf("nothing but too much: %v", err)
	}
	for secret, want := range map[string]error{"bad": gitrepo.ErrUnauthorized,
		"": gitrepo.ErrUnauthorized, "none": gitrepo.ErrUnauthorized,
		"missing": gitrepo.ErrUnauthorized} {
		_, _, err := l.List(t.Context(), read(secret, folders))
		if !errors.Is(err, want) || strings.Contains(err.Error(), "sparrow") {
			t.Errorf("secret %q: %v", secret, err)
		}
	}
}
