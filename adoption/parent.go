package adoption

import (
	"fmt"
	"path"
	"strings"
)

// Tree is what is at hand of the repository that the originals were read from.
type Tree struct {
	// Name is that of the folder that was read, if it is no repository's root: sources name it.
	Name        string
	Dirs, Files []string // slashes, relative to the repository's root, sorted
	Read        func(file string) ([]byte, error)
}

// chart reports whether a folder is at hand and holds a Helm chart.
func (im *importer) chart(folder string) bool {
	return im.filesAt[path.Join(path.Clean(folder), "Chart.yaml")]
}

// parents replaces the parents of an app of apps: Applications whose folder holds the manifests of
// Applications. The declarations of their children replace them.
func (im *importer) parents() {
	children := map[string]int{} // objects of Argo CD by folder
	for _, o := range im.Originals {
		if o.File != "" && (o.Kind == KindApplication || o.Kind == KindApplicationSet ||
			o.Kind == KindProject) {
			children[path.Dir(o.File)]++
		}
	}
	for _, r := range im.Refused {
		if r.Source != "" {
			children[path.Dir(r.Source)]++
		}
	}
	for _, a := range im.apps {
		if a.refused() {
			continue
		}
		if im.liveParent(a) {
			continue
		}
		source := object(a.normal.Spec, "source")
		if one := list(a.normal.Spec, "sources"); len(one) == 1 {
			source, _ = one[0].(map[string]any)
		}
		folder := path.Clean(text(source, "path"))
		if source == nil || text(source, "path") == "" || text(source, "chart") != "" {
			continue
		}
		recurse, _ := at(source, "directory", "recurse").(bool)
		for _, folder := range im.below(folder) {
			if n := im.childrenIn(folder, children, recurse); n > 0 {
				im.replaceParent(a, folder, n, recurse)
				break
			}
		}
	}
}

// below returns a source's folder as the files at hand may name it.
func (im *importer) below(folder string) []string {
	all := []string{folder}
	if im.Tree != nil && im.Tree.Name != "" {
		if inside, ok := strings.CutPrefix(folder, im.Tree.Name+"/"); ok {
			all = append(all, inside)
		}
	}
	return all
}

// liveParent replaces a live Application whose resources are Applications, and reports whether it
// did.
func (im *importer) liveParent(a *app) bool {
	children := 0
	var others []Difference
	for _, r := range list(a.Object, "status", "resources") {
		m, _ := r.(map[string]any)
		kind := text(m, "kind")
		if text(m, "group") == "argoproj.io" && (kind == KindApplication ||
			kind == KindApplicationSet || kind == KindProject) {
			children++
			continue
		}
		others = append(others, Difference{Path: kind + "/" + text(m, "namespace") + "/" +
			text(m, "name"), From: "resource",
			Reason: "it is no Application: deploy it from a folder of its own"})
	}
	if children == 0 {
		return false
	}
	im.replaceParent(a, "it", children, false)
	a.result.Differences = append(a.result.Differences, others...)
	return true
}

// childrenIn counts the objects of Argo CD that a folder renders.
func (im *importer) childrenIn(folder string, children map[string]int, recurse bool) int {
	n := children[folder] + children[path.Join(folder, "templates")]
	if recurse || n == 0 && im.filesAt[path.Join(folder, "kustomization.yaml")] {
		for dir, more := range children {
			if folder == "." || strings.HasPrefix(dir, folder+"/") {
				n += more
			}
		}
	}
	return n
}

// replaceParent reports an app of apps. Other objects of its folder lose their deployment.
func (im *importer) replaceParent(a *app, folder string, children int, recurse bool) {
	a.parent = true
	a.result.Status = Changed
	a.result.Reason = fmt.Sprintf("app of apps: the declarations of the %s in %s replace it",
		plural(children, "object"), folder)
	a.result.Differences = []Difference{{Path: "spec", From: map[string]any{
		"source": a.normal.Spec["source"]},
		Reason: "declarations of their own replace an app of apps"}}
	a.result.reasons = []string{"app of apps: declarations replace it"}
	mine := map[string]bool{}
	for _, o := range im.Originals {
		mine[o.File] = true
	}
	for _, r := range im.Refused {
		mine[r.Source] = true
	}
	for _, f := range im.files() {
		dir := path.Dir(f)
		inside := dir == folder || recurse && strings.HasPrefix(dir, folder+"/")
		if !inside || mine[f] || !manifest(f) || strings.HasPrefix(path.Base(f), "kustomization.") {
			continue
		}
		if im.Tree != nil && im.Tree.Read != nil {
			if b, err := im.Tree.Read(f); err != nil || !strings.Contains(string(b), "kind:") {
				continue
			}
		}
		a.result.Differences = append(a.result.Differences, Difference{Path: f, From: "manifest",
			Reason: "it is no Application: deploy it from a folder of its own"})
	}
}

func manifest(file string) bool {
	switch path.Ext(file) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

func (im *importer) files() []string {
	if im.Tree == nil {
		return nil
	}
	return im.Tree.Files
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
