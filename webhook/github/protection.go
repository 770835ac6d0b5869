package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet/forge"
)

// protections reads the rules of branches.
type protections struct{ people }

// Protection implements webhook.Guard.
func (f protections) Protection(ctx context.Context, branch string) (forge.Protection, error) {
	p := forge.Protection{Host: "GitHub", App: f.appID}
	r, err := f.here(ctx)
	if err == nil && f.gitea {
		p.Host = "Gitea"
		err = f.giteaProtection(ctx, r, branch, &p)
	} else if err == nil {
		err = f.protection(ctx, r, branch, &p)
	}
	if err != nil {
		return forge.Protection{}, fmt.Errorf("protection of the branch %s: %w", branch, err)
	}
	return p, nil
}

// The permissions for reading, in the words of the Git hosts' own pages.
const (
	mayReadSettings = "the repository permission \"Contents: write\" (GitHub shows merge settings to no other account)"
	mayReadRules    = "the repository permission \"Administration: read\" (a token: of an administrator of the repository)"
	mayReadExempt   = "write access to the ruleset: the repository permission \"Administration: write\""
	mayReadGitea    = "administrator of the repository"
)

// protection is GitHub's: rulesets, which everybody may read but for who is exempt from them, and
// the older branch protection, which takes more. A rule is in force if any of them
// enforces it.
func (f protections) protection(ctx context.Context, r repository, branch string,
	p *forge.Protection) error {
	settings, err := f.merging(ctx, r)
	if err != nil {
		return err
	}
	p.AutoMerge = settings.AutoMerge
	p.Styles = shown(map[forge.MergeStyle]*bool{
		forge.MergeCommit: settings.Merge, forge.MergeSquash: settings.Squash,
		forge.MergeRebase: settings.Rebase,
	})
	if len(p.Styles) < 3 || p.AutoMerge == nil {
		p.Unread.Settings = mayReadSettings
	}
	sources, err := f.rulesets(ctx, r, branch, p)
	if err != nil {
		return err
	}
	classic, err := f.classic(ctx, r, branch, p)
	if err != nil {
		return err
	}
	sources = append(sources, classic)
	p.Pushers = exemptFrom(sources, func(s source) (bool, []forge.Exempt) {
		return s.pulls, s.push
	})
	p.Overriders = exemptFrom(sources, func(s source) (bool, []forge.Exempt) {
		return s.checks, s.merge
	})
	return nil
}

// shown are the merge styles with a known setting.
func shown(styles map[forge.MergeStyle]*bool) map[forge.MergeStyle]bool {
	all := map[forge.MergeStyle]bool{}
	for style, allowed := range styles {
		if allowed != nil {
			all[style] = *allowed
		}
	}
	return all
}

// source is one ruleset, or the branch protection: what it demands, and who is exempt. The zero
// source demands nothing.
type source struct {
	pulls, checks bool
	push, merge   []forge.Exempt
}

// exemptFrom is who is exempt from a demand: from every source that makes it.
func exemptFrom(sources []source, of func(source) (bool, []forge.Exempt)) []forge.Exempt {
	var out []forge.Exempt
	first := true
	for _, s := range sources {
		demanded, exempt := of(s)
		switch {
		case !demanded:
		case first:
			first, out = false, slices.Clone(exempt)
		default:
			out = slices.DeleteFunc(out, func(e forge.Exempt) bool {
				return !slices.Contains(exempt, e)
			})
		}
	}
	return out
}

// merging is a repository's settings for merges. GitHub leaves out what we may not see.
type merging struct {
	repository
	DefaultBranch string `json:"default_branch"`

	Squash    *bool `json:"allow_squash_merge"`
	AutoMerge *bool `json:"allow_auto_merge"`

	Merge  *bool `json:"allow_merge_commit"` // GitHub's
	Rebase *bool `json:"allow_rebase_merge"`

	GiteaMerge       *bool `json:"allow_merge_commits"`
	GiteaRebase      *bool `json:"allow_rebase"`
	GiteaRebaseMerge *bool `json:"allow_rebase_explicit"`
	GiteaFastForward *bool `json:"allow_fast_forward_only_merge"`
	GiteaManual      *bool `json:"allow_manual_merge"`
	GiteaDetected    *bool `json:"autodetect_manual_merge"`
}

func (f protections) merging(ctx context.Context, r repository) (merging, error) {
	a, err := f.get(ctx, in(r.FullName), nil)
	if err != nil {
		return merging{}, err
	}
	m, err := read[merging](a)
	if err == nil && m.ID != r.ID {
		err = f.ours(m.ID)
	}
	return m, err
}

// rule is one of GitHub's rules that is in force on a branch.
type rule struct {
	Type       string `json:"type"`
	Ruleset    int64  `json:"ruleset_id"`
	Parameters struct {
		Methods []string `json:"allowed_merge_methods"` // of pull_request
		Stale   bool     `json:"dismiss_stale_reviews_on_push"`
		Checks  []struct {
			Context string `json:"context"`
			App     int64  `json:"integration_id"`
		} `json:"required_status_checks"`
		Method   string `json:"merge_method"` // of merge_queue
		Grouping string `json:"grouping_strategy"`
	} `json:"parameters"`
}

