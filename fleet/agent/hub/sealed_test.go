//go:build !race

// With the race detector, this file alone would compile the SDKs of five clouds a second time.

package hub

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/secrets"
)

// A copy of another tenant's encrypted file is not sealed for any agent, and the problem that is
// sent in its place contains nothing of the file.
func TestACopiedEncryptedFileReachesNoAgent(t *testing.T) {
	const canary = "s3cr3t-canary"
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	own := fleet.CredentialSource{Tenant: "acme", Folder: "credentials", Name: "git",
		Sealed: "blob"}
	file, err := secrets.Encrypt(own, []string{id.Recipient().String()}, map[string]string{
		"password": canary})
	if err != nil {
		t.Fatal(err)
	}
	identity := filepath.Join(t.TempDir(), "age.txt")
	if err := os.WriteFile(identity, []byte(id.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	resolver := &secrets.Resolver{}
	err = resolver.AddAge(secrets.Age{IdentityFile: identity},
		func(context.Context, string) ([]byte, error) { return file, nil })
	if err != nil {
		t.Fatal(err)
	}
	keys, err := agent.NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	h := &Hub{secrets: resolver, resolving: make(semaphore, 1)}
	credential := func(from fleet.CredentialSource) (mirror.Row, *agent.Credential) {
		row := repository("far-1", from.Tenant, "repository", from.Name)
		row.Credential = &from
		return row,
			h.sealedCredential(t.Context(), registry.Agent{Engine: "far-1", Keys: keys.Public()},
				row)
	}
	row, c := credential(own)
	if secret, err := agent.Open(keys, row.Key, c.Sealed); err != nil ||
		string(secret.Value("password")) != canary {
		t.Fatalf("its own file: %v, %s", err, c.Problem)
	}
	for _, copied := range []fleet.CredentialSource{
		{Tenant: "evil", Folder: "credentials", Name: "git", Sealed: "blob"},
		{Tenant: "acme", Folder: "environments", Name: "git", Sealed: "blob"},
		{Tenant: "acme", Folder: "credentials", Name: "loot", Sealed: "blob"},
	} {
		if _, c := credential(copied); len(c.Sealed) > 0 || !strings.Contains(c.Problem,
			"encrypted for another path") || strings.Contains(c.Problem, canary) {
			t.Errorf("%s: %d bytes are sent, with the problem %q", copied.EncryptedPath(),
				len(c.Sealed), c.Problem)
		}
	}
}
