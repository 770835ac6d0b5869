package postgres_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

func TestFiftyUsesOfATokenGiveOneIdentity(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	_, token := k.token(acmeEdge)
	var mu sync.Mutex
	var joined []registry.Agent
	used := 0
	var uses sync.WaitGroup
	for i := range 50 {
		uses.Go(func() {
			a, err := k.Agents.JoinAgent(t.Context(), token, registry.Join{
				Keys:       keys(fmt.Sprint(i)),
				ClusterUID: "u"})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				joined = append(joined, a)
			case errors.Is(err, registry.ErrUsed):
				used++
			default:
				t.Error(err)
			}
		})
	}
	uses.Wait()
	if len(joined) != 1 || used != 49 {
		t.Fatalf("%d joined, %d were refused", len(joined), used)
	}
	expect(t, k.url, `SELECT count(*) FROM agents`, 1)
	expect(t, k.url, `SELECT count(*) FROM audit WHERE action = 'join agent' AND tenant = 'acme'`,
		1)
	expect(t, k.url, `SELECT count(*) FROM audit WHERE action = 'refuse agent' AND tenant = 'acme'`,
		49)
	expect(t, k.url,
		`SELECT count(*) FROM events WHERE kind = 'agent' AND tenant = 'acme' AND name = 'acme.edge'`, 1+1+49)

	t.Run("the same keys again, even after the token ran out, are given the same identity",
		func(t *testing.T) {
			exec(t, k.url, `UPDATE agent_tokens SET expires_at = now() - interval '1 minute'`)
			again, err := k.Agents.JoinAgent(t.Context(), token, registry.Join{
				Keys: joined[0].Keys})
			if err != nil || again.ID != joined[0].ID || again.Engine != acmeEdge ||
				again.Tenant != "acme" || again.Environment != "edge" {
				t.Errorf("%+v, %v", again, err)
			}
			expect(t, k.url, `SELECT count(*) FROM audit WHERE action = 'join agent'`, 1)
		})
}

