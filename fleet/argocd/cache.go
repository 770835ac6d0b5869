package argocd

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/pacing"
)

// reconciledStep is how often an Application's time of reconciliation alone is worth an
// observation.
const reconciledStep = 10 * time.Minute

// cache is what the watches have shown, kept by resource and name, and what of it the sink has not
// heard yet. Our own writes are put in as they are answered, so that the next decision does not
// wait for the watch; an older event never overwrites a newer state.
type cache struct {
	mu      sync.RWMutex
	objects map[*resource]map[string]*entry
	wanted  []*resource        // that are followed
	listed  map[*resource]bool // read completely, at least once
	writing map[fleet.ObjectKey]stamp
	before  map[*resource]listed // what was known when a list began
	// how the server's state was seen to go back; until the sink has heard
	back string

	observed map[fleet.ObjectKey]fleet.Observation // waiting for the sink; the last state of each
	contacts map[fleet.ObjectKey]engine.Contact    // likewise
	wakes    map[fleet.ObjectKey]struct{}
	dirty    pacing.Signal // holds one token while something waits
}

// listed is what was known of a resource at one moment.
type listed struct {
	version string
	objects map[string]*entry
}

// stamp is what a write leaves on an object: whose write it is and of which content.
type stamp struct {
	epoch   int64
	applied string
}

func (e *entry) stamp() stamp { return stamp{e.Epoch, e.applied} }

func newCache(wanted []*resource) *cache {
	c := &cache{wanted: wanted, objects: map[*resource]map[string]*entry{},
		listed: map[*resource]bool{}, dirty: pacing.NewSignal(),
		writing:  map[fleet.ObjectKey]stamp{},
		before:   map[*resource]listed{},
		observed: map[fleet.ObjectKey]fleet.Observation{},
		contacts: map[fleet.ObjectKey]engine.Contact{},
		wakes:    map[fleet.ObjectKey]struct{}{}}
	for _, r := range resources {
		c.objects[r] = map[string]*entry{}
	}
	return c
}

// get is the entry under a key, or nil. An entry is never changed once it is in.
func (c *cache) get(key fleet.ObjectKey) *entry {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e := c.objects[resourceOf(key.Kind)][key.Name]
	if e != nil && e.Key.Kind != key.Kind {
		stranger := *e // a Secret of the other type under this name
		stranger.Ours = false
		return &stranger
	}
	return e
}

func (c *cache) synced() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.listed) == len(c.wanted)
}

// put takes what the API server said of an object, unless it is older than what is known.
func (c *cache) put(r *resource, e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replace(r, e)
}

func (c *cache) replace(r *resource, e *entry) {
	before := c.objects[r][e.Key.Name]
	if before != nil && newer(before.ResourceVersion, e.ResourceVersion) {
		return // of the object that had the name before, too
	}
	c.objects[r][e.Key.Name] = e
	if !e.Ours {
		if before != nil && before.Ours {
			c.wake(before.Key) // somebody has taken our labels off
		}
		return
	}
	if r == applications && (before == nil || !before.Ours || before.contact != e.contact) {
		c.contacts[e.Key] = e.contact
		c.dirty.Set()
	}
	if r == applications && (before == nil || before.UID != e.UID || differs(before.seen, e.seen)) {
		c.observed[e.Key] = e.seen
		c.dirty.Set()
	} else if before != nil {
		// so that the step is counted from what was told
		e.seen.ReconciledAt = before.seen.ReconciledAt
	}
	if e.Drifted || e.Deleting || c.listed[r] && c.news(before, e) {
		c.wake(e.Key)
	}
}

// news reports whether an object shows a write that is not ours: a request that another lease
// sent may arrive long after it was given up, and what it leaves is consistent in itself. The
// first list of a resource is no news: every row is held against it.
func (c *cache) news(before, e *entry) bool {
	if before != nil && before.Ours && before.UID == e.UID && before.stamp() == e.stamp() {
		return false
	}
	own, writing := c.writing[e.Key]
	return !writing || own != e.stamp()
}

// expect makes the watch's event of a write of ours no news until the returned function is called.
func (c *cache) expect(key fleet.ObjectKey, s stamp) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing[key] = s
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.writing, key)
	}
}

// remove takes an object out that a watch or a complete list has shown to be gone. rv is when it
// was.
func (c *cache) remove(r *resource, name, rv string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(r, name, rv)
}

