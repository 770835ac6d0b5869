package reconciler_test

import (
	"fmt"
	"testing"

	"argosy.dev/argosy/fleet/view"
)

// Some filesystems take several paths for one. The control plane reads Git's objects, where they
// are different: one is a declaration's, the others are refused, and neither their creation nor
// their removal touches the declaration. If both were refused, a duplicate in a folder without an
// owner would block a tenant's file.
func TestADuplicateOfAPathDoesNotAffectTheDeclaration(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	r := h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	web := "tenants/acme/deployments/web.yaml"
	text := deployment("acme", "web", "evil", "Delete", "prod", "staging")[web]
	duplicates := []string{"tenants/acme/deployments/Web.yaml", "tenants/Acme/deployments/web.yaml",
		"tenants/acme/Deployments/web.yaml",
		"tenants/acme/deployments/w\u00e9b.yaml", "tenants/acme/deployments/we\u0301b.yaml",
		"tenants/acme/deployments/web.YAML"}
	// no folder of ours: not read at all
	files := map[string]string{"TENANTS/acme/deployments/web.yaml": text}
	for _, duplicate := range duplicates {
		files[duplicate] = text
	}
	is := func(revision string, refused int) func() error {
		return func() error {
			if err := h.converged(); err != nil {
				return err
			}
			for _, id := range []string{"acme/web@prod", "acme/web@staging"} {
				if a := h.application(id); a.TargetRevision != revision {
					return fmt.Errorf("%s is at %s", id, a.TargetRevision)
				}
			}
			problems, _, err := h.store.Views.Problems(t.Context(), view.Scope{}, view.Filter{},
				view.Page{Limit: 100})
			if len(problems) != refused {
				err = fmt.Errorf("%d problems: %+v", len(problems), problems)
			}
			return err
		}
	}
	h.commit("duplicates come", files)
	h.eventually("the duplicates are refused, each by itself", is("v1", len(duplicates)))
	h.commit("the declaration goes on beside them", deployment("acme", "web", "v2", "Delete",
		"prod", "staging"))
	h.eventually("it is not held back", is("v2", len(duplicates)))
	r.stop()
	h.newDatabase()
	h.start("b", options{})
	h.eventually("a cold start reads them alike", is("v2", len(duplicates)))
	h.commit("duplicates go", gone(files))
	h.eventually("nothing went with them", is("v2", 0))
	for _, e := range h.engines {
		if e.mu.Lock(); len(e.deleted) > 0 {
			t.Errorf("deleted: %v", e.deleted)
		}
		e.mu.Unlock()
	}
}
