package edge

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

// DeletionLimiterConfig configures a DeletionLimiter.
type DeletionLimiterConfig struct {
	Ledger     ObjectStore // holds the ledger: a ConfigMap on the cluster
	MaxPerHour int         // Applications deleted within an hour without an approval; below 1: 20
	// Pending lists the Applications that rows ask to delete, so that the limiter sees a burst from
	// its first deletion. While it fails, nothing is deleted. Nil: each deletion is judged alone.
	Pending func() ([]fleet.ObjectKey, error)
	Log     *slog.Logger
	Now     func() time.Time // the cluster's own clock, never the hub's; nil: this machine's
}

const (
	defaultMaxPerHour    = 20
	limitWindow          = time.Hour
	approvalPollInterval = 10 * time.Second // between reads of the ledger while deletions are held
)

// ErrHeld reports that a deletion waits for an approval by the cluster's admin.
var ErrHeld = errors.New(
	"the deletion waits for an approval on this cluster: see `argosy agent release-deletions`")

// DeletionLimiter is an engine that deletes at most as many Applications per hour as the cluster's
// admin allows, whatever the hub requests. If a deletion would exceed the limit, all requested
// deletions that have not started are held until the admin approves exactly this set on the
// cluster: a burst does not trickle through hour by hour. All other calls go through. The ledger is
// stored on the cluster before each deletion, so that it survives restarts.
type DeletionLimiter struct {
	engine.Engine
	config DeletionLimiterConfig

	deciding sync.Mutex // serializes decisions: each is stored before the next

	mu         sync.Mutex
	ready      bool // the ledger was read
	ledger     ledger
	engineName fleet.EngineName // the engine of the ledger's objects
	wake       func([]fleet.ObjectKey)
}

