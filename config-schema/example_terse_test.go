package configschema

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet/catalog"
)

// The README counts the files and lines of the tenant, and the Applications that they give.
func TestFiveServicesInThreeEnvironmentsAreFewLines(t *testing.T) {
	files := repoFiles(t, "../examples/five-services")
	for _, p := range Check(files) {
		t.Error(p)
	}
	s := catalog.New().Prepare(Inputs(files))
	count, lines, applications := 0, 0, 0
	for _, f := range files {
		if strings.HasPrefix(f.Path, "tenants/") {
			count, lines = count+1, lines+bytes.Count(f.Bytes, []byte("\n"))
		}
	}
	for _, id := range s.DeploymentsOf("shop") {
		for _, env := range s.Targets(id) {
			target, unresolved := s.Deployment(id).TargetIn(s.Environment(env), s.Defaults("shop"))
			if path := target.Sources[0].Path; len(unresolved) > 0 ||
				path != "deploy/"+string(env.Name) || !target.Sync.CreateNamespace ||
				(target.Sources[0].TargetRevision == "main") == (env.Name == "prod") {
				t.Errorf("%s in %s: %+v, %v", id, env, target, unresolved)
			}
			applications++
		}
	}
	readme, err := os.ReadFile("../examples/five-services/README.md")
	if err != nil {
		t.Fatal(err)
	}
	claim := fmt.Sprintf("%d Applications from **%d files with %d lines**", applications, count,
		lines)
	text := strings.ReplaceAll(string(readme), "\n", " ")
	if applications != 15 || !strings.Contains(text, claim) {
		t.Errorf("the README does not have %q", claim)
	}
}
