package reconciler

import (
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
)

// folders are the unreadable folders of the config repo, by path ("tenants/acme/"), with the id
// that each had when it was quarantined. An empty id makes the next reconcile read the folder
// again, as after a start: the settings may allow more now.
type folders map[string]string

// unreadable are the quarantined folders.
func unreadable(view *catalog.View) folders {
	all := folders{}
	for _, q := range view.Quarantines() {
		if isFolder(q.Key) {
			all[q.Path] = ""
		}
	}
	return all
}

// isFolder reports whether a key is a whole folder. Among files, only a directory that is too deep
// has a path with a slash at the end, and a kind's folder precedes that directory.
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

// learn updates the folders with the inputs of a plan.
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

// collect decodes the files that read visits. A declaration in effect that is not visited is
// removed: in a folder that is visited as a whole, and everywhere if everything is visited.
// Declarations of an unreadable folder stay.
func collect(d Decoder, listed *follower, view *catalog.View, everything bool,
	read func(visit func(File) error) error) ([]catalog.Input, error) {
	gather := newGatherer(d, listed)
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
		if fleet.IsGenerated(key, path) {
			return // the file of its set or pool decides
		}
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
