package configschema

import (
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

const deploymentFile = `# shop: ask the shop team
apiVersion: argosy.dev/v1alpha1
kind: GitOpsDeployment
metadata: {name: shop}
spec:
  source:
    repoURL: https://git.example.com/acme/shop.git # the monorepo
    path: deploy
    targetRevision: v2.0.0   # released on Monday

  destination:
    environments: [staging, prod]
    namespace: shop
# the end
`

const pinned = "4f1c2d9e4f1c2d9e4f1c2d9e4f1c2d9e4f1c2d9e"

func TestTheRevisionOfAnEnvironmentIsWrittenIntoItsFile(t *testing.T) {
	only := strings.Replace(deploymentFile, "[staging, prod]", "[prod]", 1)
	with := func(overrides string) string {
		return strings.Replace(deploymentFile, "# the end", overrides+"# the end", 1)
	}
	block := "  overrides:\n    # for tests\n    - environment: staging # often\n      namespace: shop-s\n"
	several := strings.NewReplacer("  source:\n    repoURL", "  sources:\n    - repoURL",
		"    path: deploy", "      path: deploy", "    targetRevision: v2.0.0   # released on Monday",
		"      targetRevision: 'v2.0.0'   # released on Monday\n    - {ref: values, "+
			"repoURL: https://git.example.com/acme/v.git, targetRevision: main}").Replace(only)
	for name, c := range map[string]struct{ text, revision, want string }{
		"of the only environment": {only, pinned, strings.Replace(only, "v2.0.0", pinned, 1)},
		"in an override that is added": {deploymentFile, pinned,
			with("  overrides:\n    - environment: prod\n      source:\n        targetRevision: " +
				pinned + "\n")},
		"below the overrides of others": {with(block), pinned, with(block +
			"    - environment: prod\n      source:\n        targetRevision: " + pinned + "\n")},
		"among overrides on one line": {with("  overrides: [{environment: staging, namespace: s}]\n"),
			pinned, with("  overrides: [{environment: prod, source: {targetRevision: " + pinned +
				"}}, {environment: staging, namespace: s}]\n")},
		"in its override": {with(strings.Replace(block, "staging", "prod", 1)), pinned,
			with(strings.Replace(strings.Replace(block, "staging", "prod", 1), "often\n",
				"often\n      source:\n        targetRevision: "+pinned+"\n", 1))},
		"in its override on one line": {with("  overrides:\n    - {environment: prod, namespace: s}\n"),
			pinned, with("  overrides:\n    - {environment: prod, source: {targetRevision: " +
				pinned + "}, namespace: s}\n")},
		"in the source of its override": {
			with("  overrides:\n    - environment: prod\n      source:\n        path: a\n"), pinned,
			with("  overrides:\n    - environment: prod\n      source:\n        targetRevision: " +
				pinned + "\n        path: a\n")},
		"in the source of its override on one line": {
			with("  overrides:\n    - environment: prod\n      source: {path: a}\n"), pinned,
			with("  overrides:\n    - environment: prod\n      source: {targetRevision: " +
				pinned + ", path: a}\n")},
		"in place of the one in its override": {
			with("  overrides:\n    - environment: prod\n      source: {targetRevision: \"main\"}\n"),
			pinned, with("  overrides:\n    - environment: prod\n      source: {targetRevision: " +
				pinned + "}\n")},
		"a number": {only, "12345678", strings.Replace(only, "v2.0.0",
			`"12345678"`, 1)},
		"what is there already": {deploymentFile, "v2.0.0", deploymentFile},
		"what is there already in quotes": {
			with("  overrides: [{environment: prod, source: {targetRevision: \"main\"}}]\n"),
			"main", with("  overrides: [{environment: prod, source: {targetRevision: \"main\"}}]\n")},
		"with carriage returns": {strings.ReplaceAll(deploymentFile, "\n", "\r\n"), pinned,
			strings.ReplaceAll(with("  overrides:\n    - environment: prod\n      source:\n"+
				"        targetRevision: "+pinned+"\n"), "\n", "\r\n")},
		"of several sources": {several, "v1.9.0," + pinned, strings.NewReplacer("'v2.0.0'",
			"v1.9.0", "targetRevision: main", "targetRevision: "+pinned).Replace(several)},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := SetRevision(deploymentOf(c.text), "prod", c.revision)
			if err != nil || string(got) != c.want {
				t.Errorf("%v\n%s\nwant\n%s", err, got, c.want)
			}
		})
	}
}

func deploymentOf(text string) File {
	return File{Path: "tenants/acme/deployments/shop.yaml", Bytes: []byte(text)}
}

func TestAFileThatCannotBeChangedKeepsItsRevision(t *testing.T) {
	for name, text := range map[string]string{
		"no YAML": "\t[",
		"a spec on one line": "apiVersion: argosy.dev/v1alpha1\nkind: GitOpsDeployment\nmetadata: {name: shop}\n" +
			"spec: {source: {repoURL: \"https://git.example.com/a/b.git\", path: a, targetRevision: main}, " +
			"destination: {environments: [prod, staging], namespace: a}}\n",
		"an error": strings.Replace(deploymentFile, "path", "pth", 1),
		"several sources": strings.Replace(strings.Replace(deploymentFile, "source:\n    repo",
			"sources:\n  - repo", 1), "v2.0.0", "v2.0.0\n  - {ref: v, repoURL: "+
			"https://git.example.com/a/b.git, targetRevision: main}", 1),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := SetRevision(deploymentOf(text), "prod", pinned); err == nil {
				t.Errorf("%s", got)
			}
		})
	}
}

// SetRevision returns a file that decodes, and that has each line of the given one but one.
func FuzzSetRevision(f *testing.F) {
	seeds(f, func(_ string, text []byte) { f.Add(text, "prod", pinned) })
	f.Add([]byte(deploymentFile), "prod", "1e3")
	f.Fuzz(func(t *testing.T, text []byte, env, revision string) {
		if revision == "" || fleet.CheckRevision(revision) != nil {
			return
		}
		out, err := SetRevision(deploymentOf(string(text)), fleet.EnvironmentName(env), revision)
		if err != nil {
			return
		}
		if doc := Decode(deploymentOf(string(out))); doc.Declaration == nil {
			t.Errorf("%+v\n%s", doc.Problems, out)
		}
		missing, lines := 0, strings.Split(string(out), "\n")
		for _, line := range strings.Split(string(text), "\n") {
			if !slices.Contains(lines, line) {
				missing++
			}
		}
		if missing > 1 && !strings.Contains(string(text), "sources") {
			t.Errorf("%d lines are gone:\n%s", missing, out)
		}
	})
}
