package fleet

import "testing"

func TestAStatusGoesToTheHostOfItsRepository(t *testing.T) {
	for _, c := range []struct {
		url  string
		api  CommitHostAPI
		want CommitHost // zero: refused
	}{
		{"https://github.com/acme/checkout.git", CommitHostGitHub, CommitHost{"api.github.com",
			"https://api.github.com/", "acme/checkout"}},
		{"git@github.com:acme/checkout.git", CommitHostGitHub, CommitHost{"api.github.com",
			"https://api.github.com/", "acme/checkout"}},
		{"https://git.example.com:8443/acme/checkout", CommitHostGitHub, CommitHost{
			"git.example.com:8443", "https://git.example.com:8443/api/v3/", "acme/checkout"}},
		{"ssh://git@git.example.com:2222/acme/checkout", CommitHostGitea, CommitHost{
			"git.example.com", "https://git.example.com/api/v1/", "acme/checkout"}},
		{"http://git.example.com/acme/checkout", CommitHostGitea, CommitHost{}},
		{"https://git.example.com/checkout", CommitHostGitea, CommitHost{}},
		{"https://git.example.com/a/b/checkout", CommitHostGitea, CommitHost{}},
		{"oci://registry.example.com/acme/checkout", CommitHostGitHub, CommitHost{}},
		{"registry.example.com/charts", CommitHostGitHub, CommitHost{}},
	} {
		got, err := CommitHostOf(c.url, c.api)
		if got != c.want || (err != nil) != (c.want == CommitHost{}) {
			t.Errorf("%s: %+v, %v", c.url, got, err)
		}
	}
}
