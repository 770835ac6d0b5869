package applied

import (
	"reflect"
	"testing"

	"argosy.dev/argosy/fleet"
)

func TestEveryLayerIsCommitted(t *testing.T) {
	s := New()
	listed := map[any]bool{}
	for _, l := range s.all() {
		listed[l] = true
	}
	layers := reflect.ValueOf(&s.Layers).Elem()
	for i := range layers.NumField() {
		if !listed[layers.Field(i).Addr().Interface()] {
			t.Errorf("%s is not listed", layers.Type().Field(i).Name)
		}
	}
}

func TestADraftLeavesTheStateAsItIsUntilItsCommit(t *testing.T) {
	s := New()
	id := fleet.ApplicationID{Tenant: "acme", Deployment: "cart", Environment: "prod"}
	key := ApplicationKey("eu-1", id)
	draft := s.Draft()
	draft.Place(id.In(), "eu-1", 1)
	draft.SetRow(key, Row{Tenant: "acme", Environment: "prod", Deployment: "cart"})
	draft.CountApplication("eu-1", id, 1)
	c := draft.CountRead("eu-1", id, "https://git.example.com/acme/cart.git", 1)
	if c != (ReferenceChanges{Listed: true, Used: true, UsedIn: true, Respelled: true}) {
		t.Errorf("the first Application changes %+v", c)
	}
	if load, _ := s.Loads.Get("eu-1"); load != (fleet.EngineLoad{}) ||
		!s.EnvironmentsOn.Empty("eu-1") {
		t.Errorf("the state changed before the commit: %+v", load)
	}
	draft.Commit()
	load, _ := s.Loads.Get("eu-1")
	if load != (fleet.EngineLoad{Environments: 1, Applications: 1}) ||
		s.EnvironmentsOn.Size("eu-1") != 1 {
		t.Errorf("committed load: %+v", load)
	}
	draft = s.Draft()
	draft.RemoveRow(key)
	if c := draft.CountRead("eu-1", id, "https://git.example.com/acme/cart", -1); !c.Used {
		t.Errorf("the last Application of a repository, in another spelling, changes %+v", c)
	}
	draft.Commit()
	if len(s.Rows.Base()) != 0 ||
		!s.Readers.Empty(Repo{"eu-1", RepoKey("https://git.example.com/acme/cart")}) {
		t.Errorf("left: %v", s.Rows.Base())
	}
}
