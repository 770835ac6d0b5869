package plan

import (
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

// One credential for a folder gives each repository that is read a Secret of its own, with the URL
// that the deployments write, and takes it away with the last reader. A credential of the
// repository itself replaces it.
func TestACredentialForAFolder(t *testing.T) {
	const all, own = "tenants/acme/credentials/all.yaml", "tenants/acme/credentials/checkout.yaml"
	h := newHouse(t)
	files := oneEngine().without("tenants/acme/credentials").with(all, credentialFile("all",
		"acme/"))
	h.apply(files)
	wantSecrets(t, h, "all https://git.example.com/acme/cart all",
		"all https://git.example.com/acme/checkout all")

	p := h.apply(h.files.with(own, credentialFile("checkout", "acme/checkout.git")))
	wantActions(t, p, "create Repository checkout",
		"delete Repository all for https://git.example.com/acme/checkout")
	wantSecrets(t, h, "all https://git.example.com/acme/cart all",
		"checkout https://git.example.com/acme/checkout.git checkout")
	h.restart()
	p = h.apply(h.files.without(own))
	wantActions(t, p, "delete Repository checkout",
		"create Repository all for https://git.example.com/acme/checkout")

	const cart = "tenants/acme/deployments/cart.yaml"
	h.apply(h.files.edit(cart, "acme/cart", "acme/Cart"))
	wantSecrets(t, h, "all https://git.example.com/acme/Cart all",
		"all https://git.example.com/acme/checkout all")
	h.restart()
	p = h.apply(h.files.with(all, strings.Replace(h.files[all], "credentialsRef: {name: all}",
		"credentialsRef: {name: next}", 1)))
	wantActions(t, p, "update Repository all for https://git.example.com/acme/cart",
		"update Repository all for https://git.example.com/acme/checkout")
	wantSecrets(t, h, "all https://git.example.com/acme/Cart next",
		"all https://git.example.com/acme/checkout next")

	h.apply(h.files.without(cart))
	h.work()
	wantSecrets(t, h, "all https://git.example.com/acme/checkout next")
	h.restart()
	h.apply(h.files.edit(all, "example.com/acme/", "example.com/acme/team/"))
	h.work()
	wantSecrets(t, h)
}

// wantSecrets compares the wanted repository Secrets: the credential, the URL, and the secret that
// is read.
func wantSecrets(t *testing.T, h *house, want ...string) {
	t.Helper()
	var got []string
	for k, r := range h.rows {
		if k.Kind != fleet.ObjectRepository || r.Unwanted {
			continue
		}
		var m struct{ Spec fleet.Repository }
		unmarshal(t, r.Manifest.Body, &m)
		got = append(got, string(m.Spec.ID.Name)+" "+m.Spec.URL+" "+r.Credential.Name)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("Secrets:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
