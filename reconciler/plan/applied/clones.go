package applied

import (
	"cmp"
	"slices"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

func repoOf(c mirror.Clone) Repo { return Repo{Engine: c.Engine, Key: c.Repository} }

// KeepClone records that a tenant leaves its clone behind, and the Secret that it read it with.
func (l *Layers) KeepClone(r Reader, secret string, now time.Time) {
	l.setClones(r.Repo, append(l.clonesOfOthers(r), mirror.Clone{Engine: r.Engine,
		Repository: r.Key, Tenant: r.Tenant, Since: now, Secret: secret}))
}

// ResumeClone removes the record of a tenant that reads its clone with a credential again.
func (l *Layers) ResumeClone(r Reader) { l.setClones(r.Repo, l.clonesOfOthers(r)) }

// LeftByAnother reports whether an engine may have a clone of the repository that another tenant
// left behind. It costs the tenants that did.
func (l *Layers) LeftByAnother(r Reader) bool { return len(l.clonesOfOthers(r)) > 0 }

// ForgetClones removes the records of clones on an engine that tenants left before a time, and
// returns their repositories. A record stays while Argo CD may have its Secret: the clone may come
// back. It costs all records, as the next two functions do.
func (l *Layers) ForgetClones(e fleet.EngineName, before time.Time) (keys []string) {
	for _, r := range l.changeClones(func(c *mirror.Clone) (keep bool) {
		row, exists := l.Rows.Get(fleet.ObjectKey{Engine: c.Engine,
			Kind: fleet.ObjectRepository, Name: c.Secret})
		return c.Engine != e || !c.Since.Before(before) || exists && row.Unwanted
	}) {
		keys = append(keys, r.Key)
	}
	return keys
}

// LeaveClones sets the time of a tenant's clones on an engine that has deleted a Secret of it.
func (l *Layers) LeaveClones(e fleet.EngineName, t fleet.TenantName, now time.Time) {
	l.changeClones(func(c *mirror.Clone) (keep bool) {
		if c.Engine == e && c.Tenant == t {
			c.Since = now
		}
		return true
	})
}

// DisownClones keeps a removed tenant's clones from a later tenant of its name.
func (l *Layers) DisownClones(t fleet.TenantName) {
	l.changeClones(func(c *mirror.Clone) (keep bool) {
		c.Removed = c.Removed || c.Tenant == t
		return true
	})
}

// changeClones changes or removes records, and returns the repositories of those that it removed.
func (l *Layers) changeClones(change func(*mirror.Clone) (keep bool)) (removed []Repo) {
	changed := map[Repo][]mirror.Clone{}
	l.Clones.Each(func(r Repo, clones []mirror.Clone) {
		next := slices.Clone(clones)
		for i := range next {
			if !change(&next[i]) {
				next[i] = mirror.Clone{}
			}
		}
		next = slices.DeleteFunc(next, func(c mirror.Clone) bool { return c == mirror.Clone{} })
		if !slices.Equal(clones, next) {
			changed[r] = next
		}
		if len(next) < len(clones) {
			removed = append(removed, r)
		}
	})
	for r, clones := range changed {
		l.setClones(r, clones)
	}
	return removed
}

// clonesOfOthers returns a new list of the repository's clones that other tenants left.
func (l *Layers) clonesOfOthers(r Reader) []mirror.Clone {
	clones, _ := l.Clones.Get(r.Repo)
	return slices.DeleteFunc(slices.Clone(clones), func(c mirror.Clone) bool {
		return c.Tenant == r.Tenant && !c.Removed
	})
}

func (l *Layers) setClones(r Repo, clones []mirror.Clone) {
	if len(clones) == 0 {
		l.Clones.Delete(r)
		return
	}
	slices.SortFunc(clones, compareClones)
	l.Clones.Set(r, clones)
}

func compareClones(a, b mirror.Clone) int {
	return cmp.Or(cmp.Compare(a.Engine, b.Engine), cmp.Compare(a.Repository, b.Repository),
		cmp.Compare(a.Tenant, b.Tenant), a.Since.Compare(b.Since))
}