func (r rule) check() error {
	if r.Type == "" || r.Ruleset <= 0 {
		return errors.New("a rule has no type or is of no ruleset")
	}
	return nil
}

// rulesets adds what the rulesets enforce, and returns those that demand something.
func (f protections) rulesets(ctx context.Context, r repository, branch string,
	p *forge.Protection) (sources []source, err error) {
	at := in(r.FullName, "rules", "branches", branch)
	rules, err := every(ctx, func(r rule) int64 { return r.Ruleset },
		pagesOf[rule](f.connection, at, nil, names))
	if err != nil {
		return nil, err
	}
	by, order := map[int64]*source{}, []int64(nil)
	for _, one := range rules {
		if by[one.Ruleset] == nil {
			by[one.Ruleset] = &source{}
			order = append(order, one.Ruleset)
		}
		one.apply(p, by[one.Ruleset])
	}
	for _, id := range order {
		s := by[id]
		if !s.pulls && !s.checks {
			continue
		}
		if err := f.exemptions(ctx, r, id, p, s); err != nil {
			return nil, err
		}
		sources = append(sources, *s)
	}
	return sources, nil
}

// apply adds what the rule enforces.
func (r rule) apply(p *forge.Protection, s *source) {
	switch r.Type {
	case "pull_request":
		p.PullRequests, s.pulls = true, true
		p.DismissesStale = p.DismissesStale || r.Parameters.Stale
		if len(r.Parameters.Methods) == 0 {
			break
		}
		for _, style := range []forge.MergeStyle{forge.MergeCommit, forge.MergeSquash,
			forge.MergeRebase} {
			if !slices.Contains(r.Parameters.Methods, string(style)) {
				p.Styles[style] = false // whatever the repository's settings allow
			}
		}
	case "required_status_checks":
		s.checks = true
		for _, c := range r.Parameters.Checks {
			p.Checks = append(p.Checks, forge.RequiredCheck{Name: c.Context, App: c.App})
		}
	case "non_fast_forward":
		p.RefusesForce = true
	case "deletion":
		p.RefusesDeletion = true
	case "merge_queue":
		p.Queue = &forge.MergeQueue{Style: forge.MergeStyle(strings.ToLower(r.Parameters.Method)),
			HeadOnly: r.Parameters.Grouping == "HEADGREEN"}
	}
}

// ruleset is the decoded part of a ruleset. Only accounts that may change it see the exempt ones.
type ruleset struct {
	ID     int64    `json:"id"`
	Exempt *[]actor `json:"bypass_actors"`
}

func (r ruleset) check() error {
	if r.ID <= 0 {
		return errors.New("a ruleset has no id")
	}
	return nil
}

type actor struct {
	ID   int64  `json:"actor_id"`
	Type string `json:"actor_type"`
	Mode string `json:"bypass_mode"`
}

func (f protections) exemptions(ctx context.Context, r repository, id int64, p *forge.Protection,
	s *source) error {
	a, err := f.get(ctx, in(r.FullName, "rulesets", number(id)), nil)
	if isGone(err) || hasStatus(err, http.StatusForbidden) {
		p.Unread.Exempt = mayReadExempt
		return nil
	}
	if err != nil {
		return err
	}
	set, err := read[ruleset](a)
	switch {
	case err != nil:
		return err
	case set.ID != id:
		return fmt.Errorf("%s: the Git host answers with another ruleset", a.what)
	case set.Exempt == nil:
		p.Unread.Exempt = mayReadExempt
		return nil
	}
	for _, one := range *set.Exempt {
		e, err := f.exempt(ctx, r, one)
		if err != nil {
			return err
		}
		s.merge = append(s.merge, e)
		if one.Mode != "pull_request" {
			s.push = append(s.push, e)
		}
	}
	return nil
}

// roles are GitHub's own; an organization's have larger numbers.
var roles = map[int64]string{1: "read", 2: "maintain", 3: "triage", 4: "write", 5: "admin"}

// exempt names an actor, by its number if it cannot be resolved.
func (f protections) exempt(ctx context.Context, r repository, a actor) (forge.Exempt, error) {
	id := number(a.ID)
	switch a.Type {
	case "User":
		login, err := f.loginOf(ctx, a.ID)
		if errors.Is(err, forge.ErrNoSuchOwner) {
			return forge.Exempt{Name: "the account " + id, User: forge.Person{ID: a.ID}}, nil
		}
		return forge.Exempt{Name: login, User: forge.Person{ID: a.ID, Login: login}}, err
	case "Team":
		org, _, _ := cutName(r.FullName)
		teams, err := f.teams(ctx, org)
		if err != nil && !isGone(err) && !hasStatus(err, http.StatusForbidden) {
			return forge.Exempt{}, err
		}
		for _, t := range teams {
			if t.ID == a.ID {
				return exemptTeam(org, t.Slug), nil
			}
		}
		return forge.Exempt{Name: "the team " + id}, nil
	case "RepositoryRole":
		if name := roles[a.ID]; name != "" {
			return forge.Exempt{Name: "everybody with the role " + name}, nil
		}
		return forge.Exempt{Name: "everybody with the repository role " + id}, nil
	case "OrganizationAdmin":
		return forge.Exempt{Name: "the owners of the organization"}, nil
	case "DeployKey":
		return deployKeys, nil
	case "Integration":
		return forge.Exempt{Name: "the App " + id}, nil
	}
	return forge.Exempt{Name: plain(a.Type) + " " + id}, nil
}

