package edge

import (
	"net/http"
	"sync"
	"time"
)

// Clock is the hub's last known time, advanced by this machine's monotonic clock. Before the first
// response it is this machine's clock. A jump of the local wall clock has no effect.
type Clock struct {
	mu        sync.Mutex
	hubTime   time.Time // the hub's time
	localTime time.Time // the local time of its arrival, monotonic
}

// slack is the tolerated difference between a Date header and the clock: Date has whole seconds and
// some latency.
const slack = 3 * time.Second

// Now returns the hub's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *Clock) now() time.Time {
	if c.hubTime.IsZero() {
		return time.Now()
	}
	return c.hubTime.Add(time.Since(c.localTime))
}

// Skew returns by how much this machine's clock is ahead of the hub's, and whether the hub's time
// is known.
func (c *Clock) Skew() (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Round(0).Sub(c.now().Round(0)), !c.hubTime.IsZero()
}

// set sets the hub's time.
func (c *Clock) set(t time.Time) {
	if t.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if off := t.Sub(c.now()); c.hubTime.IsZero() || off > slack || off < -slack {
		c.hubTime, c.localTime = t, time.Now()
	}
}

// setFromDate sets the hub's time from the Date header of a response.
func (c *Clock) setFromDate(h http.Header) {
	if t, err := http.ParseTime(h.Get("Date")); err == nil {
		c.set(t)
	}
}
