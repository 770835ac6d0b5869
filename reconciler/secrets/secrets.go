// Package secrets reads the content of a credentialsRef: from an age-encrypted *.sops.yaml beside
// the declaration, from a directory given at start-up, or from a Secret of the tenant's own
// namespace. It is the only importer of sops.
//
// One rule holds for all three: a tenant's reference reaches that tenant's secrets and no others.
// The tenant comes from the declaration's path; the name is a DNS-1123 label, so that neither can
// escape its folder or namespace. An encrypted file holds its own path among its encrypted values,
// and is accepted at that path alone: all files are encrypted to one recipient, so that otherwise a
// copy of another tenant's file could be decrypted.
//
// Contents are read when an object is applied and are stored nowhere. No error of this package
// contains one.
package secrets

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"argosy.dev/argosy/fleet"
)

// ErrNotFound means that no configured place has the secret. The error's text names the places.
var ErrNotFound = errors.New("not found")

// place stores secrets. get returns ErrNotFound if the place was read and does not have the secret;
// any other error means that the place is unreadable, which never counts as absence.
type place interface {
	get(ctx context.Context, tenant fleet.TenantName, name string) (fleet.Secret, error)
	describe(tenant fleet.TenantName, name string) string
	watch(ctx context.Context, changed func(fleet.TenantName, string))
}

// Ciphertexts reads a *.sops.yaml by its blob id, as it is in Git.
type Ciphertexts func(ctx context.Context, blob string) ([]byte, error)

// Resolver reads from all configured places.
type Resolver struct {
	places      []place
	ciphertexts Ciphertexts
	age         *ageKeys
}

// Get reads the secret that ref names. An empty tenant means the platform's own secrets, such as an
// engine's kubeconfig.
func (r *Resolver) Get(ctx context.Context, ref fleet.CredentialSource) (fleet.Secret, error) {
	if err := fleet.ValidateName(ref.Name); err != nil {
		return fleet.Secret{}, fmt.Errorf("secret reference: %w", err)
	}
	if ref.Tenant != "" {
		if err := fleet.ValidateName(string(ref.Tenant)); err != nil {
			return fleet.Secret{}, fmt.Errorf("secret reference: %w", err)
		}
	}
	if ref.Sealed != "" {
		return r.unseal(ctx, ref)
	}
	var looked []string
	for _, p := range r.places {
		s, err := p.get(ctx, ref.Tenant, ref.Name)
		switch {
		case err == nil:
			return s, nil
		case errors.Is(err, ErrNotFound):
			looked = append(looked, p.describe(ref.Tenant, ref.Name))
		default:
			return fleet.Secret{}, fmt.Errorf("read secret %s of %s: %w", ref.Name,
				owner(ref.Tenant), err)
		}
	}
	if len(looked) == 0 {
		looked = []string{
			"nowhere: no secrets.directory and no secrets.kubernetes is configured in argosy.yaml"}
	}
	return fleet.Secret{}, fmt.Errorf("secret %s of %s is %w; looked in %s; create it there",
		ref.Name, owner(ref.Tenant), ErrNotFound, strings.Join(looked, " and "))
}

// Watch calls changed for each secret that changes in a directory or a namespace that was read
// before, until ctx ends. Encrypted files need no watch: their change is a commit.
func (r *Resolver) Watch(ctx context.Context, changed func(tenant fleet.TenantName, name string)) {
	for _, p := range r.places {
		go p.watch(ctx, changed)
	}
}

func owner(t fleet.TenantName) string {
	if t == "" {
		return "the platform"
	}
	return "tenant " + string(t)
}