// Groups that both hosts have, and name by no number.
var (
	administrators = forge.Exempt{Name: "administrators of the repository"}
	deployKeys     = forge.Exempt{Name: "deploy keys"}
)

func exemptTeam(org, name string) forge.Exempt {
	return forge.Exempt{Name: "the team " + org + "/" + name, Team: org + "/" + name}
}

// guarded is the part of a branch that every reader sees.
type guarded struct {
	Name       string `json:"name"`
	Protected  bool   `json:"protected"`
	Protection struct {
		Checks required `json:"required_status_checks"`
	} `json:"protection"`

	// Gitea's
	Checked  bool     `json:"enable_status_check"`
	Contexts []string `json:"status_check_contexts"`
	Rule     string   `json:"effective_branch_protection_name"` // shown to administrators alone
}

func (g guarded) check() error {
	if g.Name == "" {
		return errors.New("a branch has no name")
	}
	return nil
}

type required struct {
	Checks []struct {
		Context string `json:"context"`
		App     int64  `json:"app_id"`
	} `json:"checks"`
}

func (f protections) guarded(ctx context.Context, r repository, branch string) (guarded, error) {
	a, err := f.get(ctx, in(r.FullName, "branches", branch), nil)
	if isGone(err) {
		return guarded{}, fmt.Errorf("the Git host shows no such branch: %w", err)
	}
	if err != nil {
		return guarded{}, err
	}
	g, err := read[guarded](a)
	if err == nil && g.Name != branch {
		err = fmt.Errorf("%s: the Git host answers with another branch", a.what)
	}
	return g, err
}

type switched struct {
	On bool `json:"enabled"`
}

type named struct {
	Users []account `json:"users"`
	Teams []team    `json:"teams"`
	Apps  []app     `json:"apps"`
}

// exempt names everybody. Teams are of the repository's organization.
func (n *named) exempt(org string) (all []forge.Exempt) {
	if n == nil {
		return nil
	}
	for _, u := range n.Users {
		all = append(all, forge.Exempt{Name: u.Login, User: u.person()})
	}
	for _, t := range n.Teams {
		all = append(all, exemptTeam(org, t.Slug))
	}
	for _, a := range n.Apps {
		all = append(all, forge.Exempt{Name: "the App " + number(a.ID)})
	}
	return all
}

// classic is a branch protection of GitHub.
type classic struct {
	Checks *required `json:"required_status_checks"`
	Admins switched  `json:"enforce_admins"`
	Pulls  *struct {
		Stale  bool   `json:"dismiss_stale_reviews"`
		Exempt *named `json:"bypass_pull_request_allowances"`
	} `json:"required_pull_request_reviews"`
	Force    switched `json:"allow_force_pushes"`
	Deletion switched `json:"allow_deletions"`
}

func (classic) check() error { return nil }

// classic adds the rules of the branch protection, and returns the permission that it lacks. Every
// reader sees the required checks.
func (f protections) classic(ctx context.Context, r repository, branch string,
	p *forge.Protection) (s source, err error) {
	g, err := f.guarded(ctx, r, branch)
	if err != nil || !g.Protected {
		return s, err
	}
	require(p, g.Protection.Checks)
	a, err := f.get(ctx, in(r.FullName, "branches", branch, "protection"), nil)
	switch {
	case hasStatus(err, http.StatusNotFound) && strings.Contains(err.Error(),
		"Branch not protected"):
		return s, nil // rulesets alone protect it
	case isGone(err) || hasStatus(err, http.StatusForbidden):
		p.Unread.Rules = mayReadRules
		if p.Unread.Exempt == "" {
			p.Unread.Exempt = mayReadRules
		}
		return s, nil
	case err != nil:
		return s, err
	}
	c, err := read[classic](a)
	if err != nil {
		return s, err
	}
	if c.Checks != nil {
		s.checks = true
		require(p, *c.Checks)
	}
	if c.Pulls != nil {
		s.pulls, p.PullRequests = true, true
		p.DismissesStale = p.DismissesStale || c.Pulls.Stale
		org, _, _ := cutName(r.FullName)
		s.push = c.Pulls.Exempt.exempt(org)
	}
	if !c.Admins.On {
		s.push, s.merge = append(s.push, administrators), append(s.merge, administrators)
	}
	p.RefusesForce = p.RefusesForce || !c.Force.On
	p.RefusesDeletion = p.RefusesDeletion || !c.Deletion.On
	return s, nil
}

func require(p *forge.Protection, r required) {
	for _, c := range r.Checks {
		one := forge.RequiredCheck{Name: c.Context, App: max(c.App, 0)} // -1 is any App, too
		if !slices.Contains(p.Checks, one) {
			p.Checks = append(p.Checks, one)
		}
	}
}
