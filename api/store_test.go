package api_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/api/wire"
	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/placement"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler"
	"argosy.dev/argosy/reconciler/plan"
	"argosy.dev/argosy/reconciler/postgres"
	"argosy.dev/argosy/reconciler/postgres/embedded"
)

// The real store implements the API's interfaces.
var _ anyStore = (*realStore)(nil)

// asJSON renders an object as JSON: these tests do not depend on the manifests.
type asJSON struct{ argocd.Renderer }

func (asJSON) Render(_ fleet.EngineSpec, o fleet.Object) (fleet.Manifest, error) {
	body, err := json.Marshal(o)
	sum := sha256.Sum256(body)
	return fleet.Manifest{Body: body, Hash: hex.EncodeToString(sum[:])}, err
}

const engineText = `apiVersion: argosy.dev/v1alpha1
kind: Engine
metadata: {name: eu-1}
spec:
  argocd: {namespace: argocd-eu-1, installationID: eu-1}
  connection: {inCluster: true}
  region: eu
  capacity: {applications: 100, environments: 10}
`

// declarations returns the files of a fleet of these tenants, each with one environment, three
// deployments and one bad file.
func declarations(tenants ...string) map[string]string {
	head := func(kind, name string) string {
		return "apiVersion: argosy.dev/v1alpha1\nkind: " + kind + "\nmetadata: {name: " + name +
			"}\nspec:\n"
	}
	files := map[string]string{
		"fleet/fleet.yaml":        head("Fleet", "fleet") + "  gitHosts: [git.example.com]\n",
		"fleet/engines/eu-1.yaml": engineText,
	}
	for _, t := range tenants {
		files["fleet/tenants/"+t+".yaml"] = head("Tenant", t) + "  owners: [\"group:" + t +
			"\"]\n  quota: {environments: 5, deployments: 9, applications: 9}\n" +
			"  repositories: [\"https://git.example.com/" + t + "/\"]\n  clusters: [\"https://" +
			t + ".example.com\"]\n"
		files["tenants/"+t+"/environments/prod.yaml"] = head("ManagedEnvironment", "prod") +
			"  cluster: {server: \"https://" + t +
			".example.com\", credentialsRef: {name: prod}}\n" +
			"  namespaces: [web]\n  region: eu\n"
		for _, d := range []string{"web", "cart", "mail"} {
			files["tenants/"+t+"/deployments/"+d+".yaml"] = deployment(t, d, "prod")
		}
		files["tenants/"+t+"/deployments/bad.yaml"] = deployment(t, "bad", "nowhere")
	}
	return files
}

func deployment(tenant, name, environment string) string {
	return "apiVersion: argosy.dev/v1alpha1\nkind: GitOpsDeployment\nmetadata: {name: " + name +
		"}\nspec:\n  source: {repoURL: \"https://git.example.com/" +
		tenant + "/" + name +
		"\", path: deploy, targetRevision: main}\n  destination: {environments: [" + environment +
		"], namespace: web}\n"
}

type realStore struct {
	*postgres.Views
	*postgres.Decisions
	*postgres.Tokens
	*reconciler.Simulator
}

