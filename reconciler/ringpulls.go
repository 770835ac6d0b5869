package reconciler

import (
	"context"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
)

// RingProblem returns what is wrong with the files of one of a Fleet's rings; nil if they are
// right. err is why they cannot be read. Pure.
type RingProblem func(d *fleet.Declaration, ring int, files map[string][]byte,
	err error) *fleet.Problem

// PulledDirectories are Pulls that read directories outside of fleet/ and tenants/.
type PulledDirectories interface {
	// MergedDirectory returns the files of a directory in the merge of p.Head into p.Base, and
	// whether the head changes it; no files of a directory that is missing, or that the head does
	// not change unless always is set. why is the reason if no files can be those of a ring.
	MergedDirectory(ctx context.Context, p *Preview, path string, always bool) (
		files map[string][]byte, changed bool, why, err error)
}

// checkRings adds the problems of rings that the head changes: of those whose manifests it declares
// and of those whose directory it changes. It reads no files for another ring, and downloads
// nothing: a pull request is not reviewed yet.
func (v *Previewer) checkRings(ctx context.Context, out *Preview, inputs []catalog.Input) error {
	from, ok := v.pulls.(PulledDirectories)
	before := out.Catalog.Declaration(fleet.Key{Kind: fleet.KindFleet, Name: "fleet"})
	after := before
	for _, in := range inputs {
		if in.Key.Kind == fleet.KindFleet {
			after = in.Declaration
		}
	}
	if !ok || v.rings == nil || after == nil {
		return nil
	}
	for i, r := range after.Fleet.Rings {
		if r.Manifests.Directory == "" {
			continue
		}
		declares := before == nil || !slices.ContainsFunc(before.Fleet.Rings,
			func(was fleet.Ring) bool {
				return was.Version == r.Version && was.Manifests == r.Manifests
			})
		files, changed, why, err := from.MergedDirectory(ctx, out, r.Manifests.Directory,
			declares)
		if err != nil {
			return err
		}
		if changed && !slices.Contains(out.Beside, r.Manifests.Directory) {
			out.Beside = append(out.Beside, r.Manifests.Directory)
		}
		if !changed && !declares {
			continue
		}
		if p := v.rings(after, i, files, why); p != nil {
			if b, err := v.repo.Bytes(ctx, after.Blob); err == nil {
				p.Line, p.Column = v.repo.Locate(b, p.Field)
			}
			out.Problems = append(out.Problems, *p)
		}
	}
	return nil
}
