package github

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/webhook/github/githubtest"
)

// classicRules is a branch protection in GitHub's form.
func classicRules(app any) map[string]any {
	return map[string]any{
		"required_status_checks": map[string]any{"contexts": []any{"argosy/plan"}, "checks": []any{
			map[string]any{"context": "argosy/plan", "app_id": app}}},
		"enforce_admins": map[string]any{"enabled": false, "url": "https://github.test/"},
		"required_pull_request_reviews": map[string]any{
			"dismiss_stale_reviews": true, "require_code_owner_reviews": false,
			"bypass_pull_request_allowances": map[string]any{
				"users": []map[string]any{{"id": 7, "login": "petra", "type": "User"}}},
		},
		"allow_force_pushes": map[string]any{"enabled": true}, "allow_deletions": map[string]any{
			"enabled": false},
	}
}

func namesOf(all []forge.Exempt) string {
	var out []string
	for _, e := range all {
		out = append(out, e.Name)
	}
	return strings.Join(out, ", ")
}

// An administrator sees all of a classic branch protection, other readers the required checks.
func TestClassicProtectionIsReadAsFarAsItMayBe(t *testing.T) {
	s := newStage(t, false)
	s.repo.Protect(classicRules(nil))
	p, err := s.forge().Protection(t.Context(), "main")
	if err != nil || !slices.Equal(p.Checks, []forge.RequiredCheck{{Name: "argosy/plan"}}) ||
		!p.PullRequests || !p.DismissesStale || p.RefusesForce || !p.RefusesDeletion {
		t.Errorf("an administrator reads %+v (%v)", p, err)
	}
	if namesOf(p.Pushers) != "petra, administrators of the repository" ||
		namesOf(p.Overriders) != "administrators of the repository" ||
		p.Unread != (forge.Unread{}) {
		t.Errorf("exempt are %s and %s; unread: %+v", namesOf(p.Pushers), namesOf(p.Overriders),
			p.Unread)
	}
	if p.AutoMerge == nil || *p.AutoMerge || len(p.Styles) != 3 || !p.Styles[forge.MergeRebase] {
		t.Errorf("the settings for merges are %+v", p)
	}

	s.repo.Grant(s.self, "read")
	p, err = s.forge().Protection(t.Context(), "main")
	if err != nil || !slices.Equal(p.Checks, []forge.RequiredCheck{{Name: "argosy/plan"}}) ||
		p.PullRequests || p.RefusesForce || len(p.Styles) != 0 || p.AutoMerge != nil {
		t.Errorf("a reader reads %+v (%v)", p, err)
	}
	for _, unread := range []string{p.Unread.Rules, p.Unread.Exempt, p.Unread.Settings} {
		if !strings.Contains(unread, "permission") {
			t.Errorf("a reader's unread settings are %+v", p.Unread)
		}
	}
}

// An App is shown a branch protection only with a permission that Argosy asks for where it was
// granted.
func TestAppIsShownTheProtectionWithAdministration(t *testing.T) {
	s := newStage(t, true)
	s.repo.Protect(classicRules(s.app.ID))
	p, err := s.forge().Protection(t.Context(), "main")
	if err != nil || !strings.Contains(p.Unread.Rules, "Administration: read") ||
		p.App != s.app.ID || !slices.Equal(p.Checks, []forge.RequiredCheck{
		{Name: "argosy/plan", App: s.app.ID}}) {
		t.Errorf("without the permission it is read as %+v (%v)", p, err)
	}
	more := s.server.App("argosy-more")
	granted := maps.Clone(githubtest.Everything())
	granted["administration"] = "write"
	more.Install(granted, s.repo)
	s.app = more
	p, err = s.forge().Protection(t.Context(), "main")
	if err != nil || p.Unread.Rules != "" || p.Unread.Exempt != "" || !p.PullRequests {
		t.Errorf("with the permission it is read as %+v (%v)", p, err)
	}
}

// An account exempt from one of two rulesets is bound by the other.
func TestAnAccountIsExemptIfEveryRulesetLetsItPass(t *testing.T) {
	s := newStage(t, false)
	pulls := map[string]any{"type": "pull_request", "parameters": map[string]any{
		"dismiss_stale_reviews_on_push": false, "require_code_owner_review": false,
		"require_last_push_approval":      false,
		"required_approving_review_count": 1, "required_review_thread_resolution": false,
	}}
	alice := map[string]any{"actor_id": s.cast.Admin.ID, "actor_type": "User",
		"bypass_mode": "always"}
	keys := map[string]any{"actor_type": "DeployKey", "bypass_mode": "always"}
	onPulls := map[string]any{"actor_id": 5, "actor_type": "RepositoryRole",
		"bypass_mode": "pull_request"}
	s.repo.Ruleset([]map[string]any{alice, keys, onPulls}, pulls)
	p, err := s.forge().Protection(t.Context(), "main")
	if err != nil || namesOf(p.Pushers) != "alice, deploy keys" ||
		p.Pushers[0].User != s.cast.Admin {
		t.Errorf("of one ruleset exempt are %+v (%v)", p.Pushers, err)
	}
	s.repo.Ruleset([]map[string]any{keys}, pulls)
	if p, err = s.forge().Protection(t.Context(), "main"); err != nil ||
		namesOf(p.Pushers) != "deploy keys" {
		t.Errorf("of two rulesets exempt are %+v (%v)", p.Pushers, err)
	}
}

func TestMergeQueueOfARuleset(t *testing.T) {
	s := newStage(t, true)
	s.repo.Ruleset(nil, map[string]any{"type": "merge_queue", "parameters": map[string]any{
		"check_response_timeout_minutes": 60, "grouping_strategy": "HEADGREEN",
		"max_entries_to_build": 5, "max_entries_to_merge": 5,
		"merge_method": "REBASE", "min_entries_to_merge": 1, "min_entries_to_merge_wait_minutes": 5,
	}})
	p, err := s.forge().Protection(t.Context(), "main")
	if err != nil || p.Queue == nil || *p.Queue != (forge.MergeQueue{Style: forge.MergeRebase,
		HeadOnly: true}) {
		t.Errorf("the queue is read as %+v (%v)", p.Queue, err)
	}
}

// A fault is no absence: unreadable rules are an error.
func TestProtectionThatCannotBeReadIsAnError(t *testing.T) {
	s := newStage(t, false)
	s.repo.Protect(classicRules(nil))
	s.repo.Ruleset(nil, map[string]any{"type": "deletion"})
	for _, request := range []string{"GET /repos/acme/fleet/rules/*",
		"GET /repos/acme/fleet/branches/main", "GET /repos/acme/fleet/branches/main/protection"} {
		fix := s.server.Break(request, githubtest.HTML(502))
		if p, err := s.forge().Protection(t.Context(), "main"); err == nil {
			t.Errorf("without %s it is read as %+v", request, p)
		}
		fix()
	}
}
