package review

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/report"
)

// Command is what a comment asks for.
type Command struct {
	Word string // lower case; empty: nothing but /argosy
	Args []string

	// Early means that the comment existed before Argosy first reviewed the head: its author may
	// have read another head.
	Early bool
}

const (
	commandPrefix = "/argosy"
	mostCommand   = 512 // bytes of its line; a longer one is none
	mostReplies   = 5
)

// ParseCommand parses the first line of a comment: "/argosy <word> ..." from its first character
// on. A quoted, indented or fenced line is no command, nor is a line with invisible characters:
// readers must see what acts.
func ParseCommand(body string) (Command, bool) {
	if !strings.HasPrefix(body, commandPrefix) {
		return Command{}, false
	}
	line := body[:min(len(body), mostCommand+1)]
	if i := strings.IndexByte(line, '\n'); i >= 0 {
		line = line[:i]
	}
	line = strings.TrimSuffix(line, "\r")
	rest := strings.TrimPrefix(line, commandPrefix)
	if len(line) > mostCommand || !utf8.ValidString(line) || rest != "" && rest[0] != ' ' &&
		rest[0] != '\t' {
		return Command{}, false
	}
	if strings.ContainsFunc(rest, func(r rune) bool { return r != '\t' && !unicode.IsPrint(r) }) {
		return Command{}, false
	}
	words := strings.FieldsFunc(rest, func(r rune) bool { return r == ' ' || r == '\t' })
	if len(words) == 0 {
		return Command{}, true
	}
	c := Command{Word: strings.ToLower(words[0])}
	if len(words) > 1 {
		c.Args = words[1:]
	}
	return c, true
}

// GivenCommand is a command in a comment.
type GivenCommand struct {
	Command
	By forge.Clearance // the author, the head and the time of the comment
}

// Commands returns the commands given since record was saved: comments newer than record.Commented,
// unedited and not our own, oldest first. The second result is the new value of Commented.
func Commands(comments []forge.Comment, record forge.PullRecord) ([]GivenCommand, int64) {
	sorted := slices.Clone(comments)
	slices.SortStableFunc(sorted, func(a, b forge.Comment) int { return cmp.Compare(a.ID, b.ID) })
	newest := record.Commented
	var out []GivenCommand
	for _, c := range sorted {
		if c.ID <= record.Commented {
			continue
		}
		newest = c.ID
		if command, ok := ParseCommand(c.Body); ok && !c.Own && !c.Edited {
			command.Early = record.Seen != nil && c.ID <= record.Seen.Comment
			out = append(out, GivenCommand{command, forge.Clearance{By: c.Author, Head: record.Head,
				At: c.At}})
		}
	}
	return out, newest
}

// Rights is what one person may do in one pull request, by the applied base.
type Rights struct {
	// of what it touches: for whom their approval counts; "" is the platform
	Owns       []fleet.TenantName
	Platform   bool // an owner of the platform, whatever it touches
	Permission forge.Permission
	// deletions beyond the guards in the plan of this head, with those that they may not approve
	Holds   []mirror.Hold
	Planned bool // there is a plan of this head
	clears  map[mirror.HoldID]bool
}

// RightsOf returns the rights of a person. Facts.Permissions must contain their permission.
func RightsOf(p forge.Person, f Facts) Rights {
	r := Rights{Platform: f.counts("", p), Permission: f.Permissions[p.ID], Holds: f.holds(),
		Planned: f.Plan != nil, clears: map[mirror.HoldID]bool{}}
	for _, t := range f.touched() {
		if f.counts(t, p) {
			r.Owns = append(r.Owns, t)
		}
	}
	for _, h := range r.Holds {
		r.clears[h.ID()] = f.mayClear(p, h)
	}
	return r
}

// mayClear reports whether a person may let deletions go that the guards hold: an owner of the
// platform, and a tenant's owner those that are held for that tenant alone.
func (f Facts) mayClear(p forge.Person, h mirror.Hold) bool {
	return f.counts("", p) || h.Tenant != "" && f.counts(h.Tenant, p)
}