func TestOtherTokensGiveNoIdentity(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	made, good := k.token(acmeEdge)
	if made.Engine != acmeEdge || made.Tenant != "acme" || made.Environment != "edge" ||
		made.CreatedBy != "ann" {
		t.Errorf("made %+v", made)
	}
	_, expired := k.token(acmeEdge)
	exec(t, k.url, `UPDATE agent_tokens SET expires_at = now() WHERE id <> $1`, made.ID)
	gone, revoked := k.token(acmeEdge)
	check(t, k.Agents.RevokeAgentToken(ctx, view.Scope{Tenant: "acme"}, gone.ID, "ann"))
	_, people, err := k.Tokens.CreateToken(ctx, view.Token{Name: "ci", Tenant: "acme",
		Role: view.RoleWrite})
	check(t, err)
	for name, token := range map[string]string{
		"expired": expired, "revoked": revoked, "a person's": people, "empty": "",
		"another secret": good[:len(good)-1] + "x",
		"no secret":      "argosy_agent_" + made.ID + "_", "long": good + strings.Repeat("x", 1000),
		"NUL": good[:20] + "\x00", "wildcard": "argosy_agent_%_x",
	} {
		if _, err := k.Agents.JoinAgent(ctx, token, registry.Join{Keys: keys("x")}); !errors.Is(err,
			mirror.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := k.Agents.JoinAgent(ctx, good, registry.Join{
		Keys: registry.Keys{Sign: make([]byte, 31), Seal: make([]byte, 32)}}); err == nil ||
		errors.Is(err, mirror.ErrNotFound) {
		t.Errorf("a key of 31 bytes: %v", err)
	}
	if err := k.Agents.RevokeAgentToken(ctx, view.Scope{Tenant: "globex"}, made.ID,
		"eve"); !errors.Is(
		err, mirror.ErrNotFound) {
		t.Errorf("a stranger revokes: %v", err)
	}
	if _, err := k.Tokens.VerifyToken(ctx, good); !errors.Is(err, mirror.ErrNotFound) {
		t.Errorf("a registration token as a person's: %v", err)
	}
	must(k.Agents.JoinAgent(ctx, good, registry.Join{Keys: keys("x")}))(t)
}

func TestDumpOfAgentsHoldsHashesAndPublicKeysOnly(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	_, token := k.token(acmeEdge)
	given := strings.Repeat("0f1e2d3c4b5a6978", 3)
	_, plaintext, err := k.Agents.CreateAgentToken(t.Context(), tokenFor("far-1"), given)
	if err != nil || plaintext != given {
		t.Fatalf("%q, %v", plaintext, err)
	}
	a := must(k.Agents.JoinAgent(t.Context(), token, registry.Join{Keys: keys("x")}))(t)
	access := sha256.Sum256([]byte("the access token"))
	check(t, k.Agents.SaveAccess(t.Context(), a.ID, "jti-1", access, time.Minute))
	dump := one[string](t, k.url, `SELECT string_agg(r, ' ') FROM (
		SELECT agents::text r FROM agents UNION ALL SELECT agent_tokens::text FROM agent_tokens UNION ALL SELECT agent_access::text FROM agent_access
		UNION ALL SELECT audit::text FROM audit UNION ALL SELECT events::text FROM events UNION ALL SELECT operations::text FROM operations) a`)
	secret := token[strings.LastIndex(token, "_")+1:]
	for _, s := range []string{token, secret, given, "the access token",
		hex.EncodeToString([]byte(secret)), hex.EncodeToString([]byte(given))} {
		if strings.Contains(dump, s) {
			t.Errorf("the dump holds %q", s)
		}
	}
	hash := sha256.Sum256([]byte(token))
	for _, h := range [][]byte{hash[:], access[:], a.Keys.Sign, a.Keys.Seal} {
		if !strings.Contains(dump, hex.EncodeToString(h)) {
			t.Errorf("the dump lacks %x", h)
		}
	}
	if len(secret) < 26 {
		t.Errorf("a secret of %d characters has less than 128 bits", len(secret))
	}
}

func TestGivenTokensAreRandomText(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	for _, weak := range []string{"short", strings.Repeat("a", 40), strings.Repeat("ab", 20),
		strings.Repeat("x y z 0 1 2 ", 4), "argosy_agent_abc_" + strings.Repeat("0123456789", 3)} {
		if _, _, err := k.Agents.CreateAgentToken(t.Context(), tokenFor(acmeEdge),
			weak); err == nil {
			t.Errorf("%q is taken", weak)
		}
	}
	good := "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"
	must2(k.Agents.CreateAgentToken(t.Context(), tokenFor(acmeEdge), good))(t)
	if _, _, err := k.Agents.CreateAgentToken(t.Context(), tokenFor("globex.edge"),
		good); !errors.Is(err,
		registry.ErrUsed) {
		t.Errorf("given twice: %v", err)
	}
	a := must(k.Agents.JoinAgent(t.Context(), good, registry.Join{Keys: keys("x")}))(t)
	if a.Engine != acmeEdge {
		t.Errorf("joined %s", a.Engine)
	}
	late := tokenFor(acmeEdge)
	for _, life := range []time.Duration{-time.Second, 31 * 24 * time.Hour} {
		late.ExpiresAt = time.Now().Add(life)
		if _, _, err := k.Agents.CreateAgentToken(t.Context(), late, ""); err == nil {
			t.Errorf("a token for %s is made", life)
		}
	}
	for _, engine := range []fleet.EngineName{"eu-1", "none", "acme.prod", "initech.edge"} {
		if _, _, err := k.Agents.CreateAgentToken(t.Context(), tokenFor(engine), ""); !errors.Is(
			err,
			mirror.ErrNotFound) {
			t.Errorf("%s: %v", engine, err)
		}
	}
}

func must2[A, B any](a A, b B, err error) func(testing.TB) (A, B) {
	return func(t testing.TB) (A, B) {
		t.Helper()
		check(t, err)
		return a, b
	}
}

func TestTokenOfTheOlderRoute(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	_, plain := k.token(acmeEdge)
	legacy := tokenFor(acmeEdge)
	legacy.Legacy, legacy.ExpiresAt = true, time.Now().Add(300*24*time.Hour)
	_, token := must2(
		k.Agents.CreateAgentToken(ctx, legacy, "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"))(
		t)
	got := must(k.Agents.LegacyToken(ctx, token))(t)
	if got.Engine != acmeEdge || got.Environment != "edge" {
		t.Errorf("%+v", got)
	}
	if _, err := k.Agents.LegacyToken(ctx, plain); !errors.Is(err, mirror.ErrNotFound) {
		t.Errorf("a token that is not for it: %v", err)
	}
	if rows := k.rows(acmeEdge); len(rows) != 2 {
		t.Errorf("rows without an agent: %v", rows)
	}
	must(k.Agents.JoinAgent(ctx, token, registry.Join{Keys: keys("x")}))(t)
	must(k.Agents.LegacyToken(ctx, token))(t)
	check(t, k.Agents.RevokeAgent(ctx, view.Scope{}, acmeEdge, "ann"))
	if _, err := k.Agents.LegacyToken(ctx, token); !errors.Is(err, mirror.ErrNotFound) {
		t.Errorf("after the agent was revoked: %v", err)
	}
	if _, err := k.Agents.AgentRows(ctx, acmeEdge, func(mirror.Row) error {
		return nil
	}); !errors.Is(err,
		mirror.ErrNotFound) {
		t.Errorf("rows after that: %v", err)
	}
}

func TestListOfAgentTokens(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	mine, _ := k.token(acmeEdge)
	k.token("globex.edge")
	k.token("far-1")
	for scope, want := range map[view.Scope]int{{}: 3, {Tenant: "acme"}: 1,
		{Tenant: "initech"}: 0} {
		all, _, err := k.Agents.ListAgentTokens(ctx, scope, view.Filter{}, view.Page{Limit: 10})
		check(t, err)
		if len(all) != want || want == 1 && all[0].ID != mine.ID {
			t.Errorf("scope %q: %+v", scope.Tenant, all)
		}
	}
}

// The tenant is removed, and another one takes its name.
func TestNextTenantOfANameInheritsNoAgent(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	a := k.join("acme.own", "own")
	_, unused := k.token("acme.own")
	o := k.open(a, "one")
	hash := sha256.Sum256([]byte("t"))
	check(t, k.Agents.SaveAccess(ctx, a.ID, "j", hash, time.Minute))
	check(
		t,
		k.Agents.RecordOwn(ctx, o.Lease, []mirror.OwnApplication{{Namespace: "argocd", Name: "x"}},
			true))
	tenant := fleet.Key{Kind: fleet.KindTenant, Name: "acme"}
	k.record(
		func(r *mirror.Record) { r.Removed = []fleet.Key{tenant, edge("acme", "own", "").Key} })
	must(k.Agents.Agent(ctx, a.ID))(t) // the agent may still delete the rest on its own cluster
	k.record(func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{tenantDeclaration("acme"),
			edge("acme", "own", fleet.AgentAutonomous)}
	})
	if _, err := k.Agents.Agent(ctx, a.ID); !errors.Is(err, registry.ErrRevoked) {
		t.Errorf("the identity: %v", err)
	}
	if _, err := k.Agents.AccessAgent(ctx, hash); !errors.Is(err, mirror.ErrNotFound) {
		t.Errorf("its access token: %v", err)
	}
	if _, err := k.Agents.JoinAgent(ctx, unused, registry.Join{Keys: keys("y")}); !errors.Is(err,
		mirror.ErrNotFound) {
		t.Errorf("its token: %v", err)
	}
	// even without the revocation, it would belong to the former tenant
	exec(t, k.url, `UPDATE agent_tokens SET revoked_at = NULL`)
	if _, err := k.Agents.JoinAgent(ctx, unused, registry.Join{Keys: keys("y")}); !errors.Is(err,
		mirror.ErrNotFound) {
		t.Errorf("its token by its uid: %v", err)
	}
	if err := k.Agents.RecordOwn(ctx, o.Lease, nil, true); !errors.Is(err, mirror.ErrFenced) {
		t.Errorf("its session: %v", err)
	}
	if _, err := k.Agents.AgentRows(ctx, "acme.own", func(mirror.Row) error {
		return nil
	}); !errors.Is(err,
		mirror.ErrNotFound) {
		t.Errorf("rows: %v", err)
	}
	news := must(k.Agents.AgentNews(ctx, -1, time.Time{}))(t)
	if len(news.Ended) != 1 || news.Ended[0] != a.ID {
		t.Errorf("news %+v", news)
	}
	acme := view.Scope{Tenant: "acme"}
	views, _, err := k.Views.Agents(ctx, acme, view.Filter{Environment: "own"},
		view.Page{Limit: 10})
	check(t, err)
	if len(views) != 1 || views[0].ID != "" {
		t.Errorf("views %+v", views)
	}
	if v := k.view("acme.own"); v.ID != "" {
		t.Errorf("as the platform sees it: %+v", v)
	}
	own, _, err := k.Views.OwnApplications(ctx, view.Scope{}, view.Filter{}, view.Page{Limit: 10})
	if err != nil || len(own) != 0 {
		t.Errorf("own applications %+v, %v", own, err)
	}
	tokens, _, err := k.Agents.ListAgentTokens(ctx, acme, view.Filter{}, view.Page{Limit: 10})
	if err != nil || len(tokens) != 0 {
		t.Errorf("tokens %+v, %v", tokens, err)
	}
}

func TestAgentOfWhatIsNoLongerDeclaredRemovesAndNothingElse(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*mirror.Record){
		"removed": func(r *mirror.Record) { r.Removed = []fleet.Key{edge("acme", "edge", "").Key} },
		"reached in another way": func(r *mirror.Record) {
			r.Declarations = []fleet.Declaration{environmentDeclaration("acme", "edge")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newAgentKit(t)
			k.t = t
			ctx := t.Context()
			a := k.join(acmeEdge, "x")
			_, token := k.token(acmeEdge)
			o := k.open(a, "one")
			k.record(func(r *mirror.Record) {
				change(r)
				gone := application("acme.edge", "acme", "a", "edge", "v1")
				gone.Unwanted = true
				r.Rows = []mirror.Row{gone} // b is held
			})
			if rows := k.rows(acmeEdge); len(rows) != 1 || rows[0] != "acme/a@edge true" {
				t.Errorf("rows %v", rows)
			}
			if err := k.Agents.ReportAgent(ctx, o.Lease, registry.Report{}); !errors.Is(err,
				mirror.ErrFenced) {
				t.Errorf("the session of before: %v", err)
			}
			if _, err := k.Agents.JoinAgent(ctx, token, registry.Join{Keys: keys("y")}); !errors.Is(
				err,
				mirror.ErrNotFound) {
				t.Errorf("join: %v", err)
			}
			next := k.open(a, "one")
			if next.Lease.Epoch <= o.Lease.Epoch || next.ArgoCD.Namespace != "gitops" ||
				next.Generation <= o.Generation {
				t.Errorf("before %+v, after %+v", o, next)
			}
			exec(t, k.url, `DELETE FROM desired WHERE engine = 'acme.edge'`)
			if _, err := k.Agents.OpenAgent(ctx, session(a, "one")); !errors.Is(
				err, mirror.ErrNotFound) {
				t.Errorf("with nothing left: %v", err)
			}
		})
	}
	t.Run("an Engine that the control plane reaches itself is not the agent's any more",
		func(t *testing.T) {
			k := newAgentKit(t)
			k.t = t
			a := k.join("far-1", "x")
			o := k.open(a, "one")
			k.record(func(r *mirror.Record) {
				r.Declarations = []fleet.Declaration{
					engineDeclaration("far-1")}
			})
			if _, err := k.Agents.AgentRows(t.Context(), "far-1", func(mirror.Row) error {
				return nil
			}); !errors.Is(err, mirror.ErrNotFound) {
				t.Errorf("rows: %v", err)
			}
			if _, err := k.Agents.OpenAgent(t.Context(), session(a, "one")); !errors.Is(err,
				mirror.ErrNotFound) {
				t.Errorf("session: %v", err)
			}
			if l := hold(t, k.Store, "engine/far-1"); l.Epoch <= o.Lease.Epoch {
				t.Errorf("the worker's lease %+v, the agent's %+v", l, o.Lease)
			}
		})
}

