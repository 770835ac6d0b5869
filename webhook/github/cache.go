package github

import (
	"bytes"
	"container/list"
	"crypto/sha256"
	"io"
	"net/http"
	"sync"
)

const (
	cacheBytes = 32 << 20
	entryBytes = 4 << 20
)

// cache keeps the latest responses by credential: the ETag of another credential proves nothing.
type cache struct {
	most, largest int

	mu    sync.Mutex
	bytes int
	order *list.List // of *answered, the last used first
	byKey map[[32]byte]*list.Element
}

type answered struct {
	key    [32]byte
	etag   string
	header http.Header
	body   []byte
}

func newCache(most, largest int) *cache {
	return &cache{most: most, largest: largest, order: list.New(),
		byKey: map[[32]byte]*list.Element{}}
}

// keyOf is the same for the same question by the same credential.
func keyOf(r *http.Request) [32]byte {
	return sha256.Sum256([]byte(r.Header.Get("Authorization") + "\n" + r.Header.Get("Accept") +
		"\n" + r.URL.String()))
}

func (c *cache) find(r *http.Request) ([32]byte, *answered) {
	if c == nil || r.Method != http.MethodGet {
		return [32]byte{}, nil
	}
	key := keyOf(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byKey[key]
	if !ok {
		return key, nil
	}
	c.order.MoveToFront(e)
	return key, e.Value.(*answered)
}

func (c *cache) keep(key [32]byte, r *http.Request, answer *http.Response, body []byte) {
	etag := answer.Header.Get("ETag")
	if c == nil || r.Method != http.MethodGet || answer.StatusCode != http.StatusOK {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byKey[key]; ok {
		c.drop(e)
	}
	if etag == "" || len(etag) > 256 || len(body) > c.largest {
		return
	}
	a := &answered{key: key, etag: etag, header: http.Header{}, body: body}
	for _, name := range []string{"Content-Type", "Link", "X-Total-Count"} {
		if v := answer.Header.Get(name); v != "" {
			a.header.Set(name, v)
		}
	}
	c.byKey[key] = c.order.PushFront(a)
	c.bytes += len(body)
	for c.bytes > c.most {
		c.drop(c.order.Back())
	}
}

func (c *cache) drop(e *list.Element) {
	a := c.order.Remove(e).(*answered)
	delete(c.byKey, a.key)
	c.bytes -= len(a.body)
}

// revive returns the cached response with the rate limits of the new one.
func (a *answered) revive(unchanged *http.Response) *http.Response {
	for name, values := range a.header {
		unchanged.Header[name] = values
	}
	unchanged.StatusCode, unchanged.Status = http.StatusOK, "200 OK"
	unchanged.Body, unchanged.ContentLength = io.NopCloser(bytes.NewReader(a.body)),
		int64(len(a.body))
	return unchanged
}
