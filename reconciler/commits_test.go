package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/notify"
)

// gitHosts keep what is reported.
type gitHosts struct {
	mu     sync.Mutex
	got    []string // "acme/web@prod aaaa Succeeded", in order
	secret string   // that the last report came with
	lost   bool     // the next answer is lost, as when a replica dies
}

// ReportCommit implements reconciler.CommitReporter.
func (g *gitHosts) ReportCommit(_ context.Context, d notify.CommitDelivery) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := d.Report
	text := fmt.Sprintf("%s %s %s", r.Of(), r.Commit[:4], r.State)
	if len(g.got) == 0 || g.got[len(g.got)-1] != text { // a report is written again, and once
		g.got = append(g.got, text)
	}
	g.secret = string(d.Secret.Value("token"))
	if g.lost {
		g.lost = false
		return "", errors.New("connection reset")
	}
	return "status written", nil
}

// has waits for exactly these reports.
func (g *gitHosts) has(h *house, want ...string) {
	h.t.Helper()
	h.eventually("reports of commits", func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		if slices.Equal(g.got, want) {
			return nil
		}
		return fmt.Errorf("got %q, want %q", g.got, want)
	})
}

func reporting(files map[string]string) map[string]string {
	files["fleet/fleet.yaml"] += "\n  notifications: {allowedHosts: [git.example.com]}\n"
	files["tenants/acme/notifications.yaml"] = document("TenantNotifications", "notifications",
		"commitStatuses: [{name: git, repositories: [\"https://git.example.com/acme/\"], "+
			"api: Gitea, credentialsRef: {name: statuses}}]")
	return files
}

// deployed sets what Argo CD reports of an Application, compared as it is declared.
func (h *house) deployed(id, commit, sync, health, phase string) {
	h.t.Helper()
	a := h.application(id)
	key := fleet.ObjectKey{Engine: a.Engine, Kind: fleet.ObjectApplication, Name: a.Name}
	server := h.engines[a.Engine].server
	server.Merge(key, fmt.Sprintf(`{"status": {"health": {"status": %q}, "sync": {"status": %q,
		"revision": %q, "comparedTo": {"source": %s}}, "operationState": {"phase": %q,
		"syncResult": {"revision": %q}}}}`, health, sync, commit,
		server.Field(key, "spec.source"), phase, commit))
}

func TestCommitsAreReportedOnceAlthoughTheLeaderChangesAndTheMirrorIsRebuilt(t *testing.T) {
	g := &gitHosts{}
	h := newHouse(t, reporting(together(platform(), tenant("acme", "prod"),
		deployment("acme", "web", "v1", "Delete", "prod"))))
	first := h.start("a", options{commits: g})
	h.eventually("the first state", h.converged)
	a, b := strings.Repeat("a", 40), strings.Repeat("b", 40)
	h.deployed("acme/web@prod", a, "OutOfSync", "Missing", "Running")
	g.has(h, "acme/web@prod aaaa InProgress")
	h.deployed("acme/web@prod", a, "Synced", "Healthy", "Succeeded")
	want := []string{"acme/web@prod aaaa InProgress", "acme/web@prod aaaa Succeeded"}
	g.has(h, want...)
	g.mu.Lock()
	if !strings.HasPrefix(g.secret, "canary") {
		t.Errorf("the report came with the secret %q", g.secret)
	}
	g.mu.Unlock()

	// another leader, and a mirror that is rebuilt: nothing is reported again, and nothing ends
	first.stop()
	if err := h.store.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.start("b", options{commits: g})
	h.eventually("the mirror is rebuilt", h.converged)
	h.eventually("the second replica follows the engine", func() error {
		h.deployed("acme/web@prod", b, "Synced", "Healthy", "Failed") // a hook failed
		all, _, err := h.store.Views.CommitStatuses(t.Context(), view.Scope{}, view.Filter{},
			view.Page{Limit: 10})
		if err != nil || len(all) != 2 {
			return fmt.Errorf("%d commits, %w", len(all), err)
		}
		return nil
	})
	want = append(want, "acme/web@prod bbbb Failed")
	g.has(h, want...)

	h.commit("remove", map[string]string{"tenants/acme/deployments/web.yaml": ""})
	h.eventually("both commits end", func() error {
		all, _, err := h.store.Views.CommitStatuses(t.Context(), view.Scope{}, view.Filter{},
			view.Page{Limit: 10})
		if err != nil {
			return err
		}
		for _, c := range all {
			if c.State != mirror.CommitEnded || c.Delivery != mirror.NotificationSent {
				return fmt.Errorf("%s is %s and %s", c.Commit[:4], c.State, c.Delivery)
			}
		}
		return nil
	})
}

func TestALostAnswerOfAGitHostIsAskedForAgain(t *testing.T) {
	g := &gitHosts{lost: true}
	h := newHouse(t, reporting(together(platform(), tenant("acme", "prod"),
		deployment("acme", "web", "v1", "Delete", "prod"))))
	h.start("a", options{commits: g})
	h.eventually("the first state", h.converged)
	h.deployed("acme/web@prod", strings.Repeat("a", 40), "Synced", "Healthy", "Succeeded")
	h.eventually("the second attempt", func() error {
		all, _, err := h.store.Views.CommitStatuses(t.Context(), view.Scope{}, view.Filter{},
			view.Page{Limit: 10})
		if err != nil || len(all) != 1 || all[0].Delivery != mirror.NotificationSent ||
			all[0].Attempts != 2 {
			return fmt.Errorf("%+v, %w", all, err)
		}
		return nil
	})
	g.has(h, "acme/web@prod aaaa Succeeded")
}
