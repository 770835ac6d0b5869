package postgres_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/access"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

func alice() access.Person {
	return access.Person{Issuer: "corp", Subject: "CgVhbGljZQ", Name: "alice",
		Groups: []string{"acme", "Support"}}
}

func sessionOf(p access.Person) view.Session {
	now := time.Now()
	return view.Session{Person: p, Kind: view.SessionPage, IdleUntil: now.Add(time.Hour),
		ExpiresAt: now.Add(8 * time.Hour)}
}

func signIn(t *testing.T, s *postgres.Store, v view.Session, once string) (view.Session, string) {
	t.Helper()
	made, plaintext, err := s.Sessions.CreateSession(t.Context(), v, once, nil)
	check(t, err)
	return made, plaintext
}

func TestASessionHasTheRolesThatGitGrantsNow(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	ctx := t.Context()
	acme, globex := tenantDeclaration("acme"), tenantDeclaration("globex")
	acme.Tenant.Owners, globex.Tenant.Viewers = []string{"group:acme"}, []string{"group:Support"}
	lease := hold(t, s, "reconciler")
	must(s.Plans.Record(ctx, lease, step(0, 1, func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{engineDeclaration("eu-1"), acme, globex}
	})))(t)
	_, plaintext := signIn(t, s, sessionOf(alice()), "1")
	v := must(s.Sessions.VerifySession(ctx, plaintext))(t)
	if v.Roles.Tenants["acme"].Role != access.Owner ||
		v.Roles.Tenants["globex"].Role != access.Viewer ||
		v.Roles.Platform.Role != "" || v.Actor != "user:corp/alice" {
		t.Errorf("%+v", v.Roles)
	}

	acme.Tenant.Owners = []string{"group:others"}
	must(s.Plans.Record(ctx, lease, step(1, 2, func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{acme, {Key: fleet.AccessKey(),
			Path:   "fleet/access.yaml",
			Access: &fleet.AccessSpec{Operators: []string{"group:acme"}}}}
	})))(t)
	v = must(s.Sessions.VerifySession(ctx, plaintext))(t)
	if v.Roles.Tenants["acme"].Role != "" || v.Roles.Platform.Role != access.Operator ||
		v.Roles.Platform.Path != "fleet/access.yaml" {
		t.Errorf("%+v", v.Roles)
	}
}

// A person with a proven account has the roles of `github:` entries whose pinned number it has.
func TestAPinnedNumberDecidesForASession(t *testing.T) {
	t.Parallel()
	s := open(t, newDatabase(t))
	ctx := t.Context()
	acme := tenantDeclaration("acme")
	acme.Tenant.Owners = []string{"github:Alice"}
	must(s.Plans.Record(ctx, hold(t, s, "reconciler"), step(0, 1, func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{engineDeclaration("eu-1"), acme}
	})))(t)
	must(s.Pulls.PinOwner(ctx, gitHost, "alice", 7))(t)
	for id, want := range map[int64]access.Role{7: access.Owner, 8: ""} {
		p := alice()
		p.Subject, p.Account = string(rune('0'+id)), access.Account{Name: "alice", ID: id}
		_, plaintext := signIn(t, s, sessionOf(p), p.Subject)
		v := must(s.Sessions.VerifySession(ctx, plaintext))(t)
		if got := v.Roles.Tenants["acme"].Role; got != want || v.Actor != "github:alice" {
			t.Errorf("number %d is %s with the role %q", id, v.Actor, got)
		}
	}
}

func TestASessionEnds(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	ctx := t.Context()
	gone := func(plaintext string) {
		t.Helper()
		if _, err := s.Sessions.VerifySession(ctx, plaintext); !errors.Is(err, mirror.ErrNotFound) {
			t.Errorf("%v", err)
		}
	}
	for name, end := range map[string]string{
		"idle":    `UPDATE sessions SET last_used_at = now() - interval '61 minutes' WHERE id = $1`,
		"expired": `UPDATE sessions SET expires_at = now() WHERE id = $1`,
	} {
		made, plaintext := signIn(t, s, sessionOf(alice()), name)
		must(s.Sessions.VerifySession(ctx, plaintext))(t)
		exec(t, url, end, made.ID)
		gone(plaintext)
	}
	made, plaintext := signIn(t, s, sessionOf(alice()), "revoked")
	bob := access.Person{Issuer: "corp", Subject: "bob"}
	err := s.Sessions.RevokeSession(ctx, made.ID, &bob, "user:corp/bob")
	if !errors.Is(err, mirror.ErrNotFound) {
		t.Errorf("another person revokes it: %v", err)
	}
	must(s.Sessions.VerifySession(ctx, plaintext))(t)
	own := alice()
	check(t, s.Sessions.RevokeSession(ctx, made.ID, &own, "user:corp/alice"))
	gone(plaintext)
	gone(plaintext[:len(plaintext)-1] + "x")
	gone(strings.Replace(plaintext, view.SessionPrefix, "argosy_", 1))
	gone("")
	expect(t, url, `SELECT count(*) FROM audit WHERE action = 'revoke session'`, 1)
	if _, err := s.Tokens.VerifyToken(ctx, plaintext); !errors.Is(err, mirror.ErrNotFound) {
		t.Errorf("a session is a token: %v", err)
	}
	found, _, err := s.Sessions.ListSessions(ctx, &own, view.Page{Limit: 10})
	if check(t, err); len(found) != 3 || found[0].ID != made.ID || found[0].RevokedBy == "" {
		t.Errorf("%+v", found)
	}
	if found, _, err = s.Sessions.ListSessions(ctx, &bob, view.Page{Limit: 10}); err != nil ||
		len(found) != 0 {
		t.Errorf("%+v %v", found, err)
	}
}

