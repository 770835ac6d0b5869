package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/pacing"
)

// CapConfig is what a Cap is made of.
type CapConfig struct {
	Cell Cell // where the count and what waits are kept: a ConfigMap on the cluster
	Most int  // Applications deleted within an hour without an approval; below 1: 20
	// Pending lists the Applications that are asked to be deleted at present, so that a burst is
	// known from its first. While it gives an error nothing is deleted. Nil: each deletion is
	// judged as it comes.
	Pending func() ([]fleet.ObjectKey, error)
	Log     *slog.Logger
	Now     func() time.Time // the cluster's own clock; nil: this machine's. Never the hub's
}

const (
	defaultMost = 20
	capWindow   = time.Hour
	capLook     = 10 * time.Second // between looks for an approval, while something waits for one
)

// ErrHeld says that a deletion waits for the cluster's admin.
var ErrHeld = errors.New(
	"the deletion waits for an approval on this cluster: see `argosy agent approve-deletions`")

// Cap is an engine that deletes no more Applications within an hour than the cluster's admin
// allows, whatever the hub asks for. Once there would be more, all that is asked for and not begun
// waits, and goes on waiting, until the admin approves just that on the cluster: a burst does not
// trickle through hour by hour. All else passes. The count is on the cluster, written before the
// deletion, so that it outlives restarts.
type Cap struct {
	engine.Engine
	c CapConfig

	deciding sync.Mutex // one decision at a time: each is stored before the next

	mu    sync.Mutex
	ready bool // book was read
	book  book
	of    fleet.EngineName // whose objects the book is about
	wake  func([]fleet.ObjectKey)
}

