// Package edgetest has helpers for tests of the agent: an edge.ObjectStore in memory with fault
// injection, and a wrapper for the engines of the conformance suite.
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

// ObjectStore is an edge.ObjectStore in memory.
type ObjectStore struct {
	// Conflict is the error of Save after another write: edge.ErrConflict.
	Conflict error
	// Fail is called before ("load", "save") and after ("loaded", "saved") each call, and its error
	// is returned. After "saved" the values are stored all the same, as when a response is lost.
	Fail func(step string) error

	mu      sync.Mutex
	values  map[string][]byte
	version int
	saves   int
}

// Load implements edge.ObjectStore.
func (c *ObjectStore) Load(context.Context) (map[string][]byte, string, error) {
	if err := c.fail("load"); err != nil {
		return nil, "", err
	}
	values, version := c.read()
	return values, version, c.fail("loaded")
}

func (c *ObjectStore) read() (map[string][]byte, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.version == 0 {
		return nil, ""
	}
	return maps.Clone(c.values), strconv.Itoa(c.version)
}

// Save implements edge.ObjectStore.
func (c *ObjectStore) Save(_ context.Context, values map[string][]byte, version string) (string,
	error) {
	if err := c.fail("save"); err != nil {
		return "", err
	}
	stored, err := c.write(values, version)
	if err != nil {
		return "", err
	}
	return stored, c.fail("saved")
}

func (c *ObjectStore) write(values map[string][]byte, version string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if have := c.version; version != strconv.Itoa(have) && (version != "" || have != 0) {
		return "", fmt.Errorf("cell: %w", c.Conflict)
	}
	c.values, c.version, c.saves = maps.Clone(values), c.version+1, c.saves+1
	return strconv.Itoa(c.version), nil
}

func (c *ObjectStore) fail(step string) error {
	if c.Fail == nil {
		return nil
	}
	return c.Fail(step)
}

// Set changes values like another writer.
func (c *ObjectStore) Set(values map[string][]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values == nil {
		c.values = map[string][]byte{}
	}
	maps.Copy(c.values, values)
	c.version++
}

// Value returns one value, or "".
func (c *ObjectStore) Value(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.values[name])
}

// Saves returns the number of successful calls of Save.
func (c *ObjectStore) Saves() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.saves
}

// Around wraps every engine of a fixture, including those of later connections. It runs the
// conformance suite on an engine behind the agent's limits: enginetest.Run(t, edgetest.Around(open,
// wrap)).
func Around(open func(*testing.T) *enginetest.Fixture,
	wrap func(*testing.T, engine.Engine) engine.Engine) func(*testing.T) *enginetest.Fixture {
	return func(t *testing.T) *enginetest.Fixture { return around(t, open(t), wrap) }
}

func around(t *testing.T, b *enginetest.Fixture,
	wrap func(*testing.T, engine.Engine) engine.Engine) *enginetest.Fixture {
	outer := *b
	outer.Engine = wrap(t, b.Engine)
	outer.Reopen = func(t *testing.T) *enginetest.Fixture { return around(t, b.Reopen(t), wrap) }
	return &outer
}
