package signin_test

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/signin"
	"argosy.dev/argosy/test/stack"
)

const redirect = "http://127.0.0.1:1/signin/corp/callback"

func people() []stack.DexPerson {
	return []stack.DexPerson{
		{ID: "u1", Name: "alice", Email: "alice@example.com", Password: "pw-a",
			Groups: []string{"acme", "admin", "acme:leads", "-no group-"}},
		{ID: "u2", Name: "eve\u202egnp", Email: "eve@example.com", Password: "pw-e"},
	}
}

// startDex starts a Dex that knows two clients.
func startDex(t *testing.T) *stack.Dex {
	t.Helper()
	d, err := stack.StartDex(t.Context(), stack.DexOptions{People: people(),
		Clients: []stack.DexClient{{ID: "argosy", Secret: "s3cret", Redirects: []string{redirect}},
			{ID: "other", Secret: "0ther", Redirects: []string{redirect}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func client(d *stack.Dex, id, secret string) *signin.Providers {
	return signin.New([]signin.Config{{Kind: signin.OIDC, Name: "corp", Title: "Corp", URL: d.URL,
		ClientID: id, Secret: func() (string, error) { return secret, nil },
		Scopes:   []string{"openid", "profile", "email", "groups", "offline_access"},
		Username: "preferred_username", Groups: "groups"}})
}

// signIn goes from our page to Dex and back, and returns the attempt with the code.
func signIn(t *testing.T, d *stack.Dex, p *signin.Providers, email, password string) (view.Attempt,
	string) {
	t.Helper()
	attempt, to, err := p.Begin(t.Context(), "corp", redirect)
	if err != nil {
		t.Fatal(err)
	}
	back, err := d.SignIn(t.Context(), to, email, password)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(back)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(back, redirect) || u.Query().Get("state") != attempt.State {
		t.Fatalf("Dex sends the person to %s", back)
	}
	return attempt, u.Query().Get("code")
}

func refused(t *testing.T, err error, part string) {
	t.Helper()
	var r *view.SignInRefused
	if !errors.As(err, &r) || !strings.Contains(r.Why, part) || r.Next == "" {
		t.Errorf("want a refusal with %q, got %v", part, err)
	}
}

func TestAPersonSignsInAtDex(t *testing.T) {
	t.Parallel()
	d := startDex(t)
	p := client(d, "argosy", "s3cret")
	attempt, code := signIn(t, d, p, "alice@example.com", "pw-a")
	proven, err := p.Finish(t.Context(), attempt, redirect, code)
	if err != nil {
		t.Fatal(err)
	}
	who := proven.Person
	if who.Issuer != "corp" || who.Subject == "" || who.Name != "alice" ||
		!slices.Equal(who.Groups, []string{"acme", "acme:leads", "admin"}) ||
		who.Account.Name != "" || who.Actor() != "user:corp/alice" {
		t.Errorf("%+v", who)
	}
	_, err = p.Finish(t.Context(), attempt, redirect, code)
	refused(t, err, "refused this sign-in")
}

func TestACodeBelongsToItsSignInAndItsClient(t *testing.T) {
	t.Parallel()
	d := startDex(t)
	p := client(d, "argosy", "s3cret")
	attempt, code := signIn(t, d, p, "alice@example.com", "pw-a")
	other := attempt
	other.Verifier = strings.Repeat("x", 43)
	_, err := p.Finish(t.Context(), other, redirect, code)
	refused(t, err, "refused this sign-in") // PKCE

	attempt, code = signIn(t, d, p, "alice@example.com", "pw-a")
	attempt.Nonce = "of another sign-in"
	_, err = p.Finish(t.Context(), attempt, redirect, code)
	refused(t, err, "nonce")

	attempt, code = signIn(t, d, p, "alice@example.com", "pw-a")
	_, err = client(d, "other", "0ther").Finish(t.Context(), attempt, redirect, code)
	refused(t, err, "refused this sign-in") // another client

	attempt, code = signIn(t, d, p, "alice@example.com", "pw-a")
	_, err = client(d, "argosy", "wrong").Finish(t.Context(), attempt, redirect, code)
	refused(t, err, "invalid_client")
}

func TestAUsernameThatLooksLikeAnotherIsRefused(t *testing.T) {
	t.Parallel()
	d := startDex(t)
	p := client(d, "argosy", "s3cret")
	attempt, code := signIn(t, d, p, "eve@example.com", "pw-e")
	_, err := p.Finish(t.Context(), attempt, redirect, code)
	refused(t, err, "no usable username")
}

func TestACommandLineSignsInByACode(t *testing.T) {
	t.Parallel()
	d := startDex(t)
	p := client(d, "argosy", "s3cret")
	code, err := p.BeginDevice(t.Context(), "corp")
	if err != nil {
		t.Fatal(err)
	}
	if code.UserCode == "" || !strings.Contains(code.Complete, code.UserCode) ||
		code.Interval < 1 || time.Until(code.ExpiresAt) <= 0 {
		t.Errorf("%+v", code)
	}
	if _, err := p.FinishDevice(t.Context(), "corp", code.Code); !errors.Is(err, view.ErrPending) {
		t.Fatalf("%v", err)
	}
	if _, err := d.SignIn(t.Context(), code.Complete, "alice@example.com", "pw-a"); err != nil {
		t.Fatal(err)
	}
	proven, err := finish(t.Context(), p, code)
	if err != nil || proven.Person.Name != "alice" {
		t.Fatalf("%+v %v", proven.Person, err)
	}
	_, err = p.FinishDevice(t.Context(), "corp", "forged")
	if err == nil || errors.Is(err, view.ErrPending) {
		t.Errorf("a forged code: %v", err)
	}
}

// finish polls as a command line does: Dex counts the polls.
func finish(ctx context.Context, p *signin.Providers, code view.DeviceCode) (view.Proven, error) {
	tick := time.NewTicker(time.Duration(code.Interval) * time.Second)
	defer tick.Stop()
	for {
		proven, err := p.FinishDevice(ctx, "corp", code.Code)
		if !errors.Is(err, view.ErrPending) && !errors.Is(err, view.ErrSlowDown) {
			return proven, err
		}
		select {
		case <-ctx.Done():
			return proven, ctx.Err()
		case <-tick.C:
		}
	}
}

// A Dex with a memory of its own has new keys after a restart.
func TestNewKeysOfTheIssuerAreFetched(t *testing.T) {
	t.Parallel()
	d := startDex(t)
	p := client(d, "argosy", "s3cret")
	attempt, code := signIn(t, d, p, "alice@example.com", "pw-a")
	if _, err := p.Finish(t.Context(), attempt, redirect, code); err != nil {
		t.Fatal(err)
	}
	d.End()
	if _, err := p.Finish(t.Context(), attempt, redirect, code); !errors.Is(err,
		view.ErrProviderDown) {
		t.Errorf("while it is down: %v", err)
	}
	if _, _, err := client(d, "argosy", "s3cret").Begin(t.Context(), "corp",
		redirect); !errors.Is(err, view.ErrProviderDown) {
		t.Errorf("while it is down: %v", err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	attempt, code = signIn(t, d, p, "alice@example.com", "pw-a")
	if _, err := p.Finish(t.Context(), attempt, redirect, code); err != nil {
		t.Errorf("after new keys: %v", err)
	}
}

func TestTheDoctorReportsAProvidersFaults(t *testing.T) {
	t.Parallel()
	d := startDex(t)
	to := func(url string) func(string) string { return func(string) string { return url } }
	p := client(d, "argosy", "s3cret")
	if f := p.Check(t.Context(), to(redirect)); f[0].Problem != "" ||
		!strings.Contains(f[0].OK, redirect) {
		t.Errorf("%+v", f)
	}
	if f := p.Check(t.Context(), to(redirect+"x")); !strings.Contains(f[0].Problem,
		redirect+"x") {
		t.Errorf("an unregistered redirect URL: %+v", f)
	}
	d.End()
	if f := client(d, "argosy", "s3cret").Check(t.Context(), to(redirect)); f[0].Problem == "" ||
		f[0].Fix == "" {
		t.Errorf("a Dex that is down: %+v", f)
	}
}
