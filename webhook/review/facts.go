// Package review is the pure core of a pull request's review: facts in, a verdict and its text out.
//
//	ParseCommand, Judge   the command of a comment, and whether its author may give it
//	Decide                Facts -> Verdict: obstacles, missing approvals, the three checks
//	Comment               the one comment while the pull request is open
//	Result                the same comment after the merge
//
// Rules of this package:
//   - values in, values out: no clock, no Git host, no store. The same Facts give the same bytes,
//     so that an unchanged report is not written again;
//   - owners, quotas and guards are those of the applied base. Missing facts count against the pull
//     request, never for it;
//   - a person is an ID, never a login, and an approval counts at one commit;
//   - text of strangers is put into code spans and fences, where nothing acts. The text mentions no
//     account;
//   - a text that is too long loses whole details in a fixed order, and never the end of its
//     Markdown.
package review

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/report"
	"argosy.dev/argosy/reconciler/plan/reviews"
)

// Facts is everything known about one pull request at one time.
type Facts struct {
	Now time.Time // by the store's clock

	// the pull request as the Git host reports it now, with the outcome of its commands
	Record  forge.PullRecord
	Reviews []forge.Review // all of them
	// of a commit of the merge queue: the pull requests in it. Record.Head is that commit, and
	// nothing else of Record counts
	Queue []forge.PullRecord

	Base  fleet.Revision // applied revision that the pull request is held against
	Files []string       // paths below fleet/ and tenants/ that its merge changes
	// further paths that it changes and the base has in the same way by now; a merge brings them
	// back once the base takes them back
	Kept      []string
	Problems  []fleet.Problem // located: of these files, and of those that they make wrong
	Conflicts []string        // paths that have changed in the branch too
	Beside    []string        // directories of rings that it changes, outside of fleet/
	// the branch's head is not applied yet, so that the plan is not the last word
	Behind bool
	Plan   *report.Report // nil: there is none
	// the end of the sentence "The plan waits until ..."; empty: unknown
	Unplanned string

	// of a commit of the merge queue: paths whose content no approved pull request shows
	Unapproved []string

	// why the head can never be merged as it is, in one sentence; which files it changes is not
	// known then
	Unmergeable string

	// owners and quota in the base of each tenant in Touched, and always of the platform
	Owned       []Owned
	Permissions map[int64]forge.Permission // by id; who is left out has none

	// the current state of the Applications that the plan changes
	Outcomes   map[fleet.ObjectKey]forge.Outcome
	Engines    map[fleet.EngineName]Engine // named by the plan
	Stops      []mirror.Stop               // in force
	Collisions []forge.Collision
	Rendered   []mirror.Rendered // with the manifests of the plan's rings

	Link  string // to the whole plan, http or https; empty: there is no page
	Merge *Merge // after the merge
}

// Owned is the owners and the quota of the platform (Tenant "") or of one tenant in the applied
// base.
type Owned struct {
	Tenant fleet.TenantName
	Owners []Owner
	Quota  *fleet.Quota // nil: the base has no such tenant
}

// Owner is one entry of spec.owners, resolved on the Git host.
type Owner struct {
	Name    string         // as it is declared: "github:alice", "github:acme/leads", "group:acme"
	People  []forge.Person // the user, or the team's members
	Unknown bool           // the Git host surely has no such account or team
	Changed *Changed       // another account or team has the name than the one that counts
}

// Changed is the numbers of an account or team that has lost its name, and of the one that has it
// now.
type Changed struct{ Was, Is int64 }

// Engine is the state of an engine that the plan changes.
type Engine struct {
	State     fleet.EngineState
	Reachable bool
	Since     *time.Time // of Reachable
	Agent     *Agent     // in pull mode; nil: in push mode
}

// Agent is the state of an engine's agent.
type Agent struct {
	Joined    bool // one has
	Over      bool // its identity is: another has to join
	Connected bool
	LastSeen  *time.Time // nil: it never was
}

// away reports whether the cluster is unreachable now. A short absence does not count: agents
// reconnect all the time.
func (a *Agent) away(now time.Time) bool {
	const shortAbsence = 10 * time.Minute
	switch {
	case a == nil:
		return false
	case !a.Joined || a.Over:
		return true
	}
	return !a.Connected && (a.LastSeen == nil || now.Sub(*a.LastSeen) >= shortAbsence)
}

