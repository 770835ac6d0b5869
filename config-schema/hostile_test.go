package configschema

import (
	"fmt"
	"math"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

const deploymentPath = "tenants/acme/deployments/checkout.yaml"

// laughs is the billion laughs: nine lists of nine aliases.
func laughs() string {
	var b strings.Builder
	b.WriteString("a: &a [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n")
	for c := 'b'; c <= 'i'; c++ {
		fmt.Fprintf(&b, "%c: &%c [%s]\n", c, c, strings.Repeat(fmt.Sprintf("*%c, ", c-1), 9))
	}
	return b.String()
}

func deepMap(n int) string {
	var b strings.Builder
	for i := range min(n, 700) { // 256 KiB hold no more levels if each is indented by one
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func TestHostileFilesCostLittleAndAreRefused(t *testing.T) {
	valid := string(New(fleet.KindGitOpsDeployment, "acme", "checkout"))
	for name, c := range map[string]struct{ code, text string }{
		"billion laughs": {codeYAMLFeature, laughs()},
		"10 001 maps in flow style": {
			codeTooDeep, strings.Repeat("{a: ", 10001) + strings.Repeat("}", 10001)},
		"700 maps in block style":  {codeTooDeep, deepMap(10001)},
		"open brackets to the cap": {codeTooDeep, strings.Repeat("[", maxFile)},
		"1 MiB of open brackets":   {codeFileTooLarge, strings.Repeat("[", 1<<20)},
		"dashes to the cap":        {codeTooDeep, strings.Repeat("- ", maxFile/2)},
		"1 MiB of dashes":          {codeFileTooLarge, strings.Repeat("- ", 1<<19)},
		"questions to the cap":     {codeTooDeep, strings.Repeat("? ", maxFile/2)},
		"5 MiB scalar": {
			codeFileTooLarge, valid + "# " + strings.Repeat("x", 5<<20)},
		"a scalar to the cap": {
			codeOutOfRange,
			strings.Replace(valid, "path: deploy",
				"path: "+strings.Repeat("x", maxFile-2*len(valid)), 1)},
		"a list to the cap": {
			codeOutOfRange,
			strings.Replace(valid, "[staging, prod-eu]", "["+strings.Repeat("a,", 100_000)+"a]",
				1)},
		"10 000 unknown keys": {codeTooManyProblems, valid + manyKeys(10_000)},
		"10 000 equal keys": {
			codeTooManyProblems, valid + strings.Repeat("k: 1\n", 10_000)},
		"10 000 lines of a comment": {"", valid + strings.Repeat("# c\n", 10_000)},
		"100 000 lone tags":         {codeTooManyProblems, strings.Repeat("- ! a\n", 40_000)},
		"100 000 quotes":            {codeWrongType, "[" + strings.Repeat("\"\",", 80_000) + "]"},
		"10 000 secrets": {
			codeTooManyProblems, strings.Repeat("password: hunter22\n", 10_000)},
		"10 000 keys in base64": {
			codeTooManyProblems, strings.Repeat("LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQo= \n",
				4_000)},
		"one endless run of base64": {
			codePlaintextSecret, "# password: hunter22\n# " +
				strings.Repeat("LS0tLS1CRUdJTi", 18_000)},
		"secrets of one endless line": {
			codeTooManyProblems, strings.Repeat("password=hunter22,", 14_000)},
		"tabs": {codeSyntax, strings.Repeat("\t", maxFile)},
		"escapes": {
			codeWrongType, `"` + strings.Repeat(`\u0061`, 40_000) + `"`},
		"anchors":                   {codeYAMLFeature, strings.Repeat("- &a b\n", 30_000)},
		"equal anchors and aliases": {codeYAMLFeature, strings.Repeat("- &a b\n- *a\n", 20_000)},
		"label of 200 KiB": {
			codeSyntax,
			strings.Replace(valid, "  # labels: {team: payments}",
				"  labels: {"+strings.Repeat("x", 200_000)+": a}", 1)},
		"a number of 200 000 digits": {
			codeOutOfRange,
			strings.Replace(valid, "path: deploy", "path: "+strings.Repeat("9", 200_000), 1)},
	} {
		t.Run(name, func(t *testing.T) {
			var doc Document
			spent := allocated(
				func() { doc = Decode(File{Path: deploymentPath, Bytes: []byte(c.text)}) })
			if spent > 32<<20 {
				t.Errorf("%d KiB were allocated", spent>>10)
			}
			if len(doc.Problems) > maxProblems+1 {
				t.Errorf("%d problems are reported", len(doc.Problems))
			}
			size, found := 0, c.code == "" && len(doc.Problems) == 0
			for _, p := range doc.Problems {
				size += len(p.Message) + len(p.Fix) + len(p.Field)
				found = found || p.Code == c.code
			}
			if size > 32<<10 {
				t.Errorf("the problems hold %d bytes of text", size)
			}
			if !found {
				t.Errorf("want code %q, got %.600v", c.code, doc.Problems)
			}
		})
	}
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "key%d: 1\n", i)
	}
	return b.String()
}

// allocated returns the bytes that f allocates. Other goroutines allocate too: measure again before
// failing.
func allocated(f func()) uint64 {
	least := uint64(math.MaxUint64)
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		if least = min(least, after.TotalAlloc-before.TotalAlloc); least < 24<<20 {
			break
		}
	}
	return least
}

