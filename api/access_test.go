package api_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

var errSecretCause = errors.New("dial postgres://argosy:hunter2@db: refused")

func TestATokenIsRequiredEverywhere(t *testing.T) {
	s := newSite(t, content())
	for _, path := range []string{"/tenants", "/tenants/acme", "/events", "/whoami", "/tokens"} {
		for name, token := range map[string]string{"none": "", "a wrong one": "argosy_nobody_00",
			"one of another scheme": "\x00"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
				s.url+wire.Base+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			switch token {
			case "\x00":
				req.SetBasicAuth("x", platformToken)
			case "":
			default:
				req.Header.Set("Authorization", "Bearer "+token)
			}
			a := s.send(req)
			if a.status != http.StatusUnauthorized || a.header.Get("WWW-Authenticate") == "" ||
				a.header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s with %s: %s", path, name, a.whole())
			}
		}
	}
	s.want(s.do(http.MethodGet, "/openapi.json", "", ""), http.StatusOK, "/api/v1/applications")
}

func TestATokenInAURLIsRefusedAndNotEchoed(t *testing.T) {
	s := newSite(t, content())
	for _, query := range []string{"?token=", "?access_token=", "?Authorization="} {
		a := s.get("/tenants"+query+platformToken, platformToken)
		s.want(a, http.StatusBadRequest, "must not be sent in a URL", "revoke")
		if strings.Contains(a.body, platformToken) {
			t.Error("it is echoed")
		}
	}
}

// No failure writes a token or an internal cause to a log line or an answer where it does not
// belong.
func TestNoTokenAndNoInternalCauseIsRevealed(t *testing.T) {
	s := newSite(t, content())
	requests := func() []answer {
		return []answer{
			s.get("/tenants", platformToken), s.get("/tenants/"+platformToken, platformToken),
			s.get("/tenants?tenant="+platformToken, platformToken),
			s.get("/tenants?"+platformToken+"=1", acmeToken),
			s.do(http.MethodPost, wire.Base+"/stop", platformToken, `{"scope":"`+platformToken+
				`"}`),
			s.do(http.MethodPost, wire.Base+"/approve", platformToken, platformToken),
			s.get("/nothing/"+platformToken, platformToken),
			s.page("/tenants/acme", platformToken), s.page("/nothing", platformToken),
		}
	}
	all := requests()
	s.store.Fail(errSecretCause)
	failed := requests()
	for _, a := range failed {
		if strings.Contains(a.body, "hunter2") {
			t.Errorf("the answer contains the cause: %s", a.body)
		}
	}
	if !strings.Contains(failed[0].body, `"next"`) ||
		failed[0].status != http.StatusServiceUnavailable {
		t.Errorf("%d %s", failed[0].status, failed[0].body)
	}
	for i, a := range append(all, failed...) {
		// request 3 answers another caller: checked below
		if i%9 != 3 && strings.Contains(a.body, platformToken) {
			t.Errorf("answer %d echoes the token: %s", i, a.body)
		}
	}
	log := s.log.String()
	for _, secret := range []string{platformToken, acmeToken} {
		if strings.Contains(log, secret) {
			t.Errorf("a token is in the log: %s", log)
		}
	}
	if !strings.Contains(log, "route=\"GET /api/v1/tenants\"") {
		t.Errorf("requests are not logged at all: %s", log)
	}
}

func TestReadersDecideNothing(t *testing.T) {
	s := newSite(t, content())
	for path, body := range map[string]string{
		"/moves":   `{"tenant":"acme","environment":"prod","to":"eu-1"}`,
		"/approve": `{"revision":"` + string(rev1) + `"}`, "/stop": `{"scope":"fleet"}`,
		"/resume": `{"scope":"fleet"}`, "/tokens": `{"name":"x","role":"read"}`,
	} {
		s.want(s.do(http.MethodPost, wire.Base+path, readerToken, body), http.StatusForbidden,
			"may only read")
	}
	if stops, err := s.store.Stops(t.Context(), view.Scope{}); err != nil || len(stops) != 0 {
		t.Errorf("%v %v", stops, err)
	}
	s.want(s.get("/holds", readerToken), http.StatusOK, string(rev1))
}

