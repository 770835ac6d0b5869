package reconciler

import (
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
)

// folders are those of the config repo that cannot be read, by path ("tenants/acme/"), and the id
// that each had when the catalog's quarantine was made. An empty id makes the next pass read the
// folder again, as after a start: the settings may allow more now.
type folders map[string]string

// unreadable reads the folders from what is quarantined.
func unreadable(view *catalog.View) folders {
	all := folders{}
	for _, q := range view.Quarantines() {
		if isFolder(q.Key) {
			all[q.Path] = ""
		}
	}
	return all
}

// isFolder reports whether a key stands for a folder as a whole. No file's path ends in a slash but
// that of a directory which lies too deep, and those have a kind's folder in between.
func isFolder(key fleet.Key) bool {
	return key.Kind == fleet.KindFile && strings.HasSuffix(key.Name, "/") &&
		strings.Count(key.Name, "/") <= 2
}

func (f folders) recheck() bool {
	for _, id := range f {
		if id == "" {
			return true
		}
	}
	return false
}

// learn takes over what a plan was made from.
func (f folders) learn(inputs []catalog.Input) {
	for _, in := range inputs {
		switch {
		case !isFolder(in.Key):
		case in.Removed:
			delete(f, in.Path)
		default:
			f[in.Path] = in.Blob
		}
	}
}

// collect decodes the files that read visits. What is in force and was not visited is removed: of a
// folder that is visited as a whole, and of all when everything is. Nothing is concluded of a
// folder that cannot be read.
func collect(d Decoder, view *catalog.View, everything bool,
	read func(visit func(File) error) error) ([]catalog.Input, error) {
	gather := newGatherer(d)
	var whole, kept []string
	err := read(func(f File) error {
		switch {
		case f.Whole:
			whole = append(whole, f.Path)
			f = File{Path: f.Path, Removed: true} // the quarantine ends
		case f.Unreadable != "":
			kept = append(kept, f.Path)
		}
		return gather.take(f)
	})
	inputs := gather.wait()
	if err != nil || !everything && len(whole) == 0 {
		return inputs, err
	}
	there := map[fleet.Key]bool{}
	for _, in := range inputs {
		there[in.Key] = true
	}
	within := func(path string) func(string) bool {
		return func(folder string) bool { return strings.HasPrefix(path, folder) }
	}
	remove := func(key fleet.Key, path string) {
		if !there[key] && !slices.ContainsFunc(kept, within(path)) &&
			(everything || slices.ContainsFunc(whole, within(path))) {
			there[key] = true
			inputs = append(inputs, catalog.Input{Key: key, Path: path, Removed: true})
		}
	}
	for _, d := range view.Effective() {
		remove(d.Key, d.Path)
	}
	for _, q := range view.Quarantines() {
		remove(q.Key, q.Path)
	}
	return inputs, nil
}
