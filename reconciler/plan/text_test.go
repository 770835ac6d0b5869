package plan

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func TestMarkdownFitsIntoAComment(t *testing.T) {
	h := newHouse(t)
	h.apply(crowd(0))
	files := crowd(90)
	for i := range 400 {
		name := fmt.Sprintf("x-%03d", i)
		files["tenants/acme/deployments/"+name+".yaml"] = deploymentFile(
			name, "acme/"+strings.Repeat("y", 100)+name, "environments: [prod, staging]", "")
	}
	h.apply(files)
	after := files.edit("fleet/fleet.yaml", "gitHosts:",
		"defaults: {sync: {mode: manual, prune: false, selfHeal: false, createNamespace: "+
			"true}}\n  gitHosts:")
	p := h.compute(after)
	var b bytes.Buffer
	if err := p.WriteMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	if b.Len() > 65_000 || b.Len() < 50_000 ||
		!strings.Contains(b.String(), "lines more. `argosy plan` shows all of it") ||
		strings.Count(b.String(), "```")%2 != 0 {
		t.Errorf("%d bytes: …%s", b.Len(), b.String()[max(0, b.Len()-200):])
	}
}

func TestTextKeepsToEightyColumns(t *testing.T) {
	h := newHouse(t)
	h.apply(crowd(30))
	p := h.compute(
		h.files.drop("acme", 0, 25).edit("tenants/globex/deployments/d-01.yaml", "path: deploy",
			"path: some/longer/path/to/the/manifests"))
	var b bytes.Buffer
	if err := p.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(b.String()) {
		if len([]rune(strings.TrimSuffix(l, "\n"))) > 80 && len(strings.Fields(l)) > 1 {
			t.Errorf("%q", l)
		}
	}
	for _, want := range []string{"! Application d-00@prod", "argosy release " + string(p.Head),
		`spec.Source.path: "deploy" → "some/longer/path/to/the/manifests"`, "other tenants: none"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
}
