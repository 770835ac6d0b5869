package worker

import (
	"testing"

	"argosy.dev/argosy/fleet"
)

// The preflight judges by whom the engine is dedicated to: what one tenant may have, several may
// not share.
func TestAWorkerRestartsWhenItsEngineBecomesSharedOrDedicated(t *testing.T) {
	one := fleet.EngineSpec{
		ArgoCD:      fleet.ArgoCDInstance{Namespace: "argocd", InstallationID: "eu-1"},
		DedicatedTo: []fleet.TenantName{"acme"}}
	shared, moved := one, one
	shared.DedicatedTo, moved.Region = nil, "us"
	if sameInstance(one, shared) {
		t.Error("a worker goes on with the old isolation of its engine")
	}
	if !sameInstance(one, moved) {
		t.Error("a worker restarts for a change that does not concern it")
	}
}
