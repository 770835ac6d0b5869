package main

import (
	"testing"

	"argosy.dev/argosy/fleet"
)

// Two engines may each have an adopted Application of one name.
func TestThePolicyOfAnotherEnginesApplicationDeletesNothing(t *testing.T) {
	both := map[fleet.EngineName]fleet.DeletionPolicy{"eu-1": fleet.DeletionOrphan,
		"eu-2": fleet.DeletionDelete}
	for engine, want := range map[fleet.EngineName]fleet.DeletionPolicy{
		"eu-1": fleet.DeletionOrphan, "eu-2": fleet.DeletionDelete, "eu-3": fleet.DeletionOrphan} {
		if got := policyOn(engine, both); got != want {
			t.Errorf("on %s: %q", engine, got)
		}
	}
	moved := map[fleet.EngineName]fleet.DeletionPolicy{"eu-2": fleet.DeletionDelete}
	if got := policyOn("eu-1", moved); got != fleet.DeletionDelete {
		t.Errorf("placed elsewhere: %q", got)
	}
	if got := policyOn("eu-1", nil); got != "" {
		t.Errorf("not declared: %q", got)
	}
}