// Touched is whose files these are, sorted: each tenant of tenants/<tenant>/…, and "", the
// platform, for everything else.
func Touched(files []string) []fleet.TenantName {
	seen := map[fleet.TenantName]bool{}
	for _, path := range files {
		seen[reviews.TenantOf(path)] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

// touched is every file's owner, also of those that are in no plan: for their conflicts, or because
// the base has them already.
func (f Facts) touched() []fleet.TenantName {
	return Touched(slices.Concat(f.Files, f.Conflicts, f.Kept))
}

// untested reports whether the pull request is a fork without permission to be planned.
func (f Facts) untested() bool {
	return f.Record.Fork && !f.queued() &&
		(f.Record.Tested == nil || f.Record.Tested.Head != f.Record.Head)
}

func (f Facts) queued() bool { return len(f.Queue) > 0 }

// Ours reports whether it changes anything that Argosy manages, or whether that is unknown.
func (f Facts) Ours() bool {
	return len(f.Files)+len(f.Conflicts)+len(f.Kept)+len(f.Beside) > 0 || f.Unmergeable != ""
}

const fleetFile = "fleet/fleet.yaml" // names the directories of rings

// problems parts the problems of the files that it changes from those of others, errors first.
func (f Facts) problems() (own, others []fleet.Problem) {
	changed := map[string]bool{}
	for _, path := range f.Files {
		changed[path] = true
	}
	if len(f.Beside) > 0 {
		changed[fleetFile] = true
	}
	sorted := slices.Clone(f.Problems)
	slices.SortStableFunc(sorted, func(a, b fleet.Problem) int { return severity(a) - severity(b) })
	for _, p := range sorted {
		if changed[p.Path] {
			own = append(own, p)
		} else {
			others = append(others, p)
		}
	}
	return own, others
}

func severity(p fleet.Problem) int {
	switch p.Severity {
	case fleet.SeverityWarning:
		return 1
	case fleet.SeverityNote:
		return 2
	}
	return 0
}

func errorsOf(problems []fleet.Problem) (n int) {
	for _, p := range problems {
		if severity(p) == 0 {
			n++
		}
	}
	return n
}

// holds is the deletions beyond the guards that this head asks for.
func (f Facts) holds() []mirror.Hold {
	if f.Plan == nil {
		return nil
	}
	var out []mirror.Hold
	for _, h := range f.Plan.Holds {
		if h.Reason == mirror.HoldDeletions && h.Revision == f.Plan.Head {
			out = append(out, h)
		}
	}
	return out
}

// Ownership is whose approval the platform or one tenant needs, and how far that has come.
type Ownership struct {
	Tenant fleet.TenantName
	Owners []Owner // as the base declares them
	// of a tenant without an owner known to the Git host: an owner of the platform counts
	Platform bool
	// the platform has no such owner either: an administrator of the repository counts
	Admins bool

	Approved []forge.Person // this head
	Earlier  []forge.Person // another head, and not this one
	Early    []forge.Person // approvals of this head from before Argosy first reviewed it
	// asked for changes, or had their review dismissed, and did not approve this head since
	TookBack []forge.Person
}

// Met reports whether an approval of this head is there.
func (o Ownership) Met() bool { return len(o.Approved) > 0 }

// group is the prefix of identity-provider groups, whose members the Git host does not know.
const group = "group:"

// known reports whether a declared owner counts. An owner who lost the name keeps the ownership
// from passing on: taking a name must gain nothing.
func (o Owned) known() bool {
	return slices.ContainsFunc(o.Owners, func(w Owner) bool {
		return len(w.People) > 0 ||
			w.Changed != nil
	})
}

func (o Owned) has(p forge.Person) bool {
	return slices.ContainsFunc(o.Owners, func(w Owner) bool {
		return slices.ContainsFunc(w.People, func(q forge.Person) bool { return q.ID == p.ID })
	})
}

// owned returns the entry of a tenant; a tenant unknown to the base has no owners.
func (f Facts) owned(t fleet.TenantName) Owned {
	for _, o := range f.Owned {
		if o.Tenant == t {
			return o
		}
	}
	return Owned{Tenant: t}
}

// counts reports whether a person's approval counts for a tenant, or for the platform. Without an
// owner known to the Git host, the platform's owners count, and for a platform without any, the
// administrators of the repository: otherwise the state could never be fixed.
func (f Facts) counts(t fleet.TenantName, p forge.Person) bool {
	o := f.owned(t)
	switch {
	case p.ID <= 0:
		return false // a deleted account
	case o.known():
		return o.has(p)
	case t != "":
		return f.counts("", p)
	}
	return f.Permissions[p.ID] == forge.PermissionAdmin
}

// word is the latest statement of one person.
type word struct {
	person          forge.Person
	approved        time.Time // this head
	earlier, tookIt time.Time // approved another head; asked for changes or was dismissed
	early           time.Time // approved this head before Argosy first reviewed it
}

// opinions returns the latest statement of each person, by reviews and commands, sorted by ID.
func (f Facts) opinions() []word {
	by := map[int64]*word{}
	of := func(p forge.Person) *word {
		if by[p.ID] == nil {
			by[p.ID] = &word{person: p}
		}
		return by[p.ID]
	}
	for _, r := range f.Reviews {
		w := of(r.Author)
		switch {
		case r.State == forge.ReviewApproved && r.Head == f.Record.Head && f.Record.Seen.Before(r):
			w.early = latest(w.early, r.At)
		case r.State == forge.ReviewApproved && r.Head == f.Record.Head:
			w.approved = latest(w.approved, r.At)
		case r.State == forge.ReviewApproved:
			w.earlier = latest(w.earlier, r.At)
		case r.State == forge.ReviewChanges, r.State == forge.ReviewDismissed:
			w.tookIt = latest(w.tookIt, r.At)
		}
	}
	for _, c := range f.Record.Consents {
		if c.Head == f.Record.Head {
			of(c.By).approved = latest(of(c.By).approved, c.At)
		} else {
			of(c.By).earlier = latest(of(c.By).earlier, c.At)
		}
	}
	out := make([]word, 0, len(by))
	for _, w := range by {
		out = append(out, *w)
	}
	slices.SortFunc(out, func(a, b word) int { return cmp.Compare(a.person.ID, b.person.ID) })
	return out
}

// MayList reports whether the plan of the head may show what private repositories of the tenant
// have: if an owner has approved the head, or its pull requests in the merge queue have the
// approval of every owner. Others push heads too, and a set's template chooses what its plan shows.
// f needs no Owned yet.
func (f Facts) MayList(t fleet.TenantName, owned []Owned) bool {
	if len(f.Queue) > 0 {
		return !slices.ContainsFunc(f.Queue, func(p forge.PullRecord) bool {
			return p.Consented != p.Head
		})
	}
	f.Owned = owned
	return slices.ContainsFunc(f.opinions(), func(w word) bool {
		return !w.approved.IsZero() && f.counts(t, w.person)
	})
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Voices returns the people whose approval could count, sorted by ID. Facts.Permissions must have
// the permission of each.
func Voices(reviews []forge.Review, record forge.PullRecord) []forge.Person {
	var out []forge.Person
	for _, w := range (Facts{Reviews: reviews, Record: record}).opinions() {
		// A deleted account cannot be asked for its approval again.
		if !w.approved.IsZero() && w.person.ID > 0 {
			out = append(out, w.person)
		}
	}
	return out
}

// ownership is who has approved for each of the touched, and who has yet to.
func (f Facts) ownership() []Ownership {
	opinions := f.opinions()
	var out []Ownership
	for _, t := range f.touched() {
		o := f.owned(t)
		w := Ownership{Tenant: t, Owners: o.Owners, Platform: t != "" && !o.known()}
		w.Admins = (t == "" || w.Platform) && !f.owned("").known()
		for _, opinion := range opinions {
			if f.counts(t, opinion.person) {
				w.add(opinion)
			}
		}
		out = append(out, w)
	}
	return out
}

func (o *Ownership) add(w word) {
	switch {
	case w.approved.After(w.tookIt):
		o.Approved = append(o.Approved, w.person)
	case w.early.After(w.tookIt):
		o.Early = append(o.Early, w.person)
	case w.earlier.After(w.tookIt):
		o.Earlier = append(o.Earlier, w.person)
	case !w.tookIt.IsZero():
		o.TookBack = append(o.TookBack, w.person)
	}
}

// who names the people whose approval counts, as prose.
func (o Ownership) who(most int) string {
	switch {
	case o.Admins:
		return "somebody with admin permission on the repository"
	case o.Platform:
		return "an owner of the platform"
	}
	var names []string
	for _, w := range o.Owners {
		name := strings.TrimPrefix(w.Name, "github:")
		switch {
		case w.Changed != nil:
			names = append(names, tick(name)+", once it is released,")
		case len(w.People) == 0:
		case strings.Contains(name, "/"):
			names = append(names, "somebody of "+tick(name))
		default:
			names = append(names, tick(name))
		}
	}
	return choice(names, most)
}

// silent names the declared owners without an account that counts, with the reason, as prose.
func (o Ownership) silent(most int) string {
	var names []string
	for _, w := range o.Owners {
		switch {
		case strings.HasPrefix(w.Name, group):
			names = append(
				names, tick(w.Name)+" (an identity-provider group, unknown to the Git host)")
		case w.Changed != nil: // see changed
		case w.Unknown:
			names = append(names, tick(w.Name)+" (unknown to the Git host)")
		case len(w.People) == 0:
			names = append(names, tick(w.Name)+" (without members)")
		}
	}
	if len(names) == 0 {
		return ""
	}
	return series(names, most)
}

// changed names the declared owners whose name another account or team has now, and what lets it
// count, as prose.
func (o Ownership) changed(most int) string {
	var names []string
	for _, w := range o.Owners {
		if w.Changed != nil {
			name := strings.TrimPrefix(w.Name, "github:")
			names = append(names,
				fmt.Sprintf(
					"%s is another one than before (number %d, it was %d), and does not count "+
						"until the platform has run %s",
					tick(name), w.Changed.Is, w.Changed.Was,
					tick(fmt.Sprintf("argosy pin-owner %s --id %d", name, w.Changed.Is))))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return series(names, most)
}
