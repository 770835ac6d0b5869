package configschema

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/tools/txtar"

	"argosy.dev/argosy/fleet"
)

func TestThePathIsTheIdentity(t *testing.T) {
	for path, want := range map[string]fleet.Key{
		"fleet/fleet.yaml":        {Kind: fleet.KindFleet, Name: "fleet"},
		"fleet/engines/eu-1.yaml": {Kind: fleet.KindEngine, Name: "eu-1"},
		"fleet/tenants/acme.yaml": {Kind: fleet.KindTenant, Name: "acme"},
		"tenants/acme/environments/prod-eu.yaml": {
			Kind: fleet.KindManagedEnvironment, Tenant: "acme", Name: "prod-eu"},
		"tenants/acme/deployments/checkout.yaml": {
			Kind: fleet.KindGitOpsDeployment, Tenant: "acme", Name: "checkout"},
		"tenants/acme/credentials/git.yaml": {
			Kind: fleet.KindRepositoryCredential, Tenant: "acme", Name: "git"},
		"tenants/acme/syncs/rollback.yaml": {
			Kind: fleet.KindSyncRun, Tenant: "acme", Name: "rollback"},
		"tenants/acme/environments/prod-eu.sops.yaml": {
			Kind: fleet.KindSealedSecret, Tenant: "acme", Name: "environments/prod-eu"},
		"tenants/acme/credentials/prod-eu.sops.yaml": {
			Kind: fleet.KindSealedSecret, Tenant: "acme", Name: "credentials/prod-eu"},
		"tenants/acme/deployments/fleet.yaml": {
			Kind: fleet.KindGitOpsDeployment, Tenant: "acme", Name: "fleet"},
		"tenants/tenants/environments/environments.yaml": {
			Kind: fleet.KindManagedEnvironment, Tenant: "tenants", Name: "environments"},
	} {
		key, ours, problem := Classify(path)
		if key != want || !ours || problem != nil {
			t.Errorf("%s: %v, %v, %v", path, key, ours, problem)
		}
	}
}

func TestWhatIsOutsideIsIgnored(t *testing.T) {
	for _, path := range []string{"", "README.md", "CODEOWNERS", ".github/CODEOWNERS", ".sops.yaml",
		"docs/fleet/fleet.yaml", "tenant/acme/deployments/a.yaml", "fleets/x.yaml",
		"/fleet/fleet.yaml", "./fleet/fleet.yaml"} {
		if key, ours, problem := Classify(path); ours || problem != nil || key != (fleet.Key{}) {
			t.Errorf("%s: %v, %v, %v", path, key, ours, problem)
		}
		if doc := Decode(File{Path: path, Bytes: []byte("[")}); doc.Declaration != nil ||
			len(doc.Problems) > 0 {
			t.Errorf("%s: %+v", path, doc)
		}
	}
}

func TestAMisplacedFileNeverReplacesASimilarDeclaration(t *testing.T) {
	for _, path := range []string{
		"tenants/acme/deployments/checkout.yml", "tenants/acme/deployments/Checkout.yaml",
		"tenants/acme/deployments/checkout.yaml/x", "tenants/acme/deployments/checkout.json",
		"tenants/acme/deployments/checkout.sops.yaml", "fleet/fleet.yml", "fleet/sub/fleet.yaml",
		"fleet/engines/a.sops.yaml", "tenants/acme/environments/.sops.yaml",
		"tenants/acme/environments/a.sops.yml",
		"tenants//deployments/a.yaml", "tenants/acme//a.yaml", "tenants/acme/deployments/a.yaml ",
		"tenants/acme/deployments/a.yaml\n", "FLEET/fleet.yaml"} {
		key, ours, problem := Classify(path)
		if !ours || problem == nil || key.Kind != fleet.KindFile || key.Name != path ||
			problem.Key != key || problem.Fix == "" {
			t.Errorf("%q: %v, %v, %+v", path, key, ours, problem)
		}
		wantTenant := strings.HasPrefix(path, "tenants/acme/")
		if wantTenant != (key.Tenant == "acme") {
			t.Errorf("%q: the tenant is %q", path, key.Tenant)
		}
	}
}

