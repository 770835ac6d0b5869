package checkout_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"argosy.dev/argosy/cmd/argosy/checkout"
	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
)

const services = "https://git.example.com/acme/services.git"

func write(t *testing.T, dir, path, content string) {
	t.Helper()
	name := filepath.Join(dir, path)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func paths(l fleet.Listing) string {
	all := make([]string, len(l.Entries))
	for i, e := range l.Entries {
		all[i] = e.Path
	}
	return strings.Join(all, " ")
}

func TestAFolderGivesTheListingOfItsRepository(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, p := range []string{"services/a/x.yaml", "services/b/deep/er/y.yaml", "top.yaml",
		"services/c/config.yaml", "services/c/.git/z", ".git/HEAD", "other/d/config.yaml"} {
		write(t, dir, p, "name: "+p+"\n")
	}
	if err := os.MkdirAll(filepath.Join(dir, "services/empty/inner"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "services/link"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../top.yaml",
		filepath.Join(dir, "services/link/config.yaml")); err != nil {
		t.Fatal(err)
	}
	listings, err := checkout.Listings([]string{services + "=" + dir})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		files         bool
		pattern, want string
	}{
		{false, "services/*", "services/a services/b services/c"},
		{false, "**/deep", "services/b/deep"},
		{false, "services/*/*", "services/b/deep"},
		{true, "*/*/config.yaml", "other/d/config.yaml services/c/config.yaml"},
		{true, "**/*.yaml", "other/d/config.yaml services/a/x.yaml services/b/deep/er/y.yaml " +
			"services/c/config.yaml top.yaml"},
		{true, "none/*", ""},
	} {
		d := fleet.Discovery{RepoURL: strings.TrimSuffix(services, ".git"), TargetRevision: "main",
			Paths: []string{c.pattern}}
		l, err := listings(d.Request("acme", c.files))
		if err != nil || paths(l) != c.want {
			t.Errorf("%s: %q, %v; want %q", c.pattern, paths(l), err, c.want)
		}
		for _, e := range l.Entries {
			if c.files && e.Fields["name"] != e.Path {
				t.Errorf("%+v", e)
			}
		}
	}
	d := fleet.Discovery{RepoURL: "https://git.example.com/acme/other", TargetRevision: "main",
		Paths: []string{"*"}}
	if _, err := listings(d.Request("acme", false)); !errors.Is(err, fleet.ErrNoListing) ||
		!strings.Contains(err.Error(), "--listing https://git.example.com/acme/other=FOLDER") {
		t.Error(err)
	}
}

func TestAListingNamesARepositoryAndAFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "file", "")
	for what, folders := range map[string][]string{
		"write <repository>=<folder>": {services},
		"no such file":                {services + "=" + filepath.Join(dir, "none")},
		"is no folder":                {services + "=" + filepath.Join(dir, "file")},
		"twice": {services + "=" + dir,
			strings.TrimSuffix(services, ".git") + "=" + dir},
	} {
		if _, err := checkout.Listings(folders); err == nil ||
			!strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestTheExampleOfDiscoveredServicesGivesItsApplications(t *testing.T) {
	t.Parallel()
	const root = "../../../examples/discovered-services"
	listings, err := checkout.Listings([]string{
		"https://git.example.com/shop/services.git=" + root + "/services.git"})
	if err != nil {
		t.Fatal(err)
	}
	files, err := checkout.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	for i := range files {
		files[i].Listings = listings
	}
	for _, p := range configschema.Check(files) {
		t.Error(p)
	}
	s, found := catalog.New().Prepare(configschema.Inputs(files)), ""
	for _, id := range s.DeploymentsOf("shop") {
		for _, env := range s.Targets(id) {
			found += string(id.Name) + "@" + string(env.Name) + " "
		}
	}
	if found != "addon-ingress@staging addon-redis@prod cart@prod cart@staging search@prod "+
		"search@staging " {
		t.Error(found)
	}
}
