package review

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"argosy.dev/argosy/fleet/forge"
)

// RuleState is the outcome of the check of one rule.
type RuleState string

// The states of a rule.
const (
	RuleKept    RuleState = "ok"
	RuleBroken  RuleState = "fix"
	RuleUnknown RuleState = "not checked"
)

// BranchRule is one rule that the Git host is to enforce on the branch, and whether it does.
type BranchRule struct {
	Name  string
	State RuleState
	Text  string // the current setting, or why it is unknown; with RuleBroken also the consequence
	Fix   string // the setting and its value, or the permission; empty with RuleKept
}

// BranchRules compares the protection of the branch with the rules that Argosy relies on.
// directPush is forge.directPush of the settings. While a part of the protection is unread, a rule
// that the rest does not show counts as not checked.
func BranchRules(p forge.Protection, directPush []string) []BranchRule {
	return []BranchRule{
		requiredChecks(p), sourceOfChecks(p), directPushes(p, directPush), overrides(p),
		staleApprovals(p),
		refused("force pushes", p.RefusesForce, p,
			"a force push takes reviewed commits off the branch; Argosy then waits for an "+
				"approval of the whole history",
			`ruleset "Block force pushes": on`,
			`branch protection "Force Push": "Disable Force Push"`),
		refused("deletion", p.RefusesDeletion, p,
			"every account with write access can delete the branch and push another one of its name",
			`ruleset "Restrict deletions": on`, "branch protection: add a rule for the branch"),
		mergeStyles(p), mergeQueue(p), autoMerge(p),
	}
}

func (b BranchRule) broken(text, fix string) BranchRule {
	b.State, b.Text, b.Fix = RuleBroken, text, fix
	return b
}

func (b BranchRule) kept(text string) BranchRule {
	b.State, b.Text = RuleKept, text
	return b
}

func (b BranchRule) unknown(permission string) BranchRule {
	b.State, b.Text, b.Fix = RuleUnknown, "Argosy's account may not read it",
		"reading it takes "+permission+"; or check by hand"
	return b
}

// on picks the name of the setting on the host.
func on(p forge.Protection, github, gitea string) string {
	if p.Host == "Gitea" {
		return gitea
	}
	return github
}

var ourChecks = []string{forge.CheckValidate, forge.CheckPlan, forge.CheckOwners}

// missingChecks is those of the three that nothing requires.
func missingChecks(p forge.Protection) []string {
	return slices.DeleteFunc(slices.Clone(ourChecks), func(name string) bool {
		return slices.ContainsFunc(p.Checks, func(c forge.RequiredCheck) bool {
			return c.Name == name
		})
	})
}

func requiredChecks(p forge.Protection) BranchRule {
	b := BranchRule{Name: "required checks"}
	missing := missingChecks(p)
	switch {
	case len(missing) == 0:
		return b.kept(strings.Join(ourChecks, ", ") + " are required")
	case p.Unread.Rules != "":
		return b.unknown(p.Unread.Rules)
	}
	return b.broken(
		strings.Join(missing, ", ")+
			" not required: a pull request is merged before or although Argosy objects, and its "+
			"files are held afterwards",
		on(p, `ruleset "Require status checks to pass": add `+strings.Join(missing, ", "),
			`branch protection "Enable Status Check": add a line for each of `+strings.Join(missing,
				", ")+
				` (one status satisfies a pattern such as argosy/*, while the others are still missing)`))
}

// sourceOfChecks is about forged checks: every account with write access can set a commit status of
// any name.
func sourceOfChecks(p forge.Protection) BranchRule {
	b := BranchRule{Name: "source of the checks"}
	var open, others []string
	for _, c := range p.Checks {
		switch {
		case !slices.Contains(ourChecks, c.Name):
		case c.App == 0:
			open = append(open, c.Name)
		case c.App != p.App:
			others = append(others, c.Name+" (the App "+strconv.FormatInt(c.App, 10)+")")
		}
	}
	// A demand with a source holds beside one of the same name without.
	bound := func(name string) bool {
		return p.App != 0 && slices.Contains(p.Checks, forge.RequiredCheck{Name: name, App: p.App})
	}
	open = slices.DeleteFunc(open, bound)
	switch {
	case len(others) > 0:
		return b.broken("another App's check is required: "+strings.Join(others, ", ")+
			"; Argosy never reports it",
			`ruleset "Require status checks to pass": choose the App that Argosy reports as`)
	case p.Host == "Gitea":
		return b.kept(
			"Gitea takes a check from every account with write access; Argosy corrects it, and " +
				"holds what was " +
				"merged by it")
	case p.App == 0:
		return b.broken(
			"Argosy reports with a token, and such a check counts from every account with write access",
			"settings forge.app: use a GitHub App (`argosy bootstrap github`), and choose it as "+
				"the source of each check")
	case len(open) > 0:
		return b.broken(strings.Join(open, ", ")+
			" from any source: every account with write access can set it to success",
			`ruleset "Require status checks to pass": choose the App `+strconv.FormatInt(p.App, 10)+
				` as the source of each`)
	case len(missingChecks(p)) > 0 && p.Unread.Rules != "":
		return b.unknown(p.Unread.Rules)
	case len(missingChecks(p)) == len(ourChecks):
		return b.broken("no check is required, so none has a source",
			"require the checks, with the App "+strconv.FormatInt(p.App, 10)+" as their source")
	}
	return b.kept("only the App " + strconv.FormatInt(p.App, 10) + " counts")
}

