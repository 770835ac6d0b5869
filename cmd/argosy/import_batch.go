package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"argosy.dev/argosy/adoption"
	configschema "argosy.dev/argosy/config-schema"
)

// nextBatch leaves out the deployments that adopt and that dir lacks, but for the first ones in the
// order of their paths, with at most n Applications together; n = 0: all. It divides no deployment.
func nextBatch(o *adoption.Outcome, dir string, n int) ([]configschema.File, *adoption.Progress) {
	adopted := map[string]bool{}
	for _, r := range o.Report.Objects {
		if r.Kind == adoption.KindApplication && r.Adopted {
			adopted[r.Name] = true
		}
	}
	files := slices.Clone(o.Files)
	slices.SortFunc(files, func(a, b configschema.File) int {
		return strings.Compare(a.Path, b.Path)
	})
	var p adoption.Progress
	room := n
	files = slices.DeleteFunc(files, func(f configschema.File) bool {
		waiting := 0
		for _, application := range adopts(f) {
			if adopted[application] {
				p.Adopted++
			} else {
				waiting++
			}
		}
		_, err := os.Stat(filepath.Join(dir, filepath.FromSlash(f.Path)))
		// a deployment larger than a batch is one
		if declared := err == nil; declared || waiting == 0 || n == 0 || waiting <= room ||
			room == n {
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

// adopts returns the names of the Applications that a file's deployment adopts.
func adopts(f configschema.File) (names []string) {
	d := configschema.Decode(f).Declaration
	if d == nil || d.Deployment == nil {
		return nil
	}
	for _, a := range d.Deployment.Adopt {
		names = append(names, a.Application)
	}
	return names
}
