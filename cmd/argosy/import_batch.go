package main

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"argosy.dev/argosy/adoption"
	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
)

// nextBatch leaves out the deployments that adopt and that dir lacks, but for the first ones in the
// order of their paths, with at most n Applications together; n = 0: all. It divides no deployment
// and no set. It leaves out the deployments whose Applications a set in dir adopts, and keeps the
// selectors of deployments in dir: a later run finds the Applications without their ApplicationSet.
func nextBatch(o *adoption.Outcome, dir string, n int) ([]configschema.File, *adoption.Progress) {
	adopted := map[string]bool{}
	for _, r := range o.Report.Objects {
		if r.Kind == adoption.KindApplication && r.Adopted {
			adopted[o.Object(r.Namespace, r.Name)] = true
		}
	}
	files := slices.Clone(o.Files)
	slices.SortFunc(files, func(a, b configschema.File) int {
		return strings.Compare(a.Path, b.Path)
	})
	for i, f := range files {
		earlier, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(f.Path)))
		if err == nil && adoption.SameButSelector(earlier, f.Bytes) {
			files[i].Bytes = earlier
		}
	}
	var p adoption.Progress
	sets := setsIn(dir)
	room := n
	files = slices.DeleteFunc(files, func(f configschema.File) bool {
		all, waiting := adoption.Adopted(f), 0
		for _, a := range all {
			if adopted[a.Application] {
				p.Adopted++
			} else {
				waiting++
			}
		}
		_, err := os.Stat(filepath.Join(dir, filepath.FromSlash(f.Path)))
		declared := err == nil
		if !declared && len(all) > 0 && sets.adopt(f.Path, all) {
			p.Declared += waiting
			return true
		}
		// a deployment larger than a batch is one
		if declared || waiting == 0 || n == 0 || waiting <= room || room == n {
			p.Declared += waiting
			if !declared {
				room -= waiting
			}
			return false
		}
		room = 0 // keep the order
		p.Later += waiting
		return true
	})
	return files, &p
}

// adoptingSets are the sets of a config repo, by the folder of their tenant.
type adoptingSets map[string][]func(fleet.Adoption) bool

func setsIn(dir string) adoptingSets {
	sets := adoptingSets{}
	repo := os.DirFS(dir)
	files, _ := fs.Glob(repo, "tenants/*/sets/*.yaml") // the pattern is valid
	for _, file := range files {
		text, err := fs.ReadFile(repo, file)
		if err != nil {
			continue // a folder, or unreadable: the import fails to write beside it
		}
		tenant := path.Base(path.Dir(path.Dir(file)))
		sets[tenant] = append(sets[tenant], adoption.PatternsOf(configschema.File{Bytes: text}))
	}
	return sets
}

// adopt reports whether sets adopt all of a deployment's Applications.
func (s adoptingSets) adopt(deployment string, all []fleet.Adoption) bool {
	tenant := path.Base(path.Dir(path.Dir(deployment)))
	return !slices.ContainsFunc(all, func(a fleet.Adoption) bool {
		return !slices.ContainsFunc(s[tenant], func(adopts func(fleet.Adoption) bool) bool {
			return adopts(a)
		})
	})
}
