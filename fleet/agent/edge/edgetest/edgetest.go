// Package edgetest is what tests of the agent's side need, those of other rooms too: a cell in
// memory with faults to order, and a way to put a wrapper around each engine of a conformance
// bench.
package edgetest

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"testing"

	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/engine/enginetest"
)

// Cell is an edge.Cell in memory.
type Cell struct {
	// Moved is what Swap answers when another writer was faster: edge.ErrMoved.
	Moved error
	// Fail is asked before ("load", "swap") and after ("loaded", "swapped") each call. An error
	// that it returns is the call's; after "swapped" the values are stored all the same, as when
	// the answer is lost.
	Fail func(step string) error

	mu      sync.Mutex
	values  map[string][]byte
	version int
	swaps   int
}

// Load keeps the contract of edge.Cell.
func (c *Cell) Load(context.Context) (map[string][]byte, string, error) {
	if err := c.fail("load"); err != nil {
		return nil, "", err
	}
	values, version := c.read()
	return values, version, c.fail("loaded")
}

func (c *Cell) read() (map[string][]byte, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.version == 0 {
		return nil, ""
	}
	return maps.Clone(c.values), strconv.Itoa(c.version)
}

// Swap keeps the contract of edge.Cell.
func (c *Cell) Swap(_ context.Context, values map[string][]byte, version string) (string, error) {
	if err := c.fail("swap"); err != nil {
		return "", err
	}
	stored, err := c.write(values, version)
	if err != nil {
		return "", err
	}
	return stored, c.fail("swapped")
}

func (c *Cell) write(values map[string][]byte, version string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if have := c.version; version != strconv.Itoa(have) && (version != "" || have != 0) {
		return "", fmt.Errorf("cell: %w", c.Moved)
	}
	c.values, c.version, c.swaps = maps.Clone(values), c.version+1, c.swaps+1
	return strconv.Itoa(c.version), nil
}

func (c *Cell) fail(step string) error {
	if c.Fail == nil {
		return nil
	}
	return c.Fail(step)
}

// Set changes values behind everybody's back.
func (c *Cell) Set(values map[string][]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values == nil {
		c.values = map[string][]byte{}
	}
	maps.Copy(c.values, values)
	c.version++
}

// Value is one value as it stands, or "".
func (c *Cell) Value(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.values[name])
}

// Swaps counts what was stored by Swap.
func (c *Cell) Swaps() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.swaps
}

// Around puts wrap around every engine of a bench, those of later connections too. Whoever has an
// engine in a bench can so hold it to the contract with the agent's limits around it:
// enginetest.Run(t, edgetest.Around(open, wrap)).
func Around(open func(*testing.T) *enginetest.Bench,
	wrap func(*testing.T, engine.Engine) engine.Engine) func(*testing.T) *enginetest.Bench {
	return func(t *testing.T) *enginetest.Bench { return around(t, open(t), wrap) }
}

func around(t *testing.T, b *enginetest.Bench,
	wrap func(*testing.T, engine.Engine) engine.Engine) *enginetest.Bench {
	outer := *b
	outer.Engine = wrap(t, b.Engine)
	outer.Reopen = func(t *testing.T) *enginetest.Bench { return around(t, b.Reopen(t), wrap) }
	return &outer
}