func directPushes(p forge.Protection, directPush []string) BranchRule {
	b := BranchRule{Name: "direct pushes"}
	fix := on(p,
		`ruleset "Require a pull request before merging": on, without bypass for others than forge.directPush of the settings`,
		`branch protection "Push": "Disable Push", or "Whitelist Restricted Push" for the accounts of forge.directPush alone`)
	unlisted := slices.DeleteFunc(slices.Clone(p.Pushers), func(e forge.Exempt) bool {
		return pushesAsListed(e, directPush)
	})
	switch {
	case !p.PullRequests && p.Unread.Rules != "":
		return b.unknown(p.Unread.Rules)
	case !p.PullRequests:
		return b.broken(
			"every account with write access may push without a pull request; what it pushes is "+
				"held until "+
				"somebody approves it", fix)
	case len(unlisted) > 0:
		return b.broken(names(unlisted)+
			" may push without a pull request and forge.directPush does not list them: what "+
			"they push is held", fix)
	case p.Unguarded != "":
		return b.broken("every account with write access may push files that match "+p.Unguarded+
			" without a pull request; these files are held",
			`branch protection "Unprotected file patterns": empty`)
	case p.Unread.Exempt != "":
		return b.unknown(p.Unread.Exempt)
	case len(p.Pushers) == 0:
		return b.kept("no account may push without a pull request")
	}
	return b.kept("only " + names(p.Pushers) + ", as forge.directPush lists")
}

// pushesAsListed reports whether forge.directPush lists the account or team.
func pushesAsListed(e forge.Exempt, directPush []string) bool {
	return slices.ContainsFunc(directPush, func(entry string) bool {
		name, id, pinned := strings.Cut(strings.TrimPrefix(entry, "github:"), "#")
		switch {
		case e.Team != "":
			return strings.EqualFold(name, e.Team)
		case pinned && e.User.ID != 0:
			return id == strconv.FormatInt(e.User.ID, 10)
		}
		return e.User.Login != "" && strings.EqualFold(name, e.User.Login)
	})
}

func names(all []forge.Exempt) string {
	return strings.Join(each(all, func(e forge.Exempt) string { return e.Name }), ", ")
}

func overrides(p forge.Protection) BranchRule {
	b := BranchRule{Name: "merges past the checks"}
	switch {
	case len(p.Overriders) > 0:
		return b.broken(names(p.Overriders)+
			" may merge although a check fails; what they merge unreviewed is held",
			on(p,
				`ruleset "Bypass list": empty; branch protection "Do not allow bypassing the above settings": on`,
				`branch protection "Block Administrator Merge Override": on`))
	case p.Unread.Exempt != "":
		return b.unknown(p.Unread.Exempt)
	case len(p.Checks) == 0 && p.Unread.Rules != "":
		return b.unknown(p.Unread.Rules)
	case len(p.Checks) == 0:
		return b.broken("no check is required", "require the checks")
	}
	return b.kept("no account may merge past a required check")
}

func staleApprovals(p forge.Protection) BranchRule {
	b := BranchRule{Name: "stale approvals"}
	switch {
	case p.DismissesStale:
		return b.kept("a new commit dismisses them")
	case p.Unread.Rules != "":
		return b.unknown(p.Unread.Rules)
	}
	return b.broken(
		"an approval of an earlier head stays on the page; Argosy does not count it, and "+
			"a reader of the page does",
		on(p, `ruleset "Dismiss stale pull request approvals when new commits are pushed": on`,
			`branch protection "Dismiss stale approvals": on`))
}

