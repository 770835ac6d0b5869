package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"argosy.dev/argosy/fleet/forge"
)

// giteaRule is a branch protection of Gitea.
type giteaRule struct {
	Name       string   `json:"rule_name"`
	Push       bool     `json:"enable_push"`
	PushSome   bool     `json:"enable_push_whitelist"`
	PushUsers  []string `json:"push_whitelist_usernames"`
	PushTeams  []string `json:"push_whitelist_teams"`
	PushKeys   bool     `json:"push_whitelist_deploy_keys"`
	ForcePush  bool     `json:"enable_force_push"`
	Checked    bool     `json:"enable_status_check"`
	Contexts   []string `json:"status_check_contexts"`
	Stale      bool     `json:"dismiss_stale_approvals"`
	Unguarded  string   `json:"unprotected_file_patterns"`
	AdminsKept *bool    `json:"block_admin_merge_override"`
}

func (g giteaRule) check() error {
	if g.Name == "" {
		return errors.New("a branch protection has no name")
	}
	return nil
}

// giteaProtection is Gitea's: one rule applies to a branch, and the branch names it.
func (f protections) giteaProtection(ctx context.Context, r repository, branch string,
	p *forge.Protection) error {
	m, err := f.merging(ctx, r)
	if err != nil {
		return err
	}
	p.Styles = shown(map[forge.MergeStyle]*bool{
		forge.MergeCommit: m.GiteaMerge, forge.MergeSquash: m.Squash,
		forge.MergeRebase:      m.GiteaRebase,
		forge.MergeRebaseMerge: m.GiteaRebaseMerge, forge.MergeFastForward: m.GiteaFastForward,
		forge.MergeManual: m.GiteaManual,
	})
	if m.GiteaDetected != nil && *m.GiteaDetected {
		p.Styles[forge.MergeManual] = true
	}
	if len(p.Styles) < 6 {
		p.Unread.Settings = "a newer Gitea, which shows each of them"
	}
	always := true // "merge when checks succeed" cannot be switched off
	p.AutoMerge = &always
	p.RefusesDeletion = branch == m.DefaultBranch
	g, err := f.guarded(ctx, r, branch)
	if err != nil || !g.Protected {
		return err
	}
	p.RefusesDeletion = true
	rule, err := f.giteaRule(ctx, r, g.Rule)
	if err != nil {
		return err
	}
	if rule == nil {
		requireExactly(p, g.Checked, g.Contexts)
		p.Unread.Rules, p.Unread.Exempt = mayReadGitea, mayReadGitea
		return nil
	}
	rule.apply(r, p)
	return nil
}

// giteaRule reads the rule of that name; nil for what our account may not read.
func (f protections) giteaRule(ctx context.Context, r repository, name string) (*giteaRule, error) {
	if name == "" {
		return nil, nil
	}
	a, err := f.get(ctx, in(r.FullName, "branch_protections"), nil)
	if isGone(err) || hasStatus(err, http.StatusForbidden) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rules, err := readList[giteaRule](a)
	if err != nil {
		return nil, err
	}
	for i := range rules {
		if rules[i].Name == name {
			return &rules[i], nil
		}
	}
	return nil, fmt.Errorf("%s: the rule %q of the branch is not listed", a.what, plain(name))
}

func (g giteaRule) apply(r repository, p *forge.Protection) {
	org, _, _ := cutName(r.FullName)
	p.PullRequests = !g.Push || g.PushSome
	p.DismissesStale, p.RefusesForce, p.Unguarded = g.Stale, !g.ForcePush,
		strings.TrimSpace(g.Unguarded)
	requireExactly(p, g.Checked, g.Contexts)
	if g.Push && g.PushSome {
		for _, login := range g.PushUsers {
			p.Pushers = append(p.Pushers, forge.Exempt{Name: login, User: forge.Person{
				Login: login}})
		}
		for _, name := range g.PushTeams {
			p.Pushers = append(p.Pushers, exemptTeam(org, name))
		}
		if g.PushKeys {
			p.Pushers = append(p.Pushers, deployKeys)
		}
	}
	if g.AdminsKept == nil || !*g.AdminsKept {
		p.Overriders = append(p.Overriders, administrators)
	}
}

// requireExactly adds the checks that are required by their very names: Gitea takes each entry as a
// pattern, which one status that fits satisfies, and without entries any status at all is enough.
func requireExactly(p *forge.Protection, on bool, contexts []string) {
	for _, name := range contexts {
		if on && !strings.ContainsAny(name, `*?[]{}\`) {
			p.Checks = append(p.Checks, forge.RequiredCheck{Name: name})
		}
	}
}
