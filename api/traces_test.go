package api_test

import (
	"net/http"
	"strings"
	"testing"
)

// A tenant reads its own Applications and waits of a commit that changed several tenants.
func TestTraceOfACommitOfSeveralTenants(t *testing.T) {
	s := newSite(t, content())
	short := "/traces/" + string(rev1[:7])
	all := s.get(short, platformToken)
	s.want(all, http.StatusOK)
	own := s.get(short, acmeToken)
	s.want(own, http.StatusOK)
	if strings.Contains(own.whole(), "globex") || !strings.Contains(own.whole(), "of acme") ||
		!strings.Contains(all.whole(), "globex: a secret plan") {
		t.Errorf("a tenant reads\n%s\nand the platform\n%s", own.whole(), all.whole())
	}
	one := s.get(short+"?tenant=globex&deployment=web&environment=prod", platformToken)
	if s.want(one, http.StatusOK); strings.Contains(one.whole(), "of acme") {
		t.Errorf("of one Application:\n%s", one.whole())
	}
	for path, status := range map[string]int{
		"/traces/4f1c":    http.StatusUnprocessableEntity,
		"/traces/master":  http.StatusUnprocessableEntity,
		"/traces/0000000": http.StatusNotFound,
	} {
		s.want(s.get(path, platformToken), status)
	}
}
