package webhook_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/webhook"
	"argosy.dev/argosy/webhook/github/githubtest"
)

// reviewAll runs the requested review jobs until none is left: pull requests that kept requesting
// each other would never end.
func (h *harbor) reviewAll() {
	h.Helper()
	for range 20 {
		if len(h.records.asked) == 0 {
			return
		}
		next := h.records.asked[0]
		h.records.asked = h.records.asked[1:]
		if err := h.Recheck(h.Context(), next); err != nil {
			h.Fatal(err)
		}
	}
	h.Fatal("rechecks ask for rechecks without end")
}

func (h *harbor) commentOf(number int) string {
	for _, text := range h.repo.Comments(number) {
		if strings.HasPrefix(text, "<!--") {
			return text
		}
	}
	return ""
}

// filed is a planner that has the files of each pull request apart.
type filed struct {
	*planner
	files map[string][]string // by ref; others change what the planner's answer does
}

func (p filed) Preview(ctx context.Context, ref string, head fleet.Revision,
	lists func(fleet.TenantName) bool) (webhook.Preview, error) {
	out, err := p.planner.Preview(ctx, ref, head, lists)
	if files, ok := p.files[ref]; ok {
		out.Files = files
	}
	return out, err
}

func TestBothPullRequestsOfACollisionNameIt(t *testing.T) {
	for name, end := range map[string]func(h *harbor, second *githubtest.Pull){
		"until one changes something else": func(h *harbor, second *githubtest.Pull) {
			second.Push()
			h.Planner = filed{
				h.planner, map[string][]string{fmt.Sprintf("refs/pull/%d/head", second.Number): {
					"tenants/acme/deployments/another.yaml"}}}
		},
		"until one is closed": func(_ *harbor, second *githubtest.Pull) { second.Close() },
		"until one is merged": func(_ *harbor, second *githubtest.Pull) { second.Merge(1) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarbor(t)
			h.open(h.alice, h.repo)
			first := h.pullRequest
			h.review()
			h.open(h.bob, h.repo)
			second := h.pullRequest
			h.review()
			h.reviewAll()
			names := func(of, other *githubtest.Pull) bool {
				return strings.Contains(h.commentOf(of.Number),
					fmt.Sprintf("#%d changes", other.Number))
			}
			if !names(first, second) || !names(second, first) {
				t.Fatalf("one does not name the other:\n%s\n%s", h.commentOf(first.Number),
					h.commentOf(second.Number))
			}
			end(h, second)
			h.review()
			h.reviewAll()
			if names(first, second) || names(second, first) {
				t.Errorf("an ended collision is still named:\n%s\n%s", h.commentOf(first.Number),
					h.commentOf(second.Number))
			}
			if r := h.records.pulls[first.Number]; len(r.Meets) != 0 || r.State != forge.PullOpen {
				t.Errorf("the record of the other is %+v", r)
			}
		})
	}
}
