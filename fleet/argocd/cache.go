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
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

// reconciledStep is the minimum change of an Application's reconciliation time that is reported on
// its own.
const reconciledStep = 10 * time.Minute

// cache holds the watched objects by resource and name, and the changes that the sink has not
// received yet. The response to each own write goes into the cache, so that the next decision does
// not wait for the watch. An older event never overwrites a newer state.
type cache struct {
	mu          sync.RWMutex
	objects     map[*resource]map[string]*entry
	wanted      []*resource        // the followed resources
	listed      map[*resource]bool // read completely at least once
	writing     map[fleet.ObjectKey]stamp
	atListStart map[*resource]snapshot // the objects at the start of a list
	// how the server's state went back in time, until the sink has it
	wentBack string

	// pending for the sink; the latest state of each object
	observed map[fleet.ObjectKey]mirror.Observation
	contacts map[fleet.ObjectKey]engine.Contact // pending for the sink
	wakes    map[fleet.ObjectKey]struct{}
	dirty    pacing.Signal // has one token while something is pending
}

// snapshot holds the objects of a resource at one moment.
type snapshot struct {
	version string
	objects map[string]*entry
}

// stamp identifies a write on an object: its epoch and its content.
type stamp struct {
	epoch   int64
	applied string
}

func (e *entry) stamp() stamp { return stamp{e.Epoch, e.applied} }

func newCache(wanted []*resource) *cache {
	c := &cache{wanted: wanted, objects: map[*resource]map[string]*entry{},
		listed: map[*resource]bool{}, dirty: pacing.NewSignal(),
		writing:     map[fleet.ObjectKey]stamp{},
		atListStart: map[*resource]snapshot{},
		observed:    map[fleet.ObjectKey]mirror.Observation{},
		contacts:    map[fleet.ObjectKey]engine.Contact{},
		wakes:       map[fleet.ObjectKey]struct{}{}}
	for _, r := range resources {
		c.objects[r] = map[string]*entry{}
	}
	return c
}

// get returns the entry of a key, or nil. Entries are immutable.
func (c *cache) get(key fleet.ObjectKey) *entry {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e := c.objects[resourceOf(key.Kind)][key.Name]
	if e != nil && e.Key.Kind != key.Kind {
		stranger := *e // a Secret of the other type has this name
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

// put stores an object unless the cache has a newer version.
func (c *cache) put(r *resource, e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replace(r, e)
}

func (c *cache) replace(r *resource, e *entry) {
	before := c.objects[r][e.Key.Name]
	if before != nil && newer(before.ResourceVersion, e.ResourceVersion) {
		return // even if it belonged to an earlier object of that name
	}
	c.objects[r][e.Key.Name] = e
	if !e.Ours {
		if before != nil && before.Ours {
			c.wake(before.Key) // another writer has removed our labels
		}
		return
	}
	if r == applications && (before == nil || !before.Ours || before.contact != e.contact) {
		c.contacts[e.Key] = e.contact
		c.dirty.Set()
	}
	if r == applications &&
		(before == nil || before.UID != e.UID || differs(before.observation, e.observation)) {
		c.observed[e.Key] = e.observation
		c.dirty.Set()
	} else if before != nil {
		// the step counts from the last reported time
		e.observation.ReconciledAt = before.observation.ReconciledAt
	}
	if e.Drifted || e.Deleting || c.listed[r] && c.foreignWrite(before, e) {
		c.wake(e.Key)
	}
}

// foreignWrite reports whether an object shows another writer's write. A request of a lost lease
// may arrive long afterwards and leave a consistent object. The first list of a resource does not
// count: every row is compared with it anyway.
func (c *cache) foreignWrite(before, e *entry) bool {
	if before != nil && before.Ours && before.UID == e.UID && before.stamp() == e.stamp() {
		return false
	}
	own, writing := c.writing[e.Key]
	return !writing || own != e.stamp()
}

// expect marks a write as ours until the returned function is called, so that its watch event wakes
// no worker.
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

// remove drops an object that a watch or a complete list has shown as deleted at version rv.
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
		c.observed[before.Key] = mirror.Observation{Key: before.Key, UID: before.UID,
			ResourceVersion: rv, Deleted: true, Sync: mirror.SyncUnknown,
			Health: mirror.HealthUnknown}
		c.contacts[before.Key] = engine.Contact{
			Key: before.Key, Tenant: before.Tenant, Environment: before.Environment, Gone: true,
		}
	}
	c.wake(before.Key)
}

// beginList starts a list. version is the newest one that the server has shown.
func (c *cache) beginList(r *resource, version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.atListStart[r] = snapshot{version, maps.Clone(c.objects[r])}
}

// replaceAll stores a complete list. Unlisted objects were deleted, unless they were written after
// the list was read.
func (c *cache) replaceAll(r *resource, all map[string]*entry, rv string) {
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

// rewind drops objects that a later complete list contradicts. An object's newest state is never
// older than one seen before, unless the server's whole state went back in time: then the versions
// are not comparable.
func (c *cache) rewind(r *resource, all map[string]*entry, rv string) {
	before := c.atListStart[r]
	delete(c.atListStart, r)
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
	c.wentBack = fmt.Sprintf(
		"%s: %d of %d objects are older than before, and version %s follows %s",
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

// pending holds the changes for the sink.
type pending struct {
	observed []mirror.Observation
	contacts []engine.Contact
	wakes    []fleet.ObjectKey
	wentBack string
}

// take returns and clears the pending changes.
func (c *cache) take() pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := pending{
		observed: slices.Collect(maps.Values(c.observed)),
		contacts: slices.Collect(maps.Values(c.contacts)),
		wakes:    slices.Collect(maps.Keys(c.wakes)), wentBack: c.wentBack,
	}
	c.wentBack = ""
	clear(c.observed)
	clear(c.contacts)
	clear(c.wakes)
	return p
}

// inventory returns all our objects.
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

// users counts the Applications, ours or not, that satisfy uses, and returns the name of one.
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

// newer compares resourceVersions as numbers, as every API server issues them. A version that is
// not a number is never newer.
func newer(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x > y
}

// appliedHash returns the hash annotation of an object: the row's hash and, for a Secret, the
// beginning of the content's hash, because a row has no secret content.
func appliedHash(r *resource, row string, content [32]byte) string {
	sum := hex.EncodeToString(content[:])
	if r == secrets {
		return strings.Join([]string{row, sum[:32]}, ".")
	}
	return sum
}
