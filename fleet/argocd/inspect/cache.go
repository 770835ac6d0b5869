package inspect

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/argoproj/argo-cd/v2/common"
	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"
	"github.com/redis/go-redis/v9"

	"argosy.dev/argosy/fleet/mirror"
)

const (
	maxEntry  = 32 << 20  // bytes of one entry of the cache as it is stored
	maxPlain  = 128 << 20 // and decompressed
	maxShards = 1000
)

// Redis is what Cache needs of a client of Argo CD's Redis.
type Redis interface {
	StrLen(ctx context.Context, key string) *redis.IntCmd
	Get(ctx context.Context, key string) *redis.StringCmd
}

// Cache reads what the application-controller has written for Argo CD's UI (argo-cd
// util/cache/appstate). 2.14 and 3.5 have the same keys, version and types.
type Cache struct{ Redis Redis }

// InstanceName is the name of an Application in the cache's keys (Application.InstanceName).
func InstanceName(app *v1alpha1.Application, argoNamespace string) string {
	return app.InstanceName(argoNamespace)
}

// Tree returns the tree of the Application of an instance name. mirror.ErrNoTree if the cache has
// none, or not all of its shards: one has expired or is being written.
func (c Cache) Tree(ctx context.Context, name string) (*v1alpha1.ApplicationTree, error) {
	key := "app|resources-tree|" + name
	var tree v1alpha1.ApplicationTree
	if err := c.get(ctx, key, &tree); err != nil {
		return nil, err
	}
	for i := int64(1); i < min(tree.ShardsCount, maxShards); i++ {
		var shard v1alpha1.ApplicationTree
		if err := c.get(ctx, key+"|"+strconv.FormatInt(i, 10), &shard); err != nil {
			return nil, err
		}
		tree.Nodes = append(tree.Nodes, shard.Nodes...)
	}
	return &tree, nil
}

// Managed returns the live and the desired state of the resources that the Application declares.
func (c Cache) Managed(ctx context.Context, name string) ([]*v1alpha1.ResourceDiff, error) {
	var all []*v1alpha1.ResourceDiff
	err := c.get(ctx, "app|managed-resources|"+name, &all)
	out := all[:0]
	for _, r := range all {
		if r != nil {
			out = append(out, r)
		}
	}
	return out, err
}

// get reads an entry, compressed or not (--redis-compress).
func (c Cache) get(ctx context.Context, key string, into any) error {
	key += "|" + common.CacheVersion
	for _, suffix := range []string{".gz", ""} {
		size, err := c.Redis.StrLen(ctx, key+suffix).Result()
		if err == nil && size == 0 {
			continue // there is none: no entry is empty
		}
		if err == nil && size > maxEntry {
			return fmt.Errorf("%w: Argo CD's cache has %d MiB for it, and at most %d are read",
				mirror.ErrInspectRefused, size>>20, maxEntry>>20)
		}
		var text []byte
		if err == nil {
			text, err = c.Redis.Get(ctx, key+suffix).Bytes()
		}
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%w: Argo CD's Redis: %w", mirror.ErrInspectUnreachable, err)
		}
		return decodeEntry(text, suffix != "", into)
	}
	return mirror.ErrNoTree
}

func decodeEntry(text []byte, compressed bool, into any) error {
	var r io.Reader = bytes.NewReader(text)
	if compressed {
		z, err := gzip.NewReader(r)
		if err != nil {
			return fmt.Errorf("%w: the entry in Argo CD's cache is not compressed",
				mirror.ErrInspectRefused)
		}
		r = z
	}
	// The decoder reads one value: entries of some versions end without the trailer of gzip.
	if err := json.NewDecoder(io.LimitReader(r, maxPlain)).Decode(into); err != nil {
		return fmt.Errorf("%w: the entry in Argo CD's cache is not of a known version",
			mirror.ErrInspectRefused)
	}
	return nil
}
