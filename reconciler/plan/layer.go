package plan

// layer is a map seen through changes that are not made to it yet.
type layer[K comparable, V any] struct {
	base    map[K]V
	changed map[K]*V // nil: dropped
}

func over[K comparable, V any](base map[K]V) layer[K, V] { return layer[K, V]{base: base} }

func (l *layer[K, V]) get(k K) (V, bool) {
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

func (l *layer[K, V]) set(k K, v V) {
	if l.changed == nil {
		l.changed = map[K]*V{}
	}
	l.changed[k] = &v
}

func (l *layer[K, V]) drop(k K) {
	if l.changed == nil {
		l.changed = map[K]*V{}
	}
	if _, ok := l.base[k]; ok {
		l.changed[k] = nil
	} else {
		delete(l.changed, k)
	}
}

// each visits everything, the base included: for maps that hold only what waits.
func (l *layer[K, V]) each(visit func(K, V)) {
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

// fold makes the changes. The base must not be nil.
func (l *layer[K, V]) fold() {
	for k, p := range l.changed {
		if p == nil {
			delete(l.base, k)
		} else {
			l.base[k] = *p
		}
	}
	l.changed = nil
}

// counter counts uses of keys within groups: the repositories of a tenant on an engine, and how
// many Applications read each. A layer over a base like layer, so that a plan costs the groups'
// keys that it changes and never the groups.
type counter[G, K comparable] struct {
	base  map[G]map[K]int
	delta map[G]map[K]int
}

func (c *counter[G, K]) count(g G, k K) int { return c.base[g][k] + c.delta[g][k] }

// add changes a count and reports whether the key came into use or out of it.
func (c *counter[G, K]) add(g G, k K, n int) bool {
	before := c.count(g, k)
	if c.delta == nil {
		c.delta = map[G]map[K]int{}
	}
	if c.delta[g] == nil {
		c.delta[g] = map[K]int{}
	}
	c.delta[g][k] += n
	return (before > 0) != (before+n > 0)
}

// keys is what is in use in a group, in no order. It costs the group.
func (c *counter[G, K]) keys(g G) []K {
	out := make([]K, 0, len(c.base[g])+len(c.delta[g]))
	for k := range c.base[g] {
		if c.count(g, k) > 0 {
			out = append(out, k)
		}
	}
	for k := range c.delta[g] {
		if _, ok := c.base[g][k]; !ok && c.count(g, k) > 0 {
			out = append(out, k)
		}
	}
	return out
}

// empty reports whether nothing of the group is in use, without a walk over a large group.
func (c *counter[G, K]) empty(g G) bool { return c.size(g) == 0 }

// size is how many keys of the group are in use.
func (c *counter[G, K]) size(g G) int {
	n := len(c.base[g])
	for k, d := range c.delta[g] {
		before := c.base[g][k]
		n += use(before+d) - use(before)
	}
	return n
}

func use(n int) int {
	if n > 0 {
		return 1
	}
	return 0
}

// fold makes the changes. Counts of zero are not kept, so that size holds.
func (c *counter[G, K]) fold() {
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

// anew is a counter with no changes over the same base.
func (c *counter[G, K]) anew() counter[G, K] { return counter[G, K]{base: c.base} }

func newCounter[G, K comparable]() counter[G, K] {
	return counter[G, K]{base: map[G]map[K]int{}}
}