// NewDeletionLimiter wraps an engine.
func NewDeletionLimiter(inner engine.Engine, c DeletionLimiterConfig) *DeletionLimiter {
	if c.MaxPerHour < 1 {
		c.MaxPerHour = defaultMaxPerHour
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return &DeletionLimiter{Engine: inner, config: c}
}

// Delete implements engine.Engine. A held deletion returns ErrHeld.
func (c *DeletionLimiter) Delete(ctx context.Context, row mirror.Row, lease mirror.Lease) (bool,
	error) {
	if row.Key.Kind != fleet.ObjectApplication {
		return c.Engine.Delete(ctx, row, lease)
	}
	c.mu.Lock()
	c.engineName = row.Key.Engine
	c.mu.Unlock()
	if err := c.allow(ctx, row.Key, lease); err != nil {
		return false, fmt.Errorf("%s %s: %w", row.Key.Kind, row.Key.Name, err)
	}
	done, err := c.Engine.Delete(ctx, row, lease)
	if done && err == nil {
		c.finish(ctx, row.Key)
	}
	return done, err
}

// Apply implements engine.Engine. It withdraws a held or granted deletion of an object that is
// wanted again.
func (c *DeletionLimiter) Apply(ctx context.Context, row mirror.Row, secret fleet.Secret,
	lease mirror.Lease) (engine.Outcome, error) {
	if row.Key.Kind == fleet.ObjectApplication && c.tracked(row.Key) {
		if err := c.withdraw(ctx, row.Key); err != nil {
			return engine.Outcome{}, err
		}
	}
	return c.Engine.Apply(ctx, row, secret, lease)
}

// Unwrap returns the engine, for engine.MoverOf: the steps of a move but the deletion need no
// limit.
func (c *DeletionLimiter) Unwrap() engine.Engine { return c.Engine }

// Watch implements engine.Engine and polls for approvals until it ends.
func (c *DeletionLimiter) Watch(ctx context.Context, sink engine.Sink) error {
	var one sync.Mutex // the contract calls the sink from one goroutine
	inner := sink
	if sink.Observe != nil {
		inner.Observe = func(seen []mirror.Observation) {
			one.Lock()
			defer one.Unlock()
			sink.Observe(seen)
		}
	}
	if sink.Wake != nil {
		inner.Wake = func(keys []fleet.ObjectKey) {
			one.Lock()
			defer one.Unlock()
			sink.Wake(keys)
		}
		c.setWake(inner.Wake)
		defer c.setWake(nil)
	}
	polling, stop := context.WithCancel(ctx)
	var polls sync.WaitGroup
	polls.Go(func() { c.pollApprovals(polling) })
	defer polls.Wait()
	defer stop()
	return c.Engine.Watch(ctx, inner)
}

func (c *DeletionLimiter) setWake(wake func([]fleet.ObjectKey)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wake = wake
}

// pollApprovals reads the ledger while deletions are held, and wakes the approved ones.
func (c *DeletionLimiter) pollApprovals(ctx context.Context) {
	for pacing.Sleep(ctx, approvalPollInterval) {
		if c.Held() == 0 {
			continue
		}
		var freed []string
		asked := c.requested()
		err := c.update(ctx, func(b *ledger) bool {
			freed = b.approve()
			return b.prune(c.config.Now(), asked) || len(freed) > 0
		})
		switch {
		case err != nil && ctx.Err() == nil:
			c.config.Log.Warn("failed to read approvals of deletions", "error", err)
		case len(freed) > 0:
			c.config.Log.Info("deletions were approved on the cluster", "count", len(freed))
			c.wakeUp(freed)
		}
	}
}

func (c *DeletionLimiter) wakeUp(names []string) {
	c.mu.Lock()
	wake, of := c.wake, c.engineName
	c.mu.Unlock()
	keys := make([]fleet.ObjectKey, len(names))
	for i, name := range names {
		keys[i] = fleet.ObjectKey{Engine: of, Kind: fleet.ObjectApplication, Name: name}
	}
	if wake != nil {
		wake(keys)
	}
}

// requested returns the Applications that rows ask to delete; nil if unknown.
func (c *DeletionLimiter) requested() map[string]bool {
	if c.config.Pending == nil {
		return nil
	}
	keys, err := c.config.Pending()
	if err != nil {
		return nil
	}
	asked := make(map[string]bool, len(keys))
	for _, key := range keys {
		asked[key.Name] = true
	}
	return asked
}

// allow decides about one deletion, and stores the decision before the deletion starts. Deletions
// that the engine would refuse, or that have started, do not count.
func (c *DeletionLimiter) allow(ctx context.Context, key fleet.ObjectKey,
	lease mirror.Lease) error {
	switch {
	case c.cached(func(b *ledger) bool { return b.granted(key.Name) }):
		return nil
	case c.cached(func(b *ledger) bool { return b.holds(key.Name) }):
		return ErrHeld
	case !c.Engine.Synced():
		return engine.ErrUnknown
	case !c.deletable(key, lease):
		return nil
	}
	burst, err := c.burst(lease)
	if err != nil {
		return err
	}
	held, asked := false, c.requested()
	err = c.update(ctx, func(b *ledger) bool {
		freed := len(b.approve()) > 0
		tidied := b.prune(c.config.Now(), asked)
		var changed bool
		held, changed = b.decide(key.Name, burst, c.config.MaxPerHour, c.config.Now())
		return freed || tidied || changed
	})
	if err != nil {
		return fmt.Errorf("failed to decide on the deletion: %w", err)
	}
	if held {
		c.config.Log.Warn("deletions wait for the admin of this cluster", "waiting", c.Held(),
			"most",
			c.config.MaxPerHour)
		return ErrHeld
	}
	return nil
}

// deletable reports whether Delete would start a deletion.
func (c *DeletionLimiter) deletable(key fleet.ObjectKey, lease mirror.Lease) bool {
	live, there := c.Engine.Live(key)
	return there && live.Ours && !live.Deleting && live.Epoch <= lease.Epoch
}

// burst lists the Applications whose deletion is requested and would start.
func (c *DeletionLimiter) burst(lease mirror.Lease) ([]string, error) {
	if c.config.Pending == nil {
		return nil, nil
	}
	pending, err := c.config.Pending()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, key := range pending {
		if key.Kind == fleet.ObjectApplication && c.deletable(key, lease) {
			names = append(names, key.Name)
		}
	}
	return names, nil
}

// update changes the ledger on the cluster and then the cached copy.
func (c *DeletionLimiter) update(ctx context.Context, f func(*ledger) bool) error {
	c.deciding.Lock()
	defer c.deciding.Unlock()
	var now ledger
	err := updateObject(ctx, c.config.Ledger, func(values map[string][]byte) (bool, error) {
		var err error
		if now, err = readLedger(values); err != nil {
			return false, err
		}
		if !f(&now) {
			return false, nil
		}
		return true, now.write(values)
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.ledger, c.ready = now, true
	c.mu.Unlock()
	return nil
}

// cached evaluates a predicate on the cached ledger; false before the first read.
func (c *DeletionLimiter) cached(ask func(*ledger) bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready && ask(&c.ledger)
}

// tracked reports whether the ledger may have an entry for the object; true before the first read.
func (c *DeletionLimiter) tracked(key fleet.ObjectKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.ready || c.ledger.granted(key.Name) || c.ledger.holds(key.Name)
}

func (c *DeletionLimiter) withdraw(ctx context.Context, key fleet.ObjectKey) error {
	if err := c.update(ctx, func(b *ledger) bool { return b.withdraw(key.Name) }); err != nil {
		return fmt.Errorf("%s %s: failed to withdraw its deletion: %w", key.Kind, key.Name, err)
	}
	return nil
}

// finish drops the grant of a completed deletion. After a failure the entry stays until prune drops
// it.
func (c *DeletionLimiter) finish(ctx context.Context, key fleet.ObjectKey) {
	if !c.cached(func(b *ledger) bool { return b.granted(key.Name) || b.holds(key.Name) }) {
		return
	}
	if err := c.update(ctx, func(b *ledger) bool { return b.withdraw(key.Name) }); err != nil &&
		ctx.Err() == nil {
		c.config.Log.Warn("failed to remove a completed deletion from the ledger", "object",
			key.Name,
			"error", err)
	}
}

// Held returns the number of held deletions.
func (c *DeletionLimiter) Held() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ledger.Waiting)
}

// HeldReason returns why the deletion of an object is held, if it is, for FollowerConfig.Held.
func (c *DeletionLimiter) HeldReason(key fleet.ObjectKey) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if key.Kind != fleet.ObjectApplication || !c.ledger.holds(key.Name) {
		return "", false
	}
	return fmt.Sprintf(
		"%d deletions wait for the admin of this cluster, because more than %d Applications "+
			"would be deleted within an hour; review and release them there with: argosy agent "+
			"release-deletions",
		len(c.ledger.Waiting), c.config.MaxPerHour), true
}