func TestAnApprovalReleasesAllHoldsOfItsRevision(t *testing.T) {
	s := newSite(t, content())
	a := s.do(http.MethodPost, wire.Base+"/approve", platformToken, `{"revision":"`+string(rev1)+
		`","note":"planned"}`)
	s.want(a, http.StatusOK)
	done := decode[wire.Approved](t, a)
	if len(done.Holds) != 2 || done.Approval.By != "token:ops" || done.Approval.Note != "planned" ||
		done.Approval.At.IsZero() {
		t.Errorf("%+v", done)
	}
	s.want(s.do(http.MethodPost, wire.Base+"/approve", platformToken, `{"revision":"`+string(rev1)+
		`"}`), http.StatusNotFound, "this revision holds no change")
	s.want(s.do(http.MethodPost, wire.Base+"/approve", platformToken, `{"revision":"4f1c9e2a"}`),
		http.StatusUnprocessableEntity)
}

// dated is a store whose clock differs from this machine's.
type dated struct{ *apitest.Store }

var decidedAt = time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)

func (d dated) Approve(ctx context.Context, a mirror.Approval) (mirror.Approval, error) {
	a, err := d.Store.Approve(ctx, a)
	a.At = decidedAt
	return a, err
}

// The store's clock dates an approval, because the store compares holds with it.
func TestAnApprovalIsDatedByTheStore(t *testing.T) {
	s := newSiteOver(t, dated{apitest.New(content())})
	a := s.do(http.MethodPost, wire.Base+"/approve", platformToken, `{"revision":"`+string(rev1)+
		`"}`)
	s.want(a, http.StatusOK)
	if done := decode[wire.Approved](t, a); !done.Approval.At.Equal(decidedAt) {
		t.Errorf("dated %v", done.Approval.At)
	}
}

func TestATenantCannotEndThePlatformsStop(t *testing.T) {
	s := newSite(t, content())
	tenant := `{"scope":"tenant","name":"acme","reason":"mine"}`
	s.want(s.do(http.MethodPost, wire.Base+"/stop", acmeToken, tenant), http.StatusOK,
		"token:acme/ci")
	s.want(s.do(http.MethodPost, wire.Base+"/stop", platformToken,
		`{"scope":"tenant","name":"acme","reason":"audit"}`), http.StatusOK, "token:ops")
	s.want(s.do(http.MethodPost, wire.Base+"/stop", acmeToken, tenant), http.StatusOK, "token:ops")
	s.want(s.do(http.MethodPost, wire.Base+"/resume", acmeToken,
		`{"scope":"tenant","name":"acme"}`), http.StatusForbidden, "was set by token:ops")
	s.want(s.do(http.MethodPost, wire.Base+"/resume", platformToken,
		`{"scope":"tenant","name":"acme"}`), http.StatusOK, `"ended":true`)
	s.want(s.do(http.MethodPost, wire.Base+"/resume", acmeToken,
		`{"scope":"tenant","name":"acme"}`), http.StatusOK, `"ended":false`)
}

func TestAStopWithAMisspeltNameIsRejected(t *testing.T) {
	s := newSite(t, content())
	for _, body := range []string{`{"scope":"tenant","name":"acem"}`,
		`{"scope":"engine","name":"eu-7"}`} {
		s.want(s.do(http.MethodPost, wire.Base+"/stop", platformToken, body), http.StatusNotFound)
	}
	for _, body := range []string{`{"scope":"tenant"}`, `{"scope":"fleet","name":"acme"}`,
		`{"scope":"world"}`, `{"scope":"fleet","dryRun":true}`, `{`} {
		if a := s.do(http.MethodPost, wire.Base+"/stop", platformToken,
			body); a.status != http.StatusUnprocessableEntity && a.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
}
