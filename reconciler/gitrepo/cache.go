package gitrepo

import (
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
)

// baseCache keeps recently used delta bases. A first walk reads tens of thousands of small files
// that share bases; without the cache each read would rebuild its whole chain. It has two
// generations: the older one is dropped as a whole when the younger is full.
type baseCache struct {
	mu         sync.Mutex
	young, old map[baseKey]baseValue
	bytes      int
}

const (
	baseCacheBytes   = 16 << 20 // of one generation
	baseCacheMaxItem = 1 << 20
)

type baseKey struct {
	p      *pack
	offset int64
}

type baseValue struct {
	kind plumbing.ObjectType
	data []byte
}

func (c *baseCache) get(p *pack, offset int64) (plumbing.ObjectType, []byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := baseKey{p, offset}
	v, ok := c.young[key]
	if !ok {
		if v, ok = c.old[key]; ok {
			c.keep(key, v)
		}
	}
	return v.kind, v.data, ok
}

func (c *baseCache) put(p *pack, offset int64, kind plumbing.ObjectType, data []byte) {
	if len(data) > baseCacheMaxItem {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(baseKey{p, offset}, baseValue{kind, data})
}

func (c *baseCache) keep(key baseKey, v baseValue) {
	if c.young == nil || c.bytes+len(v.data) > baseCacheBytes {
		c.old, c.young, c.bytes = c.young, map[baseKey]baseValue{}, 0
	}
	c.young[key] = v
	c.bytes += len(v.data)
}

func (c *baseCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.young, c.old, c.bytes = nil, nil, 0
}