// The connection is lost before the request arrives, or after COMMIT and before the answer.
func TestAgentsLoseAndDoubleNothing(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]int32{"the request is lost": cutRequest,
		"the answer is lost": cutAnswer} {
		t.Run(name, func(t *testing.T) {
			var between *proxy
			k := agentKitOn(t, newDatabase(t), func(url string) *postgres.Store {
				between = newProxy(t, url)
				return openWith(t, between.url, postgres.Options{Connections: postgres.Connections{
					Workers: 1}})
			})
			ctx := t.Context()
			n := 0
			word := func() string { n++; return fmt.Sprint("w", n) }
			a := k.join(acmeEdge, "first")
			own := k.join("acme.own", "own")
			o, ownSession := k.open(a, "one"), k.open(own, "one")
			check(t, k.Agents.RecordOwn(ctx, ownSession.Lease, []mirror.OwnApplication{
				{Namespace: "argocd", Name: "x"}}, true))
			joins, tokens, syncs := 2, 2, 0
			cuts := func(what string, f func()) {
				f() // prepares its statements
				// Each request is cut once, including COMMIT, until none is left.
				for i := int32(0); ; i++ {
					between.skip.Store(i)
					between.cut.Store(cut)
					f()
					if between.cut.Swap(cutNothing) != cutNothing {
						if i == 0 {
							t.Errorf("%s was not cut", what)
						}
						return
					}
					<-between.Taken
				}
			}
			cuts("CreateAgentToken", func() { tokens++; k.token(acmeEdge) })
			_, spare := k.token("globex.edge")
			tokens++
			cuts("JoinAgent", func() {
				joins++
				tokens++
				a = k.join(acmeEdge, word())
			})
			must(k.Agents.JoinAgent(ctx, spare, registry.Join{Keys: keys("g")}))(t)
			joins++
			cuts("SaveAccess",
				func() {
					check(t, k.Agents.SaveAccess(ctx, a.ID, word(), sha256.Sum256([]byte(word())),
						time.Minute))
				})
			cuts("RotateAgent", func() {
				old := a.Keys.Thumb()
				a = must(k.Agents.RotateAgent(ctx, a.ID, old, keys(word())))(t)
			})
			epoch := k.open(a, "one").Lease.Epoch
			cuts("OpenAgent", func() { o = k.open(a, "one") })
			if o.Lease.Epoch != epoch {
				t.Errorf("epoch %d, then %d of the same process", epoch, o.Lease.Epoch)
			}
			cuts(
				"ReportTaken",
				func() { n++; check(t, k.Agents.ReportTaken(ctx, o.Lease, int64(n))) })
			cuts("AskSync", func() {
				syncs++
				q := must(k.Agents.AskSync(ctx, view.Scope{Tenant: "acme"}, mirror.SyncRequest{
					Tenant: "acme", Environment: "own", Namespace: "argocd",
					Key: fleet.ObjectKey{Name: "x"}}, "ann"))(t)
				exec(t, k.url, `UPDATE syncs SET state = 'Succeeded' WHERE id = $1`, q.ID)
			})
			check(t, k.Agents.RevokeAgent(ctx, view.Scope{}, acmeEdge, "ann"))
			for sql, want := range map[string]int{
				`SELECT count(*) FROM agents`:                                         joins,
				`SELECT count(*) FROM agents WHERE ended_at IS NULL`:                  2,
				`SELECT count(*) FROM audit WHERE action = 'join agent'`:              joins,
				`SELECT count(*) FROM agent_tokens`:                                   tokens,
				`SELECT count(*) FROM audit WHERE action = 'create agent token'`:      tokens,
				`SELECT count(*) FROM syncs WHERE deployment = ''`:                    syncs,
				`SELECT count(*) FROM operations WHERE kind = 'Sync'`:                 syncs,
				`SELECT count(*) FROM audit WHERE action = 'revoke agent'`:            1,
				`SELECT report_seq::int FROM agents WHERE id = '` + a.ID + `'`:        n,
				`SELECT count(*) FROM agent_access WHERE agent = '` + own.ID + `'`:    0,
				`SELECT count(*) FROM audit WHERE action LIKE 'refuse%'`:              0,
				`SELECT count(*) FROM agent_tokens WHERE used_at IS NOT NULL`:         joins,
				`SELECT count(*) FROM leases WHERE holder = '' AND name LIKE '%edge'`: 1,
			} {
				expect(t, k.url, sql, want)
			}
		})
	}
}
