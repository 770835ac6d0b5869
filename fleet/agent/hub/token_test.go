package hub

import (
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

// An agent requests the tokens of its own cluster: the hub resolves no secret and reports no
// missing one. A credential of the platform does not leave the control plane.
func TestNoSecretIsResolvedForARequestedToken(t *testing.T) {
	row := mirror.Row{Key: fleet.ObjectKey{Engine: "edge", Kind: fleet.ObjectCluster, Name: "home"},
		Tenant: "acme", Environment: "home",
		Credential: &fleet.CredentialSource{Tenant: "acme", Folder: "environments"}}
	got := new(Hub).sealedCredential(t.Context(), registry.Agent{}, row)
	if got == nil || got.Problem != "" || len(got.Sealed) > 0 || got.Tenant != "acme" {
		t.Errorf("the agent gets %+v", got)
	}
	row.Credential = &fleet.CredentialSource{Folder: "environments", Name: "prod-1"}
	got = new(Hub).sealedCredential(t.Context(), registry.Agent{}, row)
	if got == nil || got.Problem == "" || len(got.Sealed) > 0 {
		t.Errorf("the agent gets %+v of the platform", got)
	}
}