// Keys of the ConfigMap. Users read the digest and the count; the ledger has the held
// deletions.
const (
	ledgerKey     = "book.json.gz"
	countKey      = "waiting"
	digestKey     = "digest"
	noteKey       = "note"
	approvedKey   = "approved" // digest of the deletions that the admin has approved
	approvedByKey = "approvedBy"

	maxLedger = 8 << 20 // bytes, uncompressed
)

// ledger is the state of the deletion limiter. It identifies Applications by their object names.
type ledger struct {
	// started within the window without an approval, by the cluster's clock
	Deleted []time.Time          `json:"deleted,omitempty"`
	Granted map[string]time.Time `json:"granted,omitempty"` // may proceed; the value is the start
	Waiting map[string]time.Time `json:"waiting,omitempty"` // held; the value is the start

	approved string
}

func readLedger(values map[string][]byte) (ledger, error) {
	b := ledger{approved: string(values[approvedKey])}
	if len(values[ledgerKey]) > 0 {
		if err := b.unpack(values[ledgerKey]); err != nil {
			return ledger{},
				fmt.Errorf(
					"failed to read the ledger of deletions, and nothing is deleted until it is "+
						"readable: remove %s from the ConfigMap to start over: %w", ledgerKey, err)
		}
	}
	if b.Granted == nil {
		b.Granted = map[string]time.Time{}
	}
	if b.Waiting == nil {
		b.Waiting = map[string]time.Time{}
	}
	return b, nil
}

func (b *ledger) unpack(packed []byte) error {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(r, maxLedger))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, b)
}

func (b *ledger) write(values map[string][]byte) error {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if err := errors.Join(json.NewEncoder(w).Encode(b), w.Close()); err != nil {
		return fmt.Errorf("ledger of deletions: %w", err)
	}
	values[ledgerKey] = packed.Bytes()
	for _, name := range []string{countKey, digestKey, noteKey, approvedKey, approvedByKey} {
		delete(values, name)
	}
	if len(b.Waiting) > 0 {
		values[countKey], values[digestKey] = []byte(strconv.Itoa(len(b.Waiting))),
			[]byte(b.digest())
		values[noteKey] = []byte(
			"these deletions wait for the cluster's admin: review and approve them with: " +
				"argosy agent release-deletions")
	}
	return nil
}

