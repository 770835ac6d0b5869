package review

import (
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet/forge"
)

func tight(host string) forge.Protection {
	off := false
	p := forge.Protection{
		Host: host, PullRequests: true, DismissesStale: true, RefusesForce: true,
		RefusesDeletion: true, AutoMerge: &off,
		Styles: map[forge.MergeStyle]bool{forge.MergeCommit: true, forge.MergeSquash: true,
			forge.MergeRebase: false},
	}
	if host == "GitHub" {
		p.App = 17
	} else {
		p.Styles[forge.MergeRebaseMerge], p.Styles[forge.MergeManual] = false, false
		p.Styles[forge.MergeFastForward] = true
	}
	for _, name := range ourChecks {
		p.Checks = append(p.Checks, forge.RequiredCheck{Name: name, App: p.App})
	}
	return p
}

// notKept are the rules that are not kept, as "state name".
func notKept(p forge.Protection, directPush ...string) (out []string) {
	for _, r := range BranchRules(p, directPush) {
		if r.State != RuleKept {
			out = append(out, string(r.State)+" "+r.Name)
		}
	}
	return out
}

func TestBranchRules(t *testing.T) {
	on := true
	petra := forge.Exempt{Name: "petra", User: forge.Person{ID: 7, Login: "petra"}}
	leads := forge.Exempt{Name: "the team acme/leads", Team: "acme/leads"}
	for name, c := range map[string]struct {
		host   string
		change func(p *forge.Protection)
		listed []string
		want   []string
	}{
		"everything is set":     {host: "GitHub"},
		"everything is set too": {host: "Gitea"},
		"no protection at all": {host: "GitHub", change: func(p *forge.Protection) {
			*p = forge.Protection{Host: "GitHub", App: 17, AutoMerge: &on,
				Styles: map[forge.MergeStyle]bool{forge.MergeRebase: true}}
		}, want: []string{"fix required checks", "fix source of the checks", "fix direct pushes",
			"fix merges past the checks", "fix stale approvals",
			"fix force pushes", "fix deletion", "fix merge styles", "fix auto-merge"}},
		"nothing may be read": {host: "GitHub", change: func(p *forge.Protection) {
			*p = forge.Protection{Host: "GitHub", App: 17, Unread: forge.Unread{
				Rules: "a", Exempt: "b", Settings: "c"}}
		}, want: []string{"not checked required checks", "not checked source of the checks",
			"not checked direct pushes", "not checked merges past the checks",
			"not checked stale approvals", "not checked force pushes", "not checked deletion",
			"not checked merge styles", "not checked auto-merge"}},
		"one check is missing": {host: "GitHub", change: func(p *forge.Protection) {
			p.Checks = p.Checks[1:]
		},
			want: []string{"fix required checks"}},
		"from any source": {host: "GitHub", change: func(p *forge.Protection) {
			p.Checks[2].App = 0
		},
			want: []string{"fix source of the checks"}},
		"from any source beside the App's": {host: "GitHub", change: func(p *forge.Protection) {
			p.Checks = append(p.Checks, forge.RequiredCheck{Name: forge.CheckPlan})
		}},
		"another App's": {host: "GitHub", change: func(p *forge.Protection) {
			p.Checks[2].App = 18
		}, want: []string{"fix source of the checks"}},
		"with a token": {host: "GitHub", change: func(p *forge.Protection) { p.App = 0 },
			want: []string{"fix source of the checks"}},
		"an unlisted pusher": {host: "Gitea", change: func(p *forge.Protection) {
			p.Pushers = []forge.Exempt{petra, leads}
		},
			listed: []string{"github:petra"}, want: []string{"fix direct pushes"}},
		"listed pushers": {host: "Gitea", change: func(p *forge.Protection) {
			p.Pushers = []forge.Exempt{petra, leads}
		},
			listed: []string{"github:PETRA#7", "github:acme/Leads"}},
		"who took a listed login": {host: "GitHub", change: func(p *forge.Protection) {
			p.Pushers = []forge.Exempt{petra}
		},
			listed: []string{"github:petra#6"}, want: []string{"fix direct pushes"}},
		"deploy keys": {host: "GitHub", change: func(p *forge.Protection) {
			p.Pushers = []forge.Exempt{{Name: "deploy keys"}}
		},
			listed: []string{"github:petra"}, want: []string{"fix direct pushes"}},
		"files that anybody pushes": {host: "Gitea", change: func(p *forge.Protection) {
			p.Unguarded = "docs/**"
		}, want: []string{"fix direct pushes"}},
		"administrators merge anything": {host: "Gitea", change: func(p *forge.Protection) {
			p.Overriders = []forge.Exempt{{Name: "admins"}}
		},
			want: []string{"fix merges past the checks"}},
		"the exempt accounts are unread": {host: "GitHub", change: func(p *forge.Protection) {
			p.Unread.Exempt = "x"
		},
			want: []string{"not checked direct pushes", "not checked merges past the checks"}},
		"the settings are unread": {host: "GitHub", change: func(p *forge.Protection) {
			p.Styles, p.AutoMerge, p.Unread.Settings = nil, nil, "x"
		},
			want: []string{"not checked merge styles"}},
		"the settings are unread and the ruleset forbids rebases": {
			host: "GitHub", change: func(p *forge.Protection) {
				p.Styles, p.AutoMerge, p.Unread.Settings = map[forge.MergeStyle]bool{
					forge.MergeRebase: false}, nil, "x"
			}},
		"rebase": {host: "Gitea", change: func(p *forge.Protection) {
			p.Styles[forge.MergeRebase] = true
		}, want: []string{"fix merge styles"}},
		"rebase with a merge": {host: "Gitea", change: func(p *forge.Protection) {
			p.Styles[forge.MergeRebaseMerge] = true
		}, want: []string{"fix merge styles"}},
		"merges by hand": {host: "Gitea", change: func(p *forge.Protection) {
			p.Styles[forge.MergeManual] = true
		}, want: []string{"fix merge styles"}},
		"a queue": {host: "GitHub", change: func(p *forge.Protection) {
			p.Queue = &forge.MergeQueue{Style: forge.MergeSquash}
		}},
		"a queue that rebases": {host: "GitHub", change: func(p *forge.Protection) {
			p.Queue = &forge.MergeQueue{Style: forge.MergeRebase}
		},
			want: []string{"fix merge queue"}},
		"a queue that checks heads alone": {host: "GitHub", change: func(p *forge.Protection) {
			p.Queue = &forge.MergeQueue{Style: forge.MergeCommit, HeadOnly: true}
		}, want: []string{"fix merge queue"}},
		"auto-merge behind the checks": {host: "GitHub", change: func(p *forge.Protection) {
			p.AutoMerge = &on
		}},
	} {
		p := tight(c.host)
		if c.change != nil {
			c.change(&p)
		}
		if got := notKept(p, c.listed...); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
		for _, r := range BranchRules(p, c.listed) {
			if r.Text == "" || r.State != RuleKept && r.Fix == "" || r.State == RuleBroken &&
				!strings.ContainsAny(r.Fix, `"`) && !strings.Contains(r.Fix, "require the checks") {
				t.Errorf("%s: %+v names no setting", name, r)
			}
		}
	}
}