func (r Rights) writes() bool {
	return r.Permission == forge.PermissionWrite || r.Permission == forge.PermissionAdmin
}

func (r Rights) steers() bool { return r.writes() || r.Platform || len(r.Owns) > 0 }

// order is one command: how it is written, what it does, and the doing.
type order struct {
	usage, help string
	sha         bool // it names the head
	do          func(by forge.Clearance, may Rights, r *forge.PullRecord) string
}

var orders = map[string]order{
	"approve": {
		"approve <sha>", "approve this head as an owner; a review that approves does the same",
		true, approve},
	"approve-deletions": {"approve-deletions <sha>",
		"let the deletions of this head pass that are beyond the guards", true, approveDeletions},
	"lock":       {"lock", "keep " + forge.CheckPlan + " from passing", false, lock},
	"unlock":     {"unlock", "end a lock", false, unlock},
	"ok-to-test": {"ok-to-test <sha>", "plan this head of a fork", true, okToTest},
	"plan":       {"plan", "review again", false, replan},
}

// shown is the order of commands in the help.
var shown = []string{"plan", "approve", "approve-deletions", "lock", "unlock", "ok-to-test"}

// renamed are commands of earlier versions. They do nothing, and their answer names the new
// command.
var renamed = map[string]string{"hold": "lock", "resume": "unlock"}

// Judge runs a command if the person may. The reply reports the outcome or the reason against it,
// and joins the latest replies of the record. by.Head is the current head, which the command is
// bound to.
func Judge(c Command, by forge.Clearance, may Rights, record forge.PullRecord) (forge.PullRecord,
	string) {
	reply := answer(c, by, may, &record)
	replies := append(slices.Clone(record.Replies), reply)
	record.Replies = replies[max(0, len(replies)-mostReplies):]
	return record, reply
}

func answer(c Command, by forge.Clearance, may Rights, record *forge.PullRecord) string {
	o, known := orders[c.Word]
	switch {
	case c.Word == "" || c.Word == "help":
		return help()
	case renamed[c.Word] != "":
		return login(by.By) + ": " + tick(commandPrefix+" "+c.Word) + " is called " +
			tick(commandPrefix+" "+renamed[c.Word]) + " now. Nothing was changed."
	case !known:
		return login(by.By) + ": there is no " + tick(commandPrefix+" "+c.Word) + "." +
			meant(c.Word) + " " + tick("/argosy help") + " lists the commands."
	case record.State != forge.PullOpen && record.State != "":
		return login(by.By) + ": " + tick(c.Word) + " changes nothing: the pull request is " +
			string(record.State) + "."
	}
	if why := wrongHead(c, o, by.Head); why != "" {
		return login(by.By) + ": " + why
	}
	if o.sha && c.Early {
		return login(by.By) +
			": that came before this head was first reviewed, and does not count. Read the head, " +
			"and then comment " + orderFor(c, by.Head) + "."
	}
	return login(by.By) + " " + o.do(by, may, record)
}

// orderFor is a command about the head, to copy.
func orderFor(c Command, head fleet.Revision) string {
	return tick(strings.TrimSuffix(commandPrefix+" "+c.Word+" "+string(head), " "))
}

// wrongHead returns why the arguments do not name the head, or "". An optional commit must match
// too.
func wrongHead(c Command, o order, head fleet.Revision) string {
	again := orderFor(c, head)
	switch {
	case len(c.Args) == 0 && o.sha:
		return tick(c.Word) + " needs the commit that it is about: " + again + "."
	case len(c.Args) == 0:
		return ""
	case !strings.Contains(o.usage, "sha") || len(c.Args) > 1:
		return "it is written " + tick(commandPrefix+" "+o.usage) + "."
	case c.Args[0] == string(head):
		return ""
	case len(c.Args[0]) < len(head) && strings.HasPrefix(string(head), strings.ToLower(c.Args[0])):
		return tick(c.Args[0]) +
			" is too short: another commit can be made to begin with the same digits. Write all " +
			strconv.Itoa(len(head)) + ": " + again + "."
	}
	return tick(c.Args[0]) + " is not the head, which is " + tick(head.Short()) +
		". Read the new commits, and then comment " + again + "."
}

