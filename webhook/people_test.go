package webhook_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/webhook/github/githubtest"
)

// later lets the cache of accounts expire.
func (h *harbor) later() { h.now = h.now.Add(2 * time.Minute) }

func (h *harbor) consents() bool {
	h.Helper()
	h.review()
	return h.state(forge.CheckOwners) == "success" && h.record().Consented != ""
}

// An account that takes an owner's login does not count. The report gives the reason and the fix,
// until the platform releases that account.
func TestALoginThatAnotherAccountTookDoesNotCountUntilItIsReleased(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.review() // alice is pinned
	h.server.Rename(h.alice, "alice-gone")
	thief := h.server.User("alice")
	h.later()
	h.pullRequest.Review(thief, "APPROVED")
	if h.consents() {
		t.Fatal("the account that took the owner's login counts as the owner")
	}
	text := strings.Join(h.ours(), "\n")
	for _, want := range []string{"`alice` is another one than before",
		"argosy pin-owner alice --id " + number(thief.ID), "it was " + number(h.alice.ID)} {
		if !strings.Contains(strings.ToLower(text), strings.ToLower(want)) {
			t.Errorf("%q is not reported:\n%s", want, text)
		}
	}
	h.records.pins["alice"] = thief.ID // released
	h.later()
	if !h.consents() {
		t.Error("an account that was released does not count")
	}
}

// A taken login gains nothing, not even for the platform's owners, who count for a tenant without
// an owner.
func TestATakenLoginDoesNotPassTheOwnershipOn(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.review()
	h.server.Rename(h.alice, "alice-gone")
	h.server.User("alice")
	h.later()
	h.pullRequest.Review(h.self, "APPROVED") // the repository's administrator
	if h.consents() {
		t.Error("another account counts as an owner whose login was taken")
	}
}

// A host that is away, or that has no such account for a while, changes no pin.
func TestAHostThatIsAwayKeepsThePin(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.review()
	fix := h.server.Break("GET /users/alice", githubtest.HTML(http.StatusBadGateway))
	h.later()
	if err := h.try(); err == nil {
		t.Error("a pull request is judged without its owners")
	}
	fix()
	h.server.Rename(h.alice, "alice-gone")
	h.later()
	h.review() // no account has the login
	thief := h.server.User("alice")
	h.pullRequest.Review(thief, "APPROVED")
	h.later()
	if h.consents() || h.records.pins["alice"] != h.alice.ID {
		t.Errorf("after a while without an account alice is pinned to %d, not %d",
			h.records.pins["alice"], h.alice.ID)
	}
	h.server.Leave(thief)
	h.server.Rename(h.alice, "alice")
	h.pullRequest.Review(h.alice, "APPROVED")
	h.later()
	if !h.consents() {
		t.Error("the pinned account has its login again and does not count")
	}
}

// Without the store, pins of names are unknown.
func TestNoOwnerCountsWithoutTheStore(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.records.pinFails = true
	h.pullRequest.Review(h.alice, "APPROVED")
	if err := h.try(); err == nil || h.records.pulls[h.pullRequest.Number].Consented != "" {
		t.Errorf("without pins it is judged (%v)", err)
	}
}

// Direct pushes of an account that took a listed login are held, and so are those of a team's
// members that took a listed team's name.
func TestDirectPushesOfATakenNameDoNotCount(t *testing.T) {
	h := newHarbor(t)
	h.server.Team("acme", "platform", "", h.bob, h.self)
	h.DirectPush = []string{"github:alice", "github:acme/platform"}
	after := fleet.Revision(strings.Repeat("ab", 20))
	brought := commit(after, contents{file: "2"})
	pushedBy := func(a *githubtest.Account) bool {
		h.later()
		h.records.pushes = []forge.Push{
			{Before: "base", After: after, By: forge.Person{ID: a.ID, Login: a.Login},
				At: h.now.Add(-time.Minute)}}
		return len(h.paths(brought)) > 0
	}
	if !pushedBy(h.alice) || !pushedBy(h.bob) {
		t.Fatal("a listed account's push does not count")
	}
	h.server.Rename(h.alice, "alice-gone")
	if thief := h.server.User("alice"); pushedBy(thief) {
		t.Error("the account that took the login pushes as reviewed")
	}
	h.server.Team("acme", "platform", "", h.bob, h.self) // created again with another number
	if pushedBy(h.bob) {
		t.Error("a team that took the name pushes as reviewed")
	}
}

func number(n int64) string { return strconv.FormatInt(n, 10) }