// recorded is an API over a real store with a recorded fleet of these tenants.
func recorded(t *testing.T, database string, tenants ...string) *site {
	t.Helper()
	if _, err := postgres.Migrate(t.Context(), database); err != nil {
		t.Fatal(err)
	}
	store, err := postgres.Open(t.Context(), database, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	var inputs []catalog.Input
	for path, text := range declarations(tenants...) {
		sum := sha256.Sum256([]byte(text))
		d := configschema.Decode(configschema.File{Path: path, Bytes: []byte(text),
			Blob: hex.EncodeToString(sum[:20])})
		inputs = append(inputs, catalog.Input{Key: d.Key, Path: d.Path, Blob: d.Blob,
			Declaration: d.Declaration, Problems: d.Problems})
	}
	p, err := plan.NewAppliedState().Compute(
		plan.Request{Revision: rev1, Files: inputs, Now: time.Now()},
		asJSON{})
	if err != nil {
		t.Fatal(err)
	}
	lease, ok, err := store.Leases.Acquire(t.Context(), "reconciler", "test", time.Hour)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	record := p.Record()
	record.Author, record.Subject, record.CommittedAt = "Ana", "first", time.Now()
	if _, err := store.Plans.Record(t.Context(), lease, record); err != nil {
		t.Fatal(err)
	}
	return newSiteOver(t, &realStore{store.Views, store.Decisions, store.Tokens,
		reconciler.NewSimulator(store.Plans, store.Views, store.Views)})
}

// token creates a token in the real store.
func (s *site) token(tenant fleet.TenantName) string {
	s.t.Helper()
	_, plaintext, err := s.tokens.CreateToken(s.t.Context(), view.Token{Name: "ci", Tenant: tenant,
		Role: view.RoleWrite, CreatedBy: "test"})
	if err != nil {
		s.t.Fatal(err)
	}
	return plaintext
}

func TestTheAPIOverTheRealStore(t *testing.T) {
	// short: the length of a socket's path is limited
	dir, err := os.MkdirTemp("", "argosy-api-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	start := func(name string) string {
		server, err := embedded.StartWith(context.Background(), dir+"/"+name, embedded.Options{
			Set: []string{"fsync=off", "synchronous_commit=off", "full_page_writes=off"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { server.Stop() })
		return server.URL
	}
	both, alone := recorded(t, start("a"), "acme", "globex"), recorded(t, start("b"), "acme")
	platform, acme, lonely := both.token(""), both.token("acme"), alone.token("acme")

	t.Run("every list is complete when read one by one", func(t *testing.T) {
		both := both.in(t)
		for list, want := range map[string]int{"tenants": 2, "environments": 2, "deployments": 6,
			"applications": 6, "engines": 1, "revisions": 1, "problems": 2, "operations": 1} {
			seen := map[string]bool{}
			for next := ""; ; {
				a := both.get("/"+list+"?limit=1&after="+next, platform)
				both.want(a, http.StatusOK)
				page := decode[wire.List[json.RawMessage]](t, a)
				for _, item := range page.Items {
					seen[string(item)] = true
				}
				if next = page.Next; next == "" || len(seen) > want {
					break
				}
			}
			if len(seen) != want {
				t.Errorf("%s: %d items, not %d", list, len(seen), want)
			}
		}
	})
	t.Run("a simulation reads the recorded fleet and records nothing", func(t *testing.T) {
		both := both.in(t)
		a := both.get("/simulate?change=join&engine=eu-2&like=eu-1", platform)
		both.want(a, http.StatusOK)
		out := decode[placement.Outcome](t, a)
		load := fleet.EngineLoad{Applications: 3, Environments: 1}
		if len(out.Moves) != 1 || out.Moves[0].To != "eu-2" || out.Moves[0].Unready != 3 ||
			len(out.Engines) != 2 || out.Engines[0].Before != (fleet.EngineLoad{Applications: 6,
			Environments: 2}) || out.Engines[0].After != load || out.Engines[1].After != load {
			t.Errorf("%s", a.body)
		}
		a = both.get("/simulate?change=drain&engine=eu-1", platform)
		both.want(a, http.StatusOK)
		if out = decode[placement.Outcome](t, a); len(out.Moves) != 0 || len(out.Left) != 2 ||
			out.Left[0].Reason != "no engine may serve it: one is draining and takes nothing new" {
			t.Errorf("%s", a.body)
		}
		if again := both.get("/simulate?change=drain&engine=eu-1", platform); again.body != a.body {
			t.Errorf("%s, then %s", a.body, again.body)
		}
	})
	t.Run("another tenant's object is answered like a missing one", func(t *testing.T) {
		both := both.in(t)
		for _, path := range globexPaths[:5] {
			both.want(both.get(path, platform), http.StatusOK)
			with, without := both.get(path, acme), alone.get(path, lonely)
			both.want(with, http.StatusNotFound)
			if with.whole() != without.whole() {
				t.Errorf("%s: they differ:\n%s\n---\n%s", path, with.whole(),
					without.whole())
			}
		}
		for _, list := range []string{"tenants", "environments", "deployments", "applications",
			"operations", "problems", "holds", "stops"} {
			a := both.get("/"+list, acme)
			both.want(a, http.StatusOK)
			if strings.Contains(a.body, "globex") {
				t.Errorf("%s: %s", list, a.body)
			}
		}
		both.want(both.get("/applications?environment=prod&sync=Unknown&deployment=web", acme),
			http.StatusOK, `"tenant":"acme"`)
	})
	t.Run("a cursor of another list is refused", func(t *testing.T) {
		both := both.in(t)
		next := decode[wire.List[any]](t, both.get("/applications?limit=1", platform)).Next
		both.want(both.get("/deployments?after="+next, platform), http.StatusBadRequest, "cursor")
	})
	t.Run("a decision is recorded and sent as an event", func(t *testing.T) {
		both := both.in(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		lines, _ := both.follow(ctx, platform, "")
		until(t, lines, "event: open")
		both.want(both.do(http.MethodPost, wire.Base+"/stop", acme,
			`{"scope":"tenant","name":"acme"}`), http.StatusOK, "token:acme/ci")
		both.server.Wake()
		until(t, lines, "event: stop")
		both.want(both.get("/tenants/acme", acme), http.StatusOK, `"stopped":true`)
		both.want(both.do(http.MethodPost, wire.Base+"/resume", acme,
			`{"scope":"tenant","name":"acme"}`), http.StatusOK, `"ended":true`)
		both.want(both.get("/operations", acme), http.StatusOK, `"kind":"Stop"`, `"kind":"Resume"`)
		both.want(both.get("/holds", platform), http.StatusOK, `"items":[]`)
	})
	t.Run("pages read from it", func(t *testing.T) {
		both := both.in(t)
		for _, path := range []string{"/", "/tenants/acme", "/engines/eu-1",
			"/tenants/acme/environments/prod", "/tenants/acme/applications/web/prod",
			"/applications"} {
			both.want(both.page(path, platform), http.StatusOK, "acme")
		}
	})
	t.Run("a revoked token is refused", func(t *testing.T) {
		both := both.in(t)
		id := decode[wire.List[view.Token]](t, both.get("/tokens", platform)).Items
		for _, token := range id {
			if token.Tenant == "acme" {
				both.want(both.do(http.MethodDelete, wire.Base+"/tokens/"+token.ID, platform, ""),
					http.StatusNoContent)
			}
		}
		both.want(both.get("/tenants", acme), http.StatusUnauthorized)
	})
}
