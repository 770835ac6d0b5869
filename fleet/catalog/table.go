package catalog

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// table is a map that may be layered over another one. A write to the upper layer costs its own
// size and does not change the lower one.
type table[K comparable, V any] struct {
	under *table[K, V]
	rows  map[K]*V // in an upper layer, nil deletes the row of the lower one
}

// index finds the declarations of a term. It has layers as table does: the upper one holds only the
// differences.
type index struct {
	under *index
	sets  map[term]*set               // of the lowest
	delta map[term]map[fleet.Key]bool // of an upper one: true is added, false is removed
}

// set holds keys: most terms have one or two members, a few have very many.
type set struct {
	few  []fleet.Key
	many map[fleet.Key]struct{}
}

func newTable[K comparable, V any](under *table[K, V]) *table[K, V] {
	return &table[K, V]{under: under, rows: map[K]*V{}}
}

func newIndex(under *index) *index {
	if under == nil {
		return &index{sets: map[term]*set{}}
	}
	return &index{under: under, delta: map[term]map[fleet.Key]bool{}}
}

func (t *table[K, V]) get(k K) *V {
	if v, ok := t.rows[k]; ok || t.under == nil {
		return v
	}
	return t.under.get(k)
}

// all yields every row in no order.
func (t *table[K, V]) all() iter.Seq2[K, *V] {
	return func(yield func(K, *V) bool) {
		for k, v := range t.rows {
			if v != nil && !yield(k, v) {
				return
			}
		}
		if t.under == nil {
			return
		}
		for k, v := range t.under.rows {
			if _, shadowed := t.rows[k]; !shadowed && !yield(k, v) {
				return
			}
		}
	}
}

// empty reports whether a lowest table has no row.
func (t *table[K, V]) empty() bool { return len(t.rows) == 0 }

func (t *table[K, V]) fold() {
	for k, v := range t.rows {
		t.under.set(k, v)
	}
}

func (t *table[K, V]) set(k K, v *V) {
	if v == nil && t.under == nil {
		delete(t.rows, k)
		return
	}
	t.rows[k] = v
}

func (x *index) put(t term, k fleet.Key, present bool) {
	if x.under == nil {
		x.write(t, k, present)
		return
	}
	if x.under.has(t, k) == present {
		delete(x.delta[t], k)
		return
	}
	if x.delta[t] == nil {
		x.delta[t] = map[fleet.Key]bool{}
	}
	x.delta[t][k] = present
}

func (x *index) has(t term, k fleet.Key) bool {
	if x.under == nil {
		s := x.sets[t]
		return s != nil && s.has(k)
	}
	if present, ok := x.delta[t][k]; ok {
		return present
	}
	return x.under.has(t, k)
}

// list is the members of a term, sorted.
func (x *index) list(t term) []fleet.Key {
	return slices.SortedFunc(x.each(t), compareKeys)
}

// each yields the members of a term in no order. Nothing may be put under the term while it runs.
func (x *index) each(t term) iter.Seq[fleet.Key] {
	return func(yield func(fleet.Key) bool) {
		if x.under == nil {
			if s := x.sets[t]; s != nil {
				s.each(yield)
			}
			return
		}
		d := x.delta[t]
		for k, present := range d {
			if present && !yield(k) {
				return
			}
		}
		for k := range x.under.each(t) {
			if _, differs := d[k]; !differs && !yield(k) {
				return
			}
		}
	}
}

func (s *set) each(yield func(fleet.Key) bool) {
	for _, k := range s.few {
		if !yield(k) {
			return
		}
	}
	for k := range maps.Keys(s.many) {
		if !yield(k) {
			return
		}
	}
}

// compareKeys orders by rank, kind, tenant and name, which is the order of paths within a folder.
func compareKeys(a, b fleet.Key) int {
	return cmp.Or(cmp.Compare(rank(a.Kind), rank(b.Kind)),
		strings.Compare(string(a.Kind), string(b.Kind)),
		strings.Compare(string(a.Tenant), string(b.Tenant)), strings.Compare(a.Name, b.Name))
}

const ranks = 7

// rank orders kinds so that a declaration is judged after those that it refers to.
func rank(k fleet.Kind) int {
	switch k {
	case fleet.KindFleet:
		return 0
	case fleet.KindTenant:
		return 1
	case fleet.KindEnginePool:
		return 2
	case fleet.KindEngine, fleet.KindPolicy, fleet.KindCluster, fleet.KindAccess:
		return 3
	case fleet.KindManagedEnvironment, fleet.KindRepositoryCredential, fleet.KindSealedSecret,
		fleet.KindTenantDefaults, fleet.KindTenantNotifications, fleet.KindGitOpsDeploymentSet:
		return 4
	case fleet.KindGitOpsDeployment:
		return 5
	default:
		return ranks - 1
	}
}

func (x *index) fold() {
	for t, d := range x.delta {
		for k, present := range d {
			x.under.write(t, k, present)
		}
	}
}

func (x *index) write(t term, k fleet.Key, present bool) {
	s := x.sets[t]
	switch {
	case present && s == nil:
		x.sets[t] = &set{few: []fleet.Key{k}}
	case present:
		s.add(k)
	case s != nil:
		if s.remove(k); s.len() == 0 {
			delete(x.sets, t)
		}
	}
}

const fewKeys = 8

func (s *set) add(k fleet.Key) {
	if s.has(k) {
		return
	}
	if s.many == nil && len(s.few) < fewKeys {
		s.few = append(s.few, k)
		return
	}
	if s.many == nil {
		s.many = make(map[fleet.Key]struct{}, 2*fewKeys)
		for _, f := range s.few {
			s.many[f] = struct{}{}
		}
		s.few = nil
	}
	s.many[k] = struct{}{}
}

func (s *set) has(k fleet.Key) bool {
	if s.many != nil {
		_, ok := s.many[k]
		return ok
	}
	return slices.Contains(s.few, k)
}

func (s *set) remove(k fleet.Key) {
	if s.many != nil {
		delete(s.many, k)
		return
	}
	if i := slices.Index(s.few, k); i >= 0 {
		s.few = slices.Delete(s.few, i, i+1)
	}
}

func (s *set) len() int { return len(s.few) + len(s.many) }
