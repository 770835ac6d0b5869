package server

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/api"
	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/cmd/argosy/settings"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/hub"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/worker"
)

// front is what listen.address answers, over a store in memory, with everything that it logs.
func front(t *testing.T, s settings.Settings, more func(*Server)) (*httptest.Server,
	*bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	store := apitest.New(apitest.Mirror{})
	v := &Server{
		settings: s,
		log:      slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	v.api = api.New(api.Config{
		Reader: api.Reader{Inventory: store, History: store, State: store, PullReader: store,
			AuditReader: store, Finder: store, Simulator: store},
		Decider: store, Tokens: store, Agents: store,
		Log: v.log})
	if more != nil {
		more(v)
	}
	web := httptest.NewServer(v.front())
	t.Cleanup(web.Close)
	return web, &log
}

func ask(t *testing.T, method, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

func TestWithoutAPublicURLAgentsGetTheOperatorsNextStep(t *testing.T) {
	for name, c := range map[string]struct {
		agents settings.Agents
		answer string
	}{"no URL": {settings.Agents{Enabled: true, ConnectRate: 1}, "listen.publicURL"},
		"switched off": {settings.Agents{ConnectRate: 1}, "switched off"}} {
		web, _ := front(t, settings.Settings{Agents: c.agents}, nil)
		for _, path := range agentPaths {
			method := http.MethodPost
			if path == agent.PathSnapshot || path == agent.PathStream || path == agent.PathProbe {
				method = http.MethodGet
			}
			if status, body := ask(t, method,
				web.URL+path); status != http.StatusServiceUnavailable ||
				!strings.Contains(body, c.answer) {
				t.Errorf("%s: %s answers %d %s", name, path, status, body)
			}
		}
		if status, _ := ask(t, http.MethodGet,
			web.URL+"/api/v1/agents"); status != http.StatusUnauthorized {
			t.Errorf("%s: people's list answers %d", name, status)
		}
	}
}

// emptyStore has no agents.
type emptyStore struct {
	hub.Identities
	hub.Sessions
	hub.Rows
	hub.Changes
	hub.Reports
	hub.Inspections
}

func (emptyStore) LegacyToken(context.Context, string) (registry.Token, error) {
	return registry.Token{}, mirror.ErrNotFound
}

func emptyAgentStore() hub.Store {
	var s emptyStore
	return hub.Store{Identities: s, Sessions: s, Rows: s, Changes: s, Reports: s, Inspections: s}
}

type noSecrets struct{}

func (noSecrets) Get(context.Context, fleet.CredentialSource) (fleet.Secret, error) {
	return fleet.Secret{}, mirror.ErrNotFound
}

// A token in a path reaches no log of ours, whether the older route is on or off, and however the
// path is written.
func TestATokenInAPathIsInNoLog(t *testing.T) {
	const token = "0123456789abcdef0123456789abcdef"
	for name, legacy := range map[string]bool{"off": false, "on": true} {
		web, log := front(t, settings.Settings{}, func(v *Server) {
			made, err := hub.New(hub.Config{Store: emptyAgentStore(), Secrets: noSecrets{},
				Stops: worker.NewStopBoard(), PublicURL: "https://argosy.example.com",
				Replica:         "r",
				LegacyTokenPath: legacy, Log: v.log})
			if err != nil {
				t.Fatal(err)
			}
			v.hub = made
		})
		for _, path := range []string{"/api/v1/cluster/" + token + "/applications",
			"/api/v1/cluster//" + token + "/applications", "/api/v1/cluster/" + token +
				"/applications/stream",
			"/api/v1/cluster/%2e%2e/" + token, "/api/v1/agents/join?token=" + token} {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				if status, _ := ask(t, method, web.URL+path); status < 400 {
					t.Errorf("%s: %s %s answers %d", name, method, path, status)
				}
			}
		}
		web.Close()
		if log.Len() == 0 {
			t.Errorf("%s: nothing was logged, so that nothing was shown", name)
		}
		if strings.Contains(log.String(), token) {
			t.Errorf("%s: the token is in the log: %s", name, log)
		}
	}
}

func TestTheDoctorNamesAgentsThatAreAmiss(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) *time.Time { t := now.Add(d); return &t }
	for name, c := range map[string]struct {
		is   view.Agent
		want string
	}{
		"an agent that has not joined": {view.Agent{}, ""},
		"one that is connected": {
			view.Agent{ID: "a", Connected: true, SeenAt: at(-time.Second)}, ""},
		"one that was there just now": {view.Agent{ID: "a", SeenAt: at(-time.Minute)}, ""},
		"one that was revoked": {
			view.Agent{ID: "a", RevokedAt: at(-time.Hour), SeenAt: at(-time.Hour)}, ""},
		"one that is gone": {view.Agent{ID: "a", SeenAt: at(-3 * time.Hour)},
			"last seen 3h ago"},
		"one that never came": {view.Agent{ID: "a"}, "never connected"},
		"one that was copied": {view.Agent{ID: "a", Cloned: true, Connected: true},
			"two processes"},
		"one that has expired": {
			view.Agent{ID: "a", ExpiresAt: at(-time.Hour), SeenAt: at(-time.Second)},
			"expired"},
	} {
		if got := amiss(c.is, now); !strings.Contains(got, c.want) ||
			(c.want == "") != (got == "") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