// digest identifies exactly this set of held deletions.
func (b *ledger) digest() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(b.Waiting)) {
		fmt.Fprintf(h, "%d:%s", len(name), name)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (b *ledger) granted(name string) bool { _, ok := b.Granted[name]; return ok }

func (b *ledger) holds(name string) bool { _, ok := b.Waiting[name]; return ok }

// prune drops deletions before the window, and the grants and holds of deletions that no row
// requests any more (nil: unknown). A time in the future comes from a clock that was set back, and
// counts.
func (b *ledger) prune(now time.Time, asked map[string]bool) bool {
	before := len(b.Deleted) + len(b.Granted) + len(b.Waiting)
	b.Deleted = slices.DeleteFunc(b.Deleted, func(at time.Time) bool {
		return now.Sub(at) >= limitWindow
	})
	if asked != nil {
		over := func(name string, _ time.Time) bool { return !asked[name] }
		maps.DeleteFunc(b.Granted, over)
		maps.DeleteFunc(b.Waiting, over)
	}
	return len(b.Deleted)+len(b.Granted)+len(b.Waiting) != before
}

// approve grants the held deletions if the admin has approved exactly this set, and returns their
// names. An approval of another set has no effect.
func (b *ledger) approve() []string {
	if b.approved == "" || b.approved != b.digest() {
		return nil
	}
	freed := slices.Sorted(maps.Keys(b.Waiting))
	maps.Copy(b.Granted, b.Waiting)
	clear(b.Waiting)
	b.approved = ""
	return freed
}

// decide grants or holds one deletion of a burst. It reports whether the deletion is held and
// whether the ledger has changed.
func (b *ledger) decide(name string, burst []string, most int, now time.Time) (held, changed bool) {
	switch {
	case b.granted(name):
		return false, false
	case b.holds(name):
		return true, b.hold(burst, now)
	}
	fresh := map[string]bool{name: true}
	for _, other := range burst {
		if !b.granted(other) {
			fresh[other] = true
		}
	}
	if len(b.Waiting) > 0 || len(b.Deleted)+len(fresh) > most {
		b.hold(slices.Collect(maps.Keys(fresh)), now)
		return true, true
	}
	b.Granted[name] = now
	b.Deleted = append(b.Deleted, now)
	return false, true
}

// hold holds those deletions that are not granted.
func (b *ledger) hold(names []string, now time.Time) bool {
	changed := false
	for _, name := range names {
		if !b.granted(name) && !b.holds(name) {
			b.Waiting[name], changed = now, true
		}
	}
	return changed
}

func (b *ledger) withdraw(name string) bool {
	if !b.granted(name) && !b.holds(name) {
		return false
	}
	delete(b.Granted, name)
	delete(b.Waiting, name)
	return true
}

// HeldDeletions are the held deletions of a cluster.
type HeldDeletions struct {
	Names  []string // names of Applications, sorted
	Digest string   // identifies exactly this set
	Since  time.Time
}

// ReadHeld reads the held deletions, for `argosy agent release-deletions`.
func ReadHeld(ctx context.Context, store ObjectStore) (HeldDeletions, error) {
	values, _, err := store.Load(ctx)
	if err != nil {
		return HeldDeletions{}, err
	}
	b, err := readLedger(values)
	if err != nil {
		return HeldDeletions{}, err
	}
	return b.heldDeletions(), nil
}

func (b *ledger) heldDeletions() HeldDeletions {
	h := HeldDeletions{Names: slices.Sorted(maps.Keys(b.Waiting))}
	if len(h.Names) == 0 {
		return h
	}
	h.Digest = b.digest()
	for _, since := range b.Waiting {
		if h.Since.IsZero() || since.Before(h.Since) {
			h.Since = since
		}
	}
	return h
}

// ErrHeldChanged reports that the held deletions have changed since they were shown.
var ErrHeldChanged = errors.New(
	"the held deletions have changed since they were shown; review them again")

// ApproveHeld approves the held deletions with this digest, on behalf of by. It returns
// ErrHeldChanged if others are held now.
func ApproveHeld(ctx context.Context, store ObjectStore, digest, by string) error {
	return updateObject(ctx, store, func(values map[string][]byte) (bool, error) {
		b, err := readLedger(values)
		if err != nil {
			return false, err
		}
		if len(b.Waiting) == 0 || b.digest() != digest {
			return false, ErrHeldChanged
		}
		values[approvedKey], values[approvedByKey] = []byte(digest), []byte(by)
		return true, nil
	})
}
