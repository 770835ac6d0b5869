package reconciler_test

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/deliver"
)

// inbox is a receiver of webhooks over TLS.
type inbox struct {
	*httptest.Server
	mu  sync.Mutex
	ids map[string]bool
	got []string // titles of the events, in order
}

func newInbox(t *testing.T) *inbox {
	in := &inbox{ids: map[string]bool{}}
	in.Server = httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var e struct {
			ID   string
			Data struct {
				Events []struct{ ID, Title string }
				More   int
			}
		}
		if err := json.Unmarshal(body, &e); err != nil {
			t.Error(err)
		}
		id := r.Header.Get("Webhook-Id")
		want := "v1," + deliver.Sign([]byte("canary-of-a-signing-key-"), id,
			r.Header.Get("Webhook-Timestamp"), body)
		if got := r.Header.Get("Webhook-Signature"); got != want || id != e.ID {
			t.Errorf("signature %q of message %q, want %q", got, id, want)
		}
		in.mu.Lock()
		defer in.mu.Unlock()
		if in.ids[id] {
			return // a receiver drops what it has seen
		}
		in.ids[id] = true
		for _, event := range e.Data.Events {
			in.got = append(in.got, event.Title)
		}
	}))
	t.Cleanup(in.Close)
	return in
}

func (in *inbox) host() string { return strings.TrimPrefix(in.URL, "https://") }

func (in *inbox) sender() *deliver.Sender {
	roots := x509.NewCertPool()
	roots.AddCert(in.Certificate())
	return &deliver.Sender{Roots: roots}
}

// has waits for exactly these events.
func (in *inbox) has(h *house, want ...string) {
	h.t.Helper()
	h.eventually("messages", func() error {
		in.mu.Lock()
		defer in.mu.Unlock()
		got := slices.Clone(in.got)
		if slices.Equal(got, want) {
			return nil
		}
		return fmt.Errorf("got %q, want %q", got, want)
	})
}

func notified(in *inbox, files map[string]string) map[string]string {
	files["fleet/fleet.yaml"] += fmt.Sprintf(
		"\n  notifications: {allowedHosts: [%q], privateHosts: [%q]}\n", in.host(), in.host())
	files["tenants/acme/notifications.yaml"] = document("TenantNotifications", "notifications",
		fmt.Sprintf("channels: [{name: hook, webhook: {url: %q, credentialsRef: {name: hook}}}]\n"+
			"  subscriptions: [{name: all, channels: [hook], triggers: [{when: Degraded, for: 1s}, "+
			"{when: HealthyAgain}, {when: SyncFailed}]}]", in.URL+"/in"))
	return files
}

func (h *house) health(id, health string) {
	h.t.Helper()
	a := h.application(id)
	h.engines[a.Engine].server.Merge(fleet.ObjectKey{Engine: a.Engine,
		Kind: fleet.ObjectApplication, Name: a.Name},
		`{"status":{"health":{"status":"`+health+`"}}}`)
}

func TestADegradedApplicationIsAMessageAndItsRecoveryAnother(t *testing.T) {
	t.Parallel()
	in := newInbox(t)
	h := newHouse(t, notified(in, together(platform(), tenant("acme", "prod"),
		deployment("acme", "web", "v1", "Delete", "prod"))))
	first := h.start("a", options{sender: in.sender()})
	h.eventually("the first state", h.converged)
	h.health("acme/web@prod", "Healthy")
	h.health("acme/web@prod", "Degraded")
	in.has(h, "acme/web@prod is Degraded")

	// The next leader repeats nothing, and knows what the first one sent.
	first.stop()
	h.start("b", options{sender: in.sender()})
	h.eventually("the second replica follows the engine", func() error {
		h.health("acme/web@prod", "Healthy")
		if got := h.application("acme/web@prod").Health; got != mirror.HealthHealthy {
			return fmt.Errorf("health is %s", got)
		}
		return nil
	})
	in.has(h, "acme/web@prod is Degraded", "acme/web@prod is well again")
	h.eventually("the record", func() error {
		all, _, err := h.store.Views.Notifications(t.Context(), view.Scope{Tenant: "acme"},
			view.Filter{}, view.Page{Limit: 10})
		if err != nil || len(all) != 2 {
			return fmt.Errorf("%d notifications, %w", len(all), err)
		}
		for _, n := range all {
			if n.State != mirror.NotificationSent || n.Answer != "200 OK" || n.Attempts != 1 {
				return fmt.Errorf("%+v", n)
			}
		}
		return nil
	})
}

func TestATestMessageShowsWhatTheReceiverAnswers(t *testing.T) {
	t.Parallel()
	in := newInbox(t)
	h := newHouse(t, notified(in, together(platform(), tenant("acme", "prod"))))
	h.start("a", options{sender: in.sender()})
	h.eventually("the first state", h.converged)
	state := func(channel string) mirror.NotificationState {
		all, _, err := h.store.Views.Notifications(t.Context(), view.Scope{},
			view.Filter{Tenant: "acme", Name: channel}, view.Page{Limit: 10})
		if err != nil || len(all) != 1 {
			t.Fatalf("%d notifications, %v", len(all), err)
		}
		return all[0].State
	}
	for channel, want := range map[string]mirror.NotificationState{
		"hook": mirror.NotificationSent, "nowhere": mirror.NotificationDropped} {
		if _, err := h.store.Decisions.TestChannel(t.Context(), "acme", channel,
			"ann"); err != nil {
			t.Fatal(err)
		}
		h.eventually("the test of "+channel, func() error {
			if got := state(channel); got != want {
				return fmt.Errorf("it is %s, want %s", got, want)
			}
			return nil
		})
	}
	in.has(h, "test message of Argosy")
}
