package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/reconciler/plan/applied"
	"argosy.dev/argosy/reconciler/plan/effective"
	"argosy.dev/argosy/reconciler/plan/report"
)

// fault is a panic of the planner or the renderer. It is a defect of Argosy, and one tenant's file
// must not stop the other tenants by it.
type fault struct{ value any }

func (f *fault) Error() string {
	return fmt.Sprintf("the planner failed; this is a defect of Argosy: %v", f.value)
}

// guarded computes a plan and returns a panic as a fault.
func (w *AppliedState) guarded(r Request, render engine.Renderer) (p *Plan, err error) {
	defer func() {
		if value := recover(); value != nil {
			p, err = nil, &fault{value}
		}
	}()
	return w.compute(r, render)
}

// isolated computes the plan again without the files that make the planner panic: each is
// quarantined and keeps its last good state. It tries each tenant's files on their own, and then
// each file on its own.
func (w *AppliedState) isolated(r Request, render engine.Renderer, failed *fault) (*Plan, error) {
	fails := func(files []catalog.Input) *fault {
		alone := r
		alone.Files = files
		var f *fault
		_, err := w.guarded(alone, render)
		errors.As(err, &f)
		return f
	}
	if len(r.Files) == 0 || fails(nil) != nil {
		return nil, failed
	}
	tenants := map[fleet.TenantName][]catalog.Input{}
	for _, in := range r.Files {
		tenants[applied.TenantOf(in.Key)] = append(tenants[applied.TenantOf(in.Key)], in)
	}
	bad := map[string]*fault{}
	for _, t := range slices.Sorted(maps.Keys(tenants)) {
		whole := fails(tenants[t])
		if whole == nil {
			continue
		}
		n := len(bad)
		for _, in := range tenants[t] {
			if f := fails([]catalog.Input{in}); f != nil {
				bad[in.Path] = f
			}
		}
		for _, in := range tenants[t] {
			if len(bad) == n { // the files fail only together
				bad[in.Path] = whole
			}
		}
	}
	if len(bad) == 0 {
		return nil, failed
	}
	r.Files = slices.Clone(r.Files)
	for i, in := range r.Files {
		f, is := bad[in.Path]
		switch {
		case !is:
		case in.Removed:
			return nil, fmt.Errorf("the removal of %s: %w", in.Path, f)
		default:
			r.Files[i].Declaration = nil
			r.Files[i].Problems = []fleet.Problem{{
				Key: in.Key, Path: in.Path, Severity: fleet.SeverityError,
				Code:    effective.CodeUnrendered,
				Message: "it cannot be planned: " + report.OneLine(f.Error()),
				Fix:     "write it as it was before, and report the file to the operators of Argosy",
			}}
		}
	}
	return w.guarded(r, render)
}
