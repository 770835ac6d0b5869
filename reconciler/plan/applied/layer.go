package applied

// Layer is a map with uncommitted changes over it. Reading sees the changes; the map below stays as
// it is until Commit.
type Layer[K comparable, V any] struct {
	base    map[K]V
	changed map[K]*V // nil: deleted
}

// Get returns the value of a key with the changes applied.
func (l *Layer[K, V]) Get(k K) (V, bool) {
	if p, ok := l.changed[k]; ok {
		if p == nil {
			var none V
			return none, false
		}
		return *p, true
	}
	v, ok := l.base[k]
	return v, ok
}

// Base is the map without the changes. Callers only read it.
func (l *Layer[K, V]) Base() map[K]V { return l.base }

// Changed returns the keys that were set or deleted. Some may have their old value again.
func (l *Layer[K, V]) Changed() []K {
	keys := make([]K, 0, len(l.changed))
	for k := range l.changed {
		keys = append(keys, k)
	}
	return keys
}

// Set changes the value of a key.
func (l *Layer[K, V]) Set(k K, v V) {
	if l.changed == nil {
		l.changed = map[K]*V{}
	}
	l.changed[k] = &v
}

// Delete removes a key.
func (l *Layer[K, V]) Delete(k K) {
	if l.changed == nil {
		l.changed = map[K]*V{}
	}
	if _, ok := l.base[k]; ok {
		l.changed[k] = nil
	} else {
		delete(l.changed, k)
	}
}

// Each visits every entry, the unchanged ones included: only for layers that hold few entries.
func (l *Layer[K, V]) Each(visit func(K, V)) {
	for k, v := range l.base {
		if _, ok := l.changed[k]; !ok {
			visit(k, v)
		}
	}
	for k, p := range l.changed {
		if p != nil {
			visit(k, *p)
		}
	}
}

func (l *Layer[K, V]) init() { l.base = map[K]V{} }

func (l *Layer[K, V]) commit() {
	for k, p := range l.changed {
		if p == nil {
			delete(l.base, k)
		} else {
			l.base[k] = *p
		}
	}
	l.changed = nil
}

// Set sets a key of a map, and makes the map with its first key: most plans need few of their maps.
func Set[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}

// Counter counts the uses of keys within groups, for example the repositories of a tenant on an
// engine by the number of Applications that read each. Like a Layer it holds uncommitted changes,
// so that a plan costs the keys that it changes and never the group.
type Counter[G, K comparable] struct {
	base  map[G]map[K]int
	delta map[G]map[K]int
}

// Count returns the uses of a key in a group.
func (c *Counter[G, K]) Count(g G, k K) int { return c.base[g][k] + c.delta[g][k] }

// Base is the counts without the changes. Callers only read it.
func (c *Counter[G, K]) Base() map[G]map[K]int { return c.base }

// Add changes a count and reports whether the first use began or the last use ended.
func (c *Counter[G, K]) Add(g G, k K, n int) bool {
	before := c.Count(g, k)
	if c.delta == nil {
		c.delta = map[G]map[K]int{}
	}
	if c.delta[g] == nil {
		c.delta[g] = map[K]int{}
	}
	c.delta[g][k] += n
	return (before > 0) != (before+n > 0)
}

// Keys returns the keys in use in a group, unsorted. It costs the group.
func (c *Counter[G, K]) Keys(g G) []K {
	out := make([]K, 0, len(c.base[g])+len(c.delta[g]))
	for k := range c.base[g] {
		if c.Count(g, k) > 0 {
			out = append(out, k)
		}
	}
	for k := range c.delta[g] {
		if _, ok := c.base[g][k]; !ok && c.Count(g, k) > 0 {
			out = append(out, k)
		}
	}
	return out
}

// Empty reports whether no key of the group is in use.
func (c *Counter[G, K]) Empty(g G) bool { return c.Size(g) == 0 }

// Size returns the number of keys in use in a group. It costs the group's changes.
func (c *Counter[G, K]) Size(g G) int {
	n := len(c.base[g])
	for k, d := range c.delta[g] {
		before := c.base[g][k]
		n += inUse(before+d) - inUse(before)
	}
	return n
}

func inUse(n int) int {
	if n > 0 {
		return 1
	}
	return 0
}

func (c *Counter[G, K]) init() { c.base = map[G]map[K]int{} }

// commit keeps no count of zero, so that Size holds.
func (c *Counter[G, K]) commit() {
	for g, ks := range c.delta {
		in := c.base[g]
		if in == nil {
			in = map[K]int{}
			c.base[g] = in
		}
		for k, d := range ks {
			if n := in[k] + d; n > 0 {
				in[k] = n
			} else {
				delete(in, k)
			}
		}
		if len(in) == 0 {
			delete(c.base, g)
		}
	}
	c.delta = nil
}

// Once holds values of a draft that no later plan needs.
type Once[V any] struct{ values []V }

// Add adds a value to the draft.
func (o *Once[V]) Add(v V) { o.values = append(o.values, v) }

// Values returns the values of the draft.
func (o *Once[V]) Values() []V { return o.values }

func (o *Once[V]) init() { o.values = nil }

func (o *Once[V]) commit() { o.values = nil }