func TestAPanicOfTheDecoderAffectsOneFile(t *testing.T) {
	whole := kindSyncRun.document.checks
	defer func() { kindSyncRun.document.checks = whole }()
	kindSyncRun.document.checks = []check{func(d *decoder, _ reflect.Value, _ node) {
		panic("a fault with hunter22 in it")
	}}
	sync := File{
		Path: "tenants/acme/syncs/rollback.yaml", Bytes: New(fleet.KindSyncRun, "acme", "rollback")}
	other := File{Path: deploymentPath, Bytes: New(fleet.KindGitOpsDeployment, "acme", "checkout")}
	docs := DecodeAll([]File{sync, other, sync, other})
	for i, doc := range docs {
		broken := i%2 == 0
		if broken != (doc.Declaration == nil) {
			t.Errorf("document %d: declaration %v", i, doc.Declaration)
		}
		if broken && (len(doc.Problems) != 1 || doc.Problems[0].Code != codeInternal ||
			strings.Contains(doc.Problems[0].String(), "hunter22")) {
			t.Errorf("document %d: %v", i, doc.Problems)
		}
	}
}

func TestAllProblemsOfAFileAreReportedInOrder(t *testing.T) {
	doc := Decode(
		File{
			Path: deploymentPath,
			Bytes: []byte(
				"kind: GitOpsDeployment\nmetadata: {name: A}\nspec:\n  destination: {namespace: " +
					"'*'}\n  source: {path: ../x}\n")})
	last := 0
	for _, p := range doc.Problems {
		if p.Line < last {
			t.Errorf("%s comes after line %d", p, last)
		}
		last = p.Line
	}
	if len(doc.Problems) != 7 {
		t.Errorf("%d problems are reported: %v", len(doc.Problems), doc.Problems)
	}
}

