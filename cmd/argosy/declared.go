package main

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/reconciler/gitrepo"
)

// declared decodes files as a commit of them would be read. Paths that are twins on some file
// systems are refused together.
func declared(files []configschema.File) []catalog.Input {
	paths := make([]string, len(files))
	for i, f := range files {
		paths[i] = f.Path
	}
	twins := map[string][]fleet.Problem{}
	for _, p := range configschema.DuplicatePaths(paths) {
		twins[p.Path] = append(twins[p.Path], p)
	}
	var inputs []catalog.Input
	for _, d := range configschema.DecodeAll(files) {
		if d.Key.Kind == "" {
			continue // outside fleet/ and tenants/
		}
		in := catalog.Input{Key: d.Key, Path: d.Path, Blob: d.Blob, Declaration: d.Declaration,
			Problems: append(d.Problems, twins[d.Path]...)}
		if len(twins[d.Path]) > 0 {
			in.Declaration = nil
		}
		inputs = append(inputs, in)
	}
	return inputs
}

// history is a config repo in Git.
type history struct{ mirror *gitrepo.Mirror }

func openHistory(dir string) (history, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return history{}, err
	}
	mirror, err := gitrepo.OpenLocal(dir, gitrepo.Budget{})
	return history{mirror}, err
}

func (h history) resolve(ctx context.Context, rev string) (fleet.Revision, error) {
	id, err := h.mirror.Resolve(ctx, rev)
	return fleet.Revision(id), err
}

// changed is what differs from base to head, decoded; an empty base is nothing.
func (h history) changed(ctx context.Context, base, head fleet.Revision) ([]catalog.Input, error) {
	changes, err := h.mirror.Diff(ctx, gitrepo.Hash(base), gitrepo.Hash(head))
	if err != nil {
		return nil, err
	}
	var files []configschema.File
	var removed []catalog.Input
	for _, c := range changes {
		if c.Old.Kind == gitrepo.Unreadable && c.New.Kind != gitrepo.Unreadable {
			continue // the files of the head follow
		}
		if c.New.Kind == "" {
			if key, ours, _ := configschema.Classify(c.Path); ours {
				removed = append(removed, catalog.Input{Key: key, Path: c.Path, Removed: true})
			}
			continue
		}
		f, err := h.file(ctx, c.New)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return append(declared(files), removed...), nil
}

func (h history) file(ctx context.Context, e gitrepo.Entry) (configschema.File, error) {
	f := configschema.File{Path: e.Path, Blob: string(e.Blob)}
	if f.Unreadable = e.Why; f.Unreadable != "" {
		return f, nil
	}
	if e.Kind != gitrepo.File {
		f.Irregular = string(e.Kind)
		return f, nil
	}
	var err error
	f.Bytes, err = h.mirror.Blob(ctx, e.Blob)
	var over *gitrepo.Error
	if errors.As(err, &over) && errors.Is(err, gitrepo.ErrOverBudget) {
		// one file's fault: the others of the commit proceed
		f.Size, err = cmp.Or(over.Size, -1), nil
	}
	return f, err
}

// place finds the lines of problems that name a field only.
func (h history) place(ctx context.Context, head fleet.Revision, problems []fleet.Problem) error {
	wanted := map[string]gitrepo.Hash{}
	for _, p := range problems {
		if p.Line == 0 {
			wanted[p.Path] = ""
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	err := h.mirror.Walk(ctx, gitrepo.Hash(head), func(e gitrepo.Entry) error {
		if _, ok := wanted[e.Path]; ok && e.Kind == gitrepo.File {
			wanted[e.Path] = e.Blob
		}
		return nil
	})
	if err != nil {
		return err
	}
	configschema.Place(problems, func(path string) []byte {
		if wanted[path] == "" {
			return nil
		}
		text, err := h.mirror.Blob(ctx, wanted[path])
		if err != nil {
			return nil // the problem is told without its line
		}
		return text
	})
	return nil
}