func approve(by forge.Clearance, may Rights, r *forge.PullRecord) string {
	if len(may.Owns) == 0 {
		return "owns nothing of what this changes: the approval does not count."
	}
	kept := []forge.Clearance{}
	for _, c := range r.Consents {
		if c.By.ID != by.By.ID { // of each person the last one counts
			kept = append(kept, c)
		}
	}
	r.Consents = append(kept, by)
	return "approves " + tick(by.Head.Short()) + " for " + series(each(may.Owns, tenant), 10) + "."
}

func approveDeletions(by forge.Clearance, may Rights, r *forge.PullRecord) string {
	if !may.Planned {
		return "is too early: there is no plan of " + tick(by.Head.Short()) +
			" yet. Repeat the command once its deletions are listed."
	}
	if len(may.Holds) == 0 {
		return "has no need to: no deletion of " + tick(by.Head.Short()) + " is beyond the guards."
	}
	cleared := forge.Clearance{By: by.By, Head: by.Head, At: by.At}
	for _, h := range may.Holds {
		if !may.clears[h.ID()] {
			return "may not approve these deletions: they are held for " + tenant(h.Tenant) + ". " +
				clearers(h) + " may."
		}
		cleared.Deletions = append(cleared.Deletions, h.Items...)
	}
	r.Cleared = &cleared
	return "approves the deletion of " + report.Count(len(cleared.Deletions), "Application") +
		" at " +
		tick(by.Head.Short()) + "."
}

// clearers is who may approve the deletions of a hold, as prose.
func clearers(h mirror.Hold) string {
	if h.Tenant == "" {
		return "An owner of the platform"
	}
	return "An owner of the platform or of " + tenant(h.Tenant)
}

func lock(by forge.Clearance, may Rights, r *forge.PullRecord) string {
	if !may.steers() {
		return "may not lock this: that takes an owner of what it changes, or write permission."
	}
	r.Held = &by
	return "locks this pull request until " + tick("/argosy unlock") + "."
}

func unlock(_ forge.Clearance, may Rights, r *forge.PullRecord) string {
	switch {
	case !may.steers():
		return "may not unlock this: that takes an owner of what it changes, or write permission."
	case r.Held == nil:
		return "unlocks nothing: it is not locked."
	}
	r.Held = nil
	return "ends the lock."
}

func okToTest(by forge.Clearance, may Rights, r *forge.PullRecord) string {
	switch {
	case !may.writes() && !may.Platform:
		return "may not allow that: it takes write permission or an owner of the platform."
	case !r.Fork:
		return "has no need to: it comes from no fork and is planned anyway."
	}
	r.Tested = &by
	return "lets " + tick(by.Head.Short()) +
		" be planned; a later head of the fork needs the command again."
}

func replan(forge.Clearance, Rights, *forge.PullRecord) string {
	return "asked for a new review; this comment shows its outcome."
}

// help has a line for each command.
func help() string {
	lines := []string{"Commands, in the first line of a comment:"}
	for _, w := range shown {
		lines = append(lines, tick(commandPrefix+" "+orders[w].usage)+": "+orders[w].help)
	}
	return strings.Join(lines, "\n")
}

// meant asks whether another command was meant.
func meant(word string) string {
	candidates := append(slices.Clone(shown), "help")
	nearest := fleet.Closest(word, candidates)
	if i := slices.IndexFunc(candidates, func(w string) bool {
		return len(word) > 2 && strings.HasPrefix(w, word)
	}); nearest == "" && i >= 0 {
		nearest = candidates[i]
	}
	if nearest == "" {
		return ""
	}
	return " Did you mean " + tick(commandPrefix+" "+nearest) + "?"
}