func TestMessagesNeverRepeatASecret(t *testing.T) {
	valid := string(New(fleet.KindGitOpsDeployment, "acme", "checkout"))
	for name, canary := range map[string]string{
		"github": "ghp_Canary6789012345678901234567890123456",
		"gitlab": "glpat-Canary7890123456789", "aws": "AKIACANARY0123456789",
		"jwt":   "eyJhbGciOiJIUzI1NiJ9.eyJjYW5hcnkiOiJjYW5hcnkifQ.Y2FuYXJ5",
		"url":   "https://canary:Canary12345@git.example.com/x",
		"slack": "xoxb-Canary-0123456789", "google": "AIzaCanary6789012345678901234567890123",
		"stripe": "sk_live_Canary0123456789",
		"pem":    "-----BEGIN EC PRIVATE KEY----- Canary",
		"age":    "AGE-SECRET-KEY-1CANARYCANARYCANARYCANARYCANARY",
	} {
		for place, text := range map[string]string{
			"value":   strings.Replace(valid, "path: deploy", "path: '"+canary+"'", 1),
			"key":     strings.Replace(valid, "path: deploy", "'"+canary+"': x", 1),
			"comment": valid + "# " + canary + "\n",
			"kind": strings.Replace(valid, "kind: GitOpsDeployment", "kind: '"+canary+"'",
				1),
			"broken file": "a: [" + canary, "only text": canary,
			"name":   strings.Replace(valid, "name: checkout", "name: '"+canary+"'", 1),
			"anchor": "a: &" + canary + " b",
			"label": strings.Replace(valid, "  # labels: {team: payments}", "  labels: {'"+canary+
				"': a}", 1),
			"values": strings.Replace(valid, "path: deploy",
				"path: deploy\n    helm:\n      values: |\n        x: '"+canary+"'", 1),
		} {
			doc := Decode(File{Path: deploymentPath, Bytes: []byte(text)})
			reported := false
			for _, p := range doc.Problems {
				reported = reported || p.Code == codePlaintextSecret
				if text := fmt.Sprintf("%+v", p); strings.Contains(strings.ToLower(text),
					"canary") {
					t.Errorf("%s as %s is repeated: %s", name, place, text)
				}
			}
			if !reported || doc.Declaration != nil {
				t.Errorf("%s as %s is not reported: %v", name, place, doc.Problems)
			}
		}
	}
}

func TestWhatOnlyNamesASecretPasses(t *testing.T) {
	valid := string(New(fleet.KindGitOpsDeployment, "acme", "checkout"))
	for _, line := range []string{
		"existingSecret: db-credentials", "secretName: tls", "automountServiceAccountToken: true",
		"password: \"\"", "password: null", "adminPassword: ${DB_PASSWORD}",
		"token: {{ .token }}", "passwordSecretRef: {name: db}",
		"tokenEndpoint: https://idp.example.com/token", "apiKey: vault:secret/data/app#key",
		"# password: ask the platform team",
		"keyboard: querty", "passwordFile: /run/secrets/db", "monkey: banana",
		"token: ENC[AES256_GCM,data:x]",
	} {
		text := strings.Replace(valid, "path: deploy",
			"path: deploy\n    helm:\n      values: |\n        a: 1\n        # "+line, 1)
		for _, p := range Decode(File{Path: deploymentPath, Bytes: []byte(text)}).Problems {
			t.Errorf("%s: %s", line, p)
		}
	}
}

// The library of sops 3.13.3 wrote the file, for an age key that no longer exists.
func TestAnEncryptedFilePasses(t *testing.T) {
	text, err := os.ReadFile("testdata/sealed/git.sops.yaml")
	if err != nil {
		t.Fatal(err)
	}
	doc := Decode(File{Path: "tenants/acme/credentials/git.sops.yaml", Blob: "b1", Bytes: text})
	for _, p := range doc.Problems {
		t.Error(p)
	}
	want := fleet.Key{Kind: fleet.KindSealedSecret, Tenant: "acme", Name: "credentials/git"}
	if doc.Declaration == nil || doc.Key != want ||
		doc.Declaration.Sealed.Folder != "credentials" || doc.Declaration.Blob != "b1" {
		t.Errorf("got %+v with key %v", doc.Declaration, doc.Key)
	}
}

func TestAnEncryptedFileIsNoDeclaration(t *testing.T) {
	text, err := os.ReadFile("testdata/sealed/git.sops.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"tenants/acme/credentials/git.yaml", "fleet/engines/git.sops.yaml",
		"tenants/acme/deployments/git.sops.yaml", "tenants/acme/credentials/git.sops.yml"} {
		if doc := Decode(File{Path: path, Bytes: text}); doc.Declaration != nil ||
			len(doc.Problems) == 0 {
			t.Errorf("%s: %+v", path, doc)
		}
	}
}
