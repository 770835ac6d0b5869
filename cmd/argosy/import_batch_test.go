package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"argosy.dev/argosy/adoption"
	configschema "argosy.dev/argosy/config-schema"
)

// adoptingFile is a deployment's file that adopts Applications, each in an environment of its own.
func adoptingFile(name string, applications ...string) configschema.File {
	var environments, entries []string
	for i, a := range applications {
		environments = append(environments, fmt.Sprintf("e%d", i))
		entries = append(entries, fmt.Sprintf("{environment: e%d, application: %s}", i, a))
	}
	return configschema.File{Path: "tenants/acme/deployments/" + name + ".yaml",
		Bytes: []byte(fmt.Sprintf("apiVersion: argosy.dev/v1alpha1\nkind: GitOpsDeployment\n"+
			"metadata: {name: %s}\nspec:\n  source: {repoURL: \"https://git.example.com/a/b\", "+
			"path: x, targetRevision: main}\n  destination: {environments: [%s], namespace: app}\n"+
			"  adopt: [%s]\n", name, strings.Join(environments, ", "),
			strings.Join(entries, ", ")))}
}

func TestBatchesAddDeploymentsInTheOrderOfTheirPaths(t *testing.T) {
	dir := t.TempDir()
	o := &adoption.Outcome{Files: []configschema.File{
		{Path: "fleet/fleet.yaml", Bytes: []byte("kind: Fleet\n")},
		adoptingFile("c", "c-eu"), adoptingFile("a", "a-eu"),
		adoptingFile("b", "b-eu", "b-us", "b-ap"), adoptingFile("d", "d-eu"),
	}}
	step := func(n int, want string) {
		t.Helper()
		files, p := nextBatch(o, dir, n)
		var names []string
		for _, f := range files {
			names = append(names, strings.TrimSuffix(filepath.Base(f.Path), ".yaml"))
			file := filepath.Join(dir, f.Path)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, f.Bytes, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := fmt.Sprintf("%s: %d adopted, %d declared, %d later", strings.Join(names, " "),
			p.Adopted, p.Declared, p.Later); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	step(2, "fleet a: 0 adopted, 1 declared, 5 later")
	step(2, "fleet a b: 0 adopted, 4 declared, 2 later") // larger than a batch
	o.Report.Objects = []adoption.Result{{Kind: adoption.KindApplication, Name: "a-eu",
		Adopted: true}, {Kind: adoption.KindApplication, Name: "b-us", Adopted: true}}
	step(1, "fleet a b c: 2 adopted, 3 declared, 1 later")
	step(0, "fleet a b c d: 2 adopted, 4 declared, 0 later")
}

// A run after the release of an ApplicationSet finds its Applications alone.
func TestABatchLeavesOutWhatASetAdopts(t *testing.T) {
	dir := t.TempDir()
	set := filepath.Join(dir, "tenants", "acme", "sets", "shop.yaml")
	if err := os.MkdirAll(filepath.Dir(set), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(set, []byte("apiVersion: argosy.dev/v1alpha1\n"+
		"kind: GitOpsDeploymentSet\nmetadata: {name: shop}\nspec:\n  directories: "+
		"{repoURL: \"https://git.example.com/a/b\", targetRevision: main, paths: [x/*]}\n"+
		"  template:\n    metadata: {name: \"${item.name}\"}\n    spec:\n      adopt: "+
		"[{environment: e0, application: \"shop.${item.name}-eu\", orCreate: true}]\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	other := adoptingFile("other", "shop.cart-eu")
	other.Path = strings.Replace(other.Path, "acme", "globex", 1)
	o := &adoption.Outcome{Files: []configschema.File{
		adoptingFile("cart", "shop.cart-eu"), adoptingFile("web", "shop.web-eu"),
		adoptingFile("dot", "shop-web-eu"), adoptingFile("two", "shop.two-eu", "shop.two-eu"),
		other}, Report: adoption.Report{Objects: []adoption.Result{
		{Kind: adoption.KindApplication, Name: "shop.web-eu", Adopted: true}}}}
	files, p := nextBatch(o, dir, 0)
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f.Path), ".yaml"))
	}
	if got := fmt.Sprintf("%v %+v", names, *p); got !=
		"[dot two other] {Adopted:1 Declared:5 Later:0}" {
		t.Error(got)
	}
}

// The selector that an ApplicationSet had stays when a later run finds its Applications alone. A
// change of anything else is written.
func TestABatchKeepsTheSelectorOfADeployment(t *testing.T) {
	dir := t.TempDir()
	later := adoptingFile("web", "web-eu", "web-us")
	selecting := strings.Replace(string(later.Bytes), "environments: [e0, e1]",
		"environmentSelector: {matchLabels: {tier: prod}}", 1)
	file := filepath.Join(dir, later.Path)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	for written, kept := range map[string]bool{
		selecting: true,
		strings.Replace(selecting, "main", "v1", 1):       false,
		strings.Replace(selecting, "web-us", "web-ap", 1): false,
		"kind: [": false,
	} {
		if err := os.WriteFile(file, []byte(written), 0o644); err != nil {
			t.Fatal(err)
		}
		files, p := nextBatch(&adoption.Outcome{Files: []configschema.File{later}}, dir, 0)
		want := string(later.Bytes)
		if kept {
			want = written
		}
		if len(files) != 1 || string(files[0].Bytes) != want || p.Declared != 2 {
			t.Errorf("%s\nbecomes\n%v\n%+v", written, files, *p)
		}
	}
}

// A file that a person edited stays after any number of imports, also if one of them took over the
// edit.
func TestALaterImportKeepsAnEditThatAnEarlierOneTookOver(t *testing.T) {
	dir := t.TempDir()
	first := adoptingFile("web", "web-eu", "web-us")
	write := func(f configschema.File) imported {
		t.Helper()
		files, _ := nextBatch(&adoption.Outcome{Files: []configschema.File{f}}, dir, 0)
		done, err := writeImport(dir, files)
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	write(first)
	edited := "# ours\n" + strings.Replace(string(first.Bytes), "environments: [e0, e1]",
		"environmentSelector: {matchLabels: {tier: prod}}", 1)
	file := filepath.Join(dir, first.Path)
	if err := os.WriteFile(file, []byte(edited), 0o644); err != nil {
		t.Fatal(err)
	}
	write(first)
	other := first
	other.Bytes = []byte(strings.Replace(string(first.Bytes), "main", "v1", 1))
	done := write(other)
	if have, err := os.ReadFile(file); err != nil || string(have) != edited ||
		len(done.kept) != 1 {
		t.Errorf("%v, kept %v:\n%s", err, done.kept, have)
	}
}