// Of a sign-in that is replayed at several replicas at once, one creates a session.
func TestASignInCreatesOneSession(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	errs := make(chan error, 8)
	var replicas sync.WaitGroup
	for range 8 {
		replicas.Go(func() {
			_, _, err := s.Sessions.CreateSession(t.Context(), sessionOf(alice()), "state", nil)
			errs <- err
		})
	}
	replicas.Wait()
	close(errs)
	replayed := 0
	for err := range errs {
		if errors.Is(err, mirror.ErrReplayed) {
			replayed++
		} else if err != nil {
			t.Error(err)
		}
	}
	if replayed != 7 {
		t.Errorf("%d are refused", replayed)
	}
	expect(t, url, `SELECT count(*) FROM sessions`, 1)
}

// The database alone opens no refresh token, and one replica at a time uses it.
func TestARefreshTokenIsSealedWithTheSession(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	ctx := t.Context()
	due := time.Now().Add(-time.Second)
	v := sessionOf(alice())
	v.RefreshAt = &due
	made, plaintext, err := s.Sessions.CreateSession(ctx, v, "1", []byte("hunter2-of-the-issuer"))
	check(t, err)
	expect(t, url, `SELECT count(*) FROM sessions WHERE position('hunter2'::bytea IN refresh) > 0`, 0)
	refresh, ok, err := s.Sessions.ClaimRefresh(ctx, plaintext)
	if err != nil || !ok || string(refresh) != "hunter2-of-the-issuer" {
		t.Fatalf("%q %v %v", refresh, ok, err)
	}
	if _, ok, err = s.Sessions.ClaimRefresh(ctx, plaintext); ok || err != nil {
		t.Errorf("it is claimed twice: %v", err)
	}
	p := alice()
	p.Groups = []string{"globex"}
	check(t, s.Sessions.Refreshed(ctx, plaintext, p, []byte("rotated"), due))
	got := must(s.Sessions.VerifySession(ctx, plaintext))(t)
	if !slices.Equal(got.Person.Groups, []string{"globex"}) {
		t.Errorf("%+v", got.Person)
	}
	if refresh, _, err = s.Sessions.ClaimRefresh(ctx, plaintext); string(refresh) != "rotated" {
		t.Errorf("%q %v", refresh, err)
	}
	exec(t, url, `UPDATE sessions SET refresh_at = now() WHERE id = $1`, made.ID)
	if _, ok, _ = s.Sessions.ClaimRefresh(ctx, plaintext+"x"); ok {
		t.Error("another plaintext claims it")
	}
}

func TestUsesAreStoredInBatches(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	ctx := t.Context()
	token, plaintext, err := s.Tokens.CreateToken(ctx, view.Token{Name: "ci", Role: view.RoleRead})
	check(t, err)
	for range 50 {
		must(s.Tokens.VerifyToken(ctx, plaintext))(t)
	}
	expect(t, url, `SELECT count(*) FROM tokens WHERE last_used_at IS NOT NULL`, 0)
	check(t, s.FlushUses(ctx))
	listed, _, err := s.Tokens.ListTokens(ctx, view.Page{Limit: 10})
	if check(t, err); listed[0].ID != token.ID || listed[0].LastUsedAt == nil ||
		time.Since(*listed[0].LastUsedAt) > time.Hour {
		t.Errorf("%+v", listed)
	}
	made, session := signIn(t, s, sessionOf(alice()), "1")
	exec(t, url, `UPDATE sessions SET last_used_at = now() - interval '30 minutes' WHERE id = $1`, made.ID)
	must(s.Sessions.VerifySession(ctx, session))(t)
	check(t, s.FlushUses(ctx))
	expect(t, url, `SELECT count(*) FROM sessions WHERE last_used_at > now() - interval '5 minutes'`, 1)
}