func refused(name string, is bool, p forge.Protection, why, github, gitea string) BranchRule {
	b := BranchRule{Name: name}
	switch {
	case is:
		return b.kept("refused")
	case p.Unread.Rules != "":
		return b.unknown(p.Unread.Rules)
	}
	return b.broken(why, on(p, github, gitea))
}

// weakens maps a merge style to the guarantee of Argosy that it breaks; styles without an entry
// break none.
var weakens = map[forge.MergeStyle]string{
	forge.MergeRebase: "a rebase writes commits that no plan showed and drops the merges of the " +
		"head: what such a merge had undone comes back",
	forge.MergeRebaseMerge: "a rebase with a merge commit writes commits that no plan showed " +
		"and drops the merges of the head: " +
		"what such a merge had undone comes back",
	forge.MergeManual: "a manual merge lets every account with push access name any commit of " +
		"the branch as " +
		"the merge of an approved pull request",
}

var settingOf = map[forge.MergeStyle][2]string{ // GitHub's and Gitea's
	forge.MergeRebase:      {`"Allow rebase merging"`, `"Rebase then fast-forward"`},
	forge.MergeRebaseMerge: {"", `"Rebase then create merge commit"`},
	forge.MergeManual: {
		"", `"Mark pull request as manually merged" and "Enable autodetection of manual merges"`},
}

func mergeStyles(p forge.Protection) BranchRule {
	b := BranchRule{Name: "merge styles"}
	var why, off, fine []string
	unread := false
	for _, style := range []forge.MergeStyle{
		forge.MergeCommit, forge.MergeSquash, forge.MergeFastForward, forge.MergeRebase,
		forge.MergeRebaseMerge, forge.MergeManual,
	} {
		allowed, known := p.Styles[style]
		switch {
		case !known:
			unread = unread || style == forge.MergeRebase || weakens[style] != "" &&
				p.Host == "Gitea"
		case allowed && weakens[style] != "":
			why = append(why, weakens[style])
			off = append(off, on(p, settingOf[style][0], settingOf[style][1]))
		case allowed:
			fine = append(fine, string(style))
		}
	}
	switch {
	case len(why) > 0:
		return b.broken(strings.Join(why, "; ")+". Its files are held",
			"repository settings, pull requests: "+strings.Join(off, ", ")+" off")
	case unread:
		b = b.unknown(p.Unread.Settings)
		b.Fix += on(p,
			`; or set "Allowed merge methods" of the ruleset's "Require a pull request before merging" to merge and squash, which everybody may read`, "")
		return b
	}
	text := "no style that writes unreviewed commits"
	if len(fine) > 0 {
		text = strings.Join(fine, ", ") + ": each brings the tree that the plan showed, or is held"
	}
	return b.kept(text)
}

func mergeQueue(p forge.Protection) BranchRule {
	b := BranchRule{Name: "merge queue"}
	switch {
	case p.Queue == nil && p.Host == "Gitea":
		return b.kept("Gitea has none")
	case p.Queue == nil:
		return b.kept(
			"none is required by a ruleset; a queue's commits are judged like any other merge")
	case weakens[p.Queue.Style] != "":
		return b.broken("the queue merges by "+string(p.Queue.Style)+": "+weakens[p.Queue.Style],
			`ruleset "Require merge queue", "Merge method": merge or squash`)
	case p.Queue.HeadOnly:
		return b.broken(
			"of a group only the last commit has to pass the checks: the merges before it reach "+
				"the branch although Argosy objects to them",
			`ruleset "Require merge queue", "Only merge non-failing pull requests": on`)
	}
	return b.kept(fmt.Sprintf("it merges by %s, and each commit has to pass the checks",
		p.Queue.Style))
}

// autoMerge is harmless together with required checks: these are missing until Argosy has reviewed
// the head.
func autoMerge(p forge.Protection) BranchRule {
	b := BranchRule{Name: "auto-merge"}
	missing := missingChecks(p)
	switch {
	case p.AutoMerge != nil && !*p.AutoMerge:
		return b.kept("off")
	case len(missing) == 0:
		return b.kept("it waits for the required checks")
	case p.Unread.Rules != "":
		return b.unknown(p.Unread.Rules)
	case p.AutoMerge == nil:
		return b.unknown(p.Unread.Settings)
	}
	return b.broken("it merges without waiting for "+strings.Join(missing, ", "),
		on(p, `require the checks, or repository settings "Allow auto-merge": off`,
			"require the checks: Gitea has no setting that switches it off"))
}