// NewCap puts a limit around an engine.
func NewCap(inner engine.Engine, c CapConfig) *Cap {
	if c.Most < 1 {
		c.Most = defaultMost
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return &Cap{Engine: inner, c: c}
}

// Delete keeps the contract of engine.Engine. A deletion that waits is ErrHeld.
func (c *Cap) Delete(ctx context.Context, row fleet.Row, lease fleet.Lease) (bool, error) {
	if row.Key.Kind != fleet.ObjectApplication {
		return c.Engine.Delete(ctx, row, lease)
	}
	c.mu.Lock()
	c.of = row.Key.Engine
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

// Apply keeps the contract of engine.Engine. What is wanted again waits no longer to be deleted,
// and no approval of that is left.
func (c *Cap) Apply(ctx context.Context, row fleet.Row, secret fleet.Secret,
	lease fleet.Lease) (engine.Outcome, error) {
	if row.Key.Kind == fleet.ObjectApplication && c.known(row.Key) {
		if err := c.withdraw(ctx, row.Key); err != nil {
			return engine.Outcome{}, err
		}
	}
	return c.Engine.Apply(ctx, row, secret, lease)
}

// Watch keeps the contract of engine.Engine, and looks for approvals meanwhile.
func (c *Cap) Watch(ctx context.Context, sink engine.Sink) error {
	var one sync.Mutex // the contract calls the sink from one goroutine
	inner := sink
	if sink.Observe != nil {
		inner.Observe = func(seen []fleet.Observation) {
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
	looking, stop := context.WithCancel(ctx)
	var looks sync.WaitGroup
	looks.Go(func() { c.lookForApproval(looking) })
	defer looks.Wait()
	defer stop()
	return c.Engine.Watch(ctx, inner)
}

func (c *Cap) setWake(wake func([]fleet.ObjectKey)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wake = wake
}

// lookForApproval reads the book again while something waits, and wakes what was approved.
func (c *Cap) lookForApproval(ctx context.Context) {
	for pacing.Sleep(ctx, capLook) {
		if c.Held() == 0 {
			continue
		}
		var freed []string
		asked := c.asked()
		err := c.decide(ctx, func(b *book) bool {
			freed = b.approve()
			return b.tidy(c.c.Now(), asked) || len(freed) > 0
		})
		switch {
		case err != nil && ctx.Err() == nil:
			c.c.Log.Warn("it cannot be read whether deletions were approved", "error", err)
		case len(freed) > 0:
			c.c.Log.Info("deletions were approved on the cluster", "count", len(freed))
			c.wakeUp(freed)
		}
	}
}

func (c *Cap) wakeUp(names []string) {
	c.mu.Lock()
	wake, of := c.wake, c.of
	c.mu.Unlock()
	keys := make([]fleet.ObjectKey, len(names))
	for i, name := range names {
		keys[i] = fleet.ObjectKey{Engine: of, Kind: fleet.ObjectApplication, Name: name}
	}
	if wake != nil {
		wake(keys)
	}
}

// asked are the Applications that are asked to be deleted; nil when that is not known.
func (c *Cap) asked() map[string]bool {
	if c.c.Pending == nil {
		return nil
	}
	keys, err := c.c.Pending()
	if err != nil {
		return nil
	}
	asked := make(map[string]bool, len(keys))
	for _, key := range keys {
		asked[key.Name] = true
	}
	return asked
}

// allow decides about one deletion, and stores the decision before it is acted on. What the engine
// refuses anyway, or has begun already, is not counted.
func (c *Cap) allow(ctx context.Context, key fleet.ObjectKey, lease fleet.Lease) error {
	switch {
	case c.asks(func(b *book) bool { return b.granted(key.Name) }):
		return nil
	case c.asks(func(b *book) bool { return b.waits(key.Name) }):
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
	held, asked := false, c.asked()
	err = c.decide(ctx, func(b *book) bool {
		freed := len(b.approve()) > 0
		tidied := b.tidy(c.c.Now(), asked)
		var changed bool
		held, changed = b.ask(key.Name, burst, c.c.Most, c.c.Now())
		return freed || tidied || changed
	})
	if err != nil {
		return fmt.Errorf("whether it may be deleted cannot be decided: %w", err)
	}
	if held {
		c.c.Log.Warn("deletions wait for the admin of this cluster", "waiting", c.Held(), "most",
			c.c.Most)
		return ErrHeld
	}
	return nil
}

// deletable reports whether a call of Delete would begin a deletion.
func (c *Cap) deletable(key fleet.ObjectKey, lease fleet.Lease) bool {
	live, there := c.Engine.Live(key)
	return there && live.Ours && !live.Deleting && live.Epoch <= lease.Epoch
}

// burst names the Applications whose deletion is asked for and would begin.
func (c *Cap) burst(lease fleet.Lease) ([]string, error) {
	if c.c.Pending == nil {
		return nil, nil
	}
	pending, err := c.c.Pending()
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

// decide changes the book on the cluster, and then what is known of it here.
func (c *Cap) decide(ctx context.Context, f func(*book) bool) error {
	c.deciding.Lock()
	defer c.deciding.Unlock()
	var now book
	err := change(ctx, c.c.Cell, func(values map[string][]byte) (bool, error) {
		var err error
		if now, err = readBook(values); err != nil {
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
	c.book, c.ready = now, true
	c.mu.Unlock()
	return nil
}

// asks puts a question to what is known of the book here; false while it was not read.
func (c *Cap) asks(ask func(*book) bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready && ask(&c.book)
}

// known reports whether the book may say something of the object. Before it was read it may.
func (c *Cap) known(key fleet.ObjectKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.ready || c.book.granted(key.Name) || c.book.waits(key.Name)
}

func (c *Cap) withdraw(ctx context.Context, key fleet.ObjectKey) error {
	if err := c.decide(ctx, func(b *book) bool { return b.withdraw(key.Name) }); err != nil {
		return fmt.Errorf("%s %s: its deletion cannot be withdrawn: %w", key.Kind, key.Name, err)
	}
	return nil
}

// finish drops the grant of a deletion that is proven. That it fails costs nothing but a line in
// the book, which is tidied later.
func (c *Cap) finish(ctx context.Context, key fleet.ObjectKey) {
	if !c.asks(func(b *book) bool { return b.granted(key.Name) || b.waits(key.Name) }) {
		return
	}
	if err := c.decide(ctx, func(b *book) bool { return b.withdraw(key.Name) }); err != nil &&
		ctx.Err() == nil {
		c.c.Log.Warn("a deletion that is done is not taken off the list", "object", key.Name,
			"error", err)
	}
}

// Held is how many deletions wait for the cluster's admin.
func (c *Cap) Held() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.book.Waiting)
}

// Why is what to say of an object whose deletion waits: for FollowerConfig.Held.
func (c *Cap) Why(key fleet.ObjectKey) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if key.Kind != fleet.ObjectApplication || !c.book.waits(key.Name) {
		return "", false
	}
	return fmt.Sprintf(
		"%d deletions wait for the admin of this cluster, because more than %d Applications "+
			"would go within an hour; look at them and approve them there with: argosy agent "+
			"approve-deletions",
		len(c.book.Waiting), c.c.Most), true
}
