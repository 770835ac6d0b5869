package review

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
)

// Ownership is whose approval the platform or one tenant needs, and how far that has come.
type Ownership struct {
	Tenant fleet.TenantName
	Owners []Owner // as the base declares them
	// of a tenant that has no owner whom the forge knows: an owner of the platform counts
	Platform bool
	// the platform has no such owner either: whoever may administer the repository counts
	Admins bool

	Approved []forge.Person // this head
	Earlier  []forge.Person // another head, and not this one
	Early    []forge.Person // this head, before Argosy had looked at it
	// asked for changes, or had their review dismissed, and did not approve this head since
	TookBack []forge.Person
}

// Met reports whether an approval of this head is there.
func (o Ownership) Met() bool { return len(o.Approved) > 0 }

// group marks an owner that is a group of the sign-in: the forge does not know who is in it.
const group = "group:"

// known reports whether somebody counts by what is declared. One who has lost the name keeps the
// ownership from passing on: nobody else is to gain by taking it.
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

// owned is what the base says of a tenant; of one that it does not know there are no owners.
func (f Facts) owned(t fleet.TenantName) Owned {
	for _, o := range f.Owned {
		if o.Tenant == t {
			return o
		}
	}
	return Owned{Tenant: t}
}

// counts reports whether a person's approval counts for a tenant, or for the platform. For what has
// no owner whom the forge knows, the platform's owners count, and for a platform without any, those
// who may administer the repository: else nobody could ever mend it.
func (f Facts) counts(t fleet.TenantName, p forge.Person) bool {
	o := f.owned(t)
	switch {
	case p.ID <= 0:
		return false // an account that is gone
	case o.known():
		return o.has(p)
	case t != "":
		return f.counts("", p)
	}
	return f.Permissions[p.ID] == forge.PermissionAdmin
}

// word is the last that one person has said.
type word struct {
	person          forge.Person
	approved        time.Time // this head
	earlier, tookIt time.Time // approved another head; asked for changes or was dismissed
	early           time.Time // approved this head before it was looked at
}

// heard is what people have said by reviews and commands, in the order of their ids.
func (f Facts) heard() []word {
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

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Voices is everybody whose approval could count, in the order of their ids: those whose permission
// Facts.Permissions must have.
func Voices(reviews []forge.Review, record forge.PullRecord) []forge.Person {
	var out []forge.Person
	for _, w := range (Facts{Reviews: reviews, Record: record}).heard() {
		if !w.approved.IsZero() && w.person.ID > 0 { // of an account that is gone nobody can ask
			out = append(out, w.person)
		}
	}
	return out
}

// ownership is who has approved for each of the touched, and who has yet to.
func (f Facts) ownership() []Ownership {
	heard := f.heard()
	var out []Ownership
	for _, t := range f.touched() {
		o := f.owned(t)
		w := Ownership{Tenant: t, Owners: o.Owners, Platform: t != "" && !o.known()}
		w.Admins = (t == "" || w.Platform) && !f.owned("").known()
		for _, said := range heard {
			if f.counts(t, said.person) {
				w.add(said)
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

// who names those whose approval counts, as prose.
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

// silent names the declared owners by whom nobody counts, and why, as prose.
func (o Ownership) silent(most int) string {
	var names []string
	for _, w := range o.Owners {
		switch {
		case strings.HasPrefix(w.Name, group):
			names = append(names, tick(w.Name)+" (a group of the sign-in, unknown to the forge)")
		case w.Changed != nil: // see changed
		case w.Unknown:
			names = append(names, tick(w.Name)+" (unknown to the forge)")
		case len(w.People) == 0:
			names = append(names, tick(w.Name)+" (nobody is in it)")
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