func (c *cache) drop(r *resource, name, rv string) {
	before := c.objects[r][name]
	if before == nil || newer(before.ResourceVersion, rv) {
		return
	}
	delete(c.objects[r], name)
	if !before.Ours {
		return
	}
	if r == applications {
		c.observed[before.Key] = fleet.Observation{Key: before.Key, UID: before.UID,
			ResourceVersion: rv, Deleted: true, Sync: fleet.SyncUnknown, Health: fleet.HealthUnknown}
		c.contacts[before.Key] = engine.Contact{
			Key: before.Key, Tenant: before.Tenant, Environment: before.Environment, Gone: true,
		}
	}
	c.wake(before.Key)
}

// listing begins a list. version is the newest that the server has told of before.
func (c *cache) listing(r *resource, version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before[r] = listed{version, maps.Clone(c.objects[r])}
}

// relisted takes a complete list: what is not in it is gone, unless it was written after the list
// was read.
func (c *cache) relisted(r *resource, all map[string]*entry, rv string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rewind(r, all, rv)
	for name := range c.objects[r] {
		if all[name] == nil {
			c.drop(r, name, rv)
		}
	}
	for _, e := range all {
		c.replace(r, e)
	}
	c.listed[r] = true
}

// rewind forgets what a complete list contradicts that began after it was known. The newest state
// of an object is never older than one that the server has shown before, unless the server's whole
// state is: then versions of before and after do not compare.
func (c *cache) rewind(r *resource, all map[string]*entry, rv string) {
	before := c.before[r]
	delete(c.before, r)
	older := 0
	for name, e := range all {
		b := before.objects[name]
		if b != nil && b.UID == e.UID && newer(b.ResourceVersion, e.ResourceVersion) {
			older++
		}
	}
	if older == 0 && !newer(before.version, rv) {
		return
	}
	c.back = fmt.Sprintf("%s: %d of %d objects are older than before, and version %s follows %s",
		r.plural, older, len(all), rv, cmp.Or(before.version, "an unknown one"))
	c.dirty.Set()
	for name, b := range before.objects {
		if e := all[name]; c.objects[r][name] == b &&
			(e == nil || newer(b.ResourceVersion, e.ResourceVersion)) {
			c.drop(r, name, b.ResourceVersion)
		}
	}
}

func (c *cache) wake(key fleet.ObjectKey) {
	c.wakes[key] = struct{}{}
	c.dirty.Set()
}

// pending is what waits for the sink.
type pending struct {
	seen     []fleet.Observation
	contacts []engine.Contact
	wakes    []fleet.ObjectKey
	back     string
}

// take hands over what waits for the sink.
func (c *cache) take() pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := pending{
		seen:     slices.Collect(maps.Values(c.observed)),
		contacts: slices.Collect(maps.Values(c.contacts)),
		wakes:    slices.Collect(maps.Keys(c.wakes)), back: c.back,
	}
	c.back = ""
	clear(c.observed)
	clear(c.contacts)
	clear(c.wakes)
	return p
}

// inventory is everything that is ours.
func (c *cache) inventory() []engine.Live {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var all []engine.Live
	for _, r := range resources {
		for _, e := range c.objects[r] {
			if e.Ours {
				all = append(all, e.Live)
			}
		}
	}
	slices.SortFunc(all, func(a, b engine.Live) int {
		return cmp.Or(cmp.Compare(a.Key.Kind.Rank(), b.Key.Kind.Rank()),
			cmp.Compare(a.Key.Kind, b.Key.Kind), cmp.Compare(a.Key.Name, b.Key.Name))
	})
	return all
}

// users counts the Applications, ours or not, that satisfy uses, and names one of them.
func (c *cache) users(uses func(*entry) bool) (n int, one string) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for name, e := range c.objects[applications] {
		if uses(e) {
			n++
			one = name
		}
	}
	return n, one
}

// newer compares resourceVersions as the numbers that they are on every API server there is; what
// is no number is never newer.
func newer(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x > y
}

// appliedHash is the hash annotation of an object with that content: the row's hash, and for a
// Secret, whose row has no secret content, the beginning of the content's hash too.
func appliedHash(r *resource, row string, content [32]byte) string {
	sum := hex.EncodeToString(content[:])
	if r == secrets {
		return strings.Join([]string{row, sum[:32]}, ".")
	}
	return sum
}
