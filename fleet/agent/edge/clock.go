package edge

import (
	"net/http"
	"sync"
	"time"
)

// Clock is the hub's time as it was last heard, carried on by this machine's monotonic clock. Until
// then it is this machine's. A jump of the wall clock here changes nothing.
type Clock struct {
	mu    sync.Mutex
	heard time.Time // by the hub
	at    time.Time // by us, monotonic
}

// slack is how far Date may lie from what the clock says without moving it: it has whole seconds
// and was some time on its way.
const slack = 3 * time.Second

// Now is the hub's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *Clock) now() time.Time {
	if c.heard.IsZero() {
		return time.Now()
	}
	return c.heard.Add(time.Since(c.at))
}

// Skew is how far this machine's clock is ahead of the hub's, and whether the hub was heard at all.
func (c *Clock) Skew() (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Round(0).Sub(c.now().Round(0)), !c.heard.IsZero()
}

// hear takes the time from the hub.
func (c *Clock) hear(t time.Time) {
	if t.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if off := t.Sub(c.now()); c.heard.IsZero() || off > slack || off < -slack {
		c.heard, c.at = t, time.Now()
	}
}

// hearDate takes it from the header of an answer.
func (c *Clock) hearDate(h http.Header) {
	if t, err := http.ParseTime(h.Get("Date")); err == nil {
		c.hear(t)
	}
}