// The control plane does not check for paths that some filesystem takes for one: at most one of
// them is a declaration.
func TestAtMostOneOfDuplicatePathsIsADeclaration(t *testing.T) {
	var paths []string
	for _, f := range exampleFiles(t) {
		paths = append(paths, f.Path)
	}
	eachCase(t, "bad", func(t *testing.T, _ string, a *txtar.Archive) {
		files, _ := caseFiles(t, a)
		for _, f := range files {
			paths = append(paths, f.Path)
		}
	})
	accepted := 0
	for _, path := range paths {
		if _, ours, problem := Classify(path); !ours || problem != nil {
			continue
		}
		accepted++
		for _, duplicate := range duplicatesOf(path) {
			if key, ours, problem := Classify(duplicate); ours && problem == nil {
				t.Errorf("%q and %+q are both accepted, the duplicate as %v", path, duplicate, key)
			}
		}
	}
	if accepted < 50 {
		t.Errorf("%d of %d paths are declarations", accepted, len(paths))
	}
}

// duplicatesOf varies each letter of a path in the ways that a filesystem may ignore: case, Unicode
// form, invisible characters.
func duplicatesOf(path string) []string {
	duplicates := []string{strings.ToUpper(path), path + " ", path + "."}
	for i, r := range path {
		before, after := path[:i], path[i+1:]
		for _, like := range []rune{unicode.ToUpper(r), unicode.ToTitle(r), unicode.SimpleFold(r),
			unicode.SimpleFold(unicode.SimpleFold(r))} {
			if like != r {
				duplicates = append(duplicates, before+string(like)+after)
			}
		}
		if unicode.IsLetter(r) {
			for _, like := range []string{
				"e\u0301", "\u00e9", string(r) + "\u200c", string(r - 'a' + '\uff41')} {
				duplicates = append(duplicates, before+like+after)
			}
		}
	}
	return duplicates
}

// Stores of names have limits that Git does not have, and JSON has no invalid text: neither may
// merge two files or split one.
func TestAFilesNameIsBoundedTextAndItsOwn(t *testing.T) {
	long := "tenants/acme/deployments/" + strings.Repeat("x", 5000)
	names := map[string]string{}
	for _, path := range []string{long, long + "y", long + "/a.yaml", "tenants/acme/\xff",
		"tenants/acme/\xfe", "tenants/acme/\xff\x00", "tenants/acme/\ufffd",
		"tenants/acme/" + strings.Repeat("\u00e9", 300),
		"tenants/acme/" + strings.Repeat("x", maxFileName-len("tenants/acme/"))} {
		key, _, problem := Classify(path)
		if duplicate, taken := names[key.Name]; taken {
			t.Errorf("%.40q and %.40q are both called %q", path, duplicate, key.Name)
		}
		names[key.Name] = path
		if len(key.Name) > maxFileName || !utf8.ValidString(key.Name) ||
			strings.Contains(key.Name, "\x00") || key.Tenant != "acme" || problem == nil ||
			problem.Path != path {
			t.Errorf("%.40q is called %q", path, key.Name)
		}
		if back := PathOf(key); back != "" && back != path {
			t.Errorf("%.40q is found at %q", path, back)
		}
	}
}

func TestPathsThatOneFilesystemMixesUpAreRefusedOnEvery(t *testing.T) {
	paths := []string{"tenants/acme/deployments/a.yaml", "tenants/Acme/deployments/b.yaml",
		"tenants/globex/deployments/x.yaml", "tenants/globex/deployments/X.yaml",
		"tenants/globex/deployments/y.yaml",
		"README.md", "readme.md", "tenants/initech/deployments/\u212aa.yaml",
		"tenants/initech/deployments/ka.yaml"}
	got := map[string]bool{}
	for _, p := range DuplicatePaths(paths) {
		got[p.Path] = true
		if p.Code != codePathCase || p.Fix == "" {
			t.Errorf("%+v", p)
		}
	}
	want := []string{paths[0], paths[1], paths[2], paths[3], paths[7], paths[8]}
	for _, p := range want {
		if !got[p] {
			t.Errorf("%s is not refused", p)
		}
	}
	if len(got) != len(want) {
		t.Errorf("refused: %v", got)
	}
	for _, nfc := range []string{
		"tenants/acme/deployments/caf\u00e9.yaml", "tenants/acme/deployments/cafe\u0301.yaml"} {
		if _, ours, problem := Classify(nfc); !ours || problem == nil {
			t.Errorf("%+q is accepted", nfc)
		}
	}
	if DuplicatePaths([]string{"tenants/acme/a", "tenants/acme/a", "tenants/acme/b"}) != nil {
		t.Error("a path is its own duplicate")
	}
}
