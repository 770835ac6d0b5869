package catalog

import (
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// state is everything that the catalog knows: of the base alone, or of a stage as what differs over
// the base. It does not lock.
type state struct {
	under       *state
	entries     *table[fleet.Key, entry]
	index       *index
	used        *table[fleet.TenantName, fleet.Quota] // what each tenant has in effect
	effective   int
	quarantined int
	// to be judged by the next stage, though nothing that they stand on changes
	pending map[fleet.Key]bool
}

func newState() *state {
	return &state{entries: newTable[fleet.Key, entry](nil), index: newIndex(nil),
		used:    newTable[fleet.TenantName, fleet.Quota](nil),
		pending: map[fleet.Key]bool{}}
}

func (s *state) over() *state {
	return &state{under: s, entries: newTable(s.entries), index: newIndex(s.index),
		used:      newTable(s.used),
		effective: s.effective, quarantined: s.quarantined}
}

func (s *state) fold() {
	s.entries.fold()
	s.index.fold()
	s.used.fold()
	s.under.effective, s.under.quarantined, s.under.pending = s.effective, s.quarantined, s.pending
}

// put sets the entry of a key (nil: none) and keeps the index.
func (s *state) put(k fleet.Key, e *entry) {
	old := s.entries.get(k)
	if !sameTerms(old, e) {
		for _, t := range old.terms() {
			s.index.put(t, k, false)
		}
		for _, t := range e.terms() {
			s.index.put(t, k, true)
		}
	}
	s.effective += count(effectiveOf(e) != nil) - count(effectiveOf(old) != nil)
	s.quarantined += count(e.quarantined()) - count(old.quarantined())
	s.entries.set(k, e)
}

// putCounting is put that keeps each tenant's use as well.
func (s *state) putCounting(k fleet.Key, e *entry) {
	before, after := effectiveOf(s.entries.get(k)), effectiveOf(e)
	if before == after || k.Tenant == "" {
		s.put(k, e)
		return
	}
	used := s.usedBy(k.Tenant)
	used.Applications -= s.applications(before)
	s.put(k, e)
	used.Applications += s.applications(after)
	used.Environments += count(after != nil && after.Environment != nil) - count(before != nil &&
		before.Environment != nil)
	used.Deployments += count(after != nil && after.Deployment != nil) - count(before != nil &&
		before.Deployment != nil)
	s.used.set(k.Tenant, &used)
}

func (s *state) usedBy(t fleet.TenantName) fleet.Quota {
	if u := s.used.get(t); u != nil {
		return *u
	}
	return fleet.Quota{}
}

// recount counts every tenant's use from nothing.
func (s *state) recount() {
	s.used = newTable[fleet.TenantName, fleet.Quota](nil)
	for k, e := range s.entries.all() {
		if e.effective == nil || k.Tenant == "" {
			continue
		}
		used := s.usedBy(k.Tenant)
		switch {
		case e.effective.Environment != nil:
			used.Environments++
		case e.effective.Deployment != nil:
			used.Deployments++
			used.Applications += s.applications(e.effective)
		}
		s.used.set(k.Tenant, &used)
	}
}

// applications is how many Applications stand because of a declaration: a deployment's targets, or
// the deployments that select an environment. Those that name an environment count it whether it
// stands or not: in the end it does, but within a stage it may be removed before the deployment
// that no longer names it is judged.
func (s *state) applications(d *fleet.Declaration) int {
	switch {
	case d == nil:
		return 0
	case d.Deployment != nil && d.Deployment.Destination.EnvironmentSelector == nil:
		return distinct(d.Deployment.Destination.Environments)
	case d.Deployment != nil:
		return len(s.targets(d))
	case d.Environment != nil:
		return len(s.selecting(d))
	}
	return 0
}

func distinct(names []fleet.EnvironmentName) int {
	n := 0
	for i, name := range names {
		n += count(!slices.Contains(names[:i], name))
	}
	return n
}

func (s *state) get(k fleet.Key) *fleet.Declaration { return effectiveOf(s.entries.get(k)) }

// targets are the effective environments that a deployment names or selects, sorted. A selector
// never reaches an environment that does not list the deployment's namespace; neither way reaches
// one that is autonomous.
func (s *state) targets(d *fleet.Declaration) []fleet.EnvironmentID {
	var ids []fleet.EnvironmentID
	dst := d.Deployment.Destination
	for _, n := range dst.Environments {
		id := fleet.EnvironmentID{Tenant: d.Key.Tenant, Name: n}
		if env := s.get(environmentKey(id)); env != nil && !env.Environment.Agent.Autonomous() {
			ids = append(ids, id)
		}
	}
	if k, v, ok := firstLabel(dst.EnvironmentSelector); ok {
		for key := range s.index.each(term{what: labelled, tenant: d.Key.Tenant, a: k, b: v}) {
			if selects(d, s.get(key)) {
				ids = append(ids, environmentID(key))
			}
		}
	}
	slices.SortFunc(ids, func(a, b fleet.EnvironmentID) int {
		return strings.Compare(string(a.Name), string(b.Name))
	})
	return slices.Compact(ids)
}

// selecting are the effective deployments that select an environment, whether or not it is in
// effect, in no order.
func (s *state) selecting(env *fleet.Declaration) []fleet.Key {
	if env.Environment.Agent.Autonomous() {
		return nil
	}
	return s.matching(env)
}

// matching are those whose selector matches it, be it autonomous or not.
func (s *state) matching(env *fleet.Declaration) []fleet.Key {
	var keys []fleet.Key
	for k, v := range env.Labels {
		for key := range s.index.each(term{what: selecting, tenant: env.Key.Tenant, a: k, b: v}) {
			d := s.get(key)
			if d == nil || !matches(d, env) {
				continue
			}
			if first, _, _ := firstLabel(d.Deployment.Destination.EnvironmentSelector); first == k {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

func selects(d, env *fleet.Declaration) bool {
	return matches(d, env) && !env.Environment.Agent.Autonomous()
}

// matches reports whether an environment has a deployment's labels and its namespace.
func matches(d, env *fleet.Declaration) bool {
	return env != nil && env.Environment != nil &&
		d.Deployment.Destination.EnvironmentSelector.Matches(env.Labels) &&
		slices.Contains(env.Environment.Namespaces, d.Deployment.Destination.Namespace)
}

func environmentID(k fleet.Key) fleet.EnvironmentID {
	return fleet.EnvironmentID{Tenant: k.Tenant, Name: fleet.EnvironmentName(k.Name)}
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
