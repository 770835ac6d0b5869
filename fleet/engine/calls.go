package engine

import (
	"context"
	"sync/atomic"
)

type callsKey struct{}

// CountCalls returns a context with a counter of the requests that an engine sends.
func CountCalls(ctx context.Context) (context.Context, *atomic.Int64) {
	n := new(atomic.Int64)
	return context.WithValue(ctx, callsKey{}, n), n
}

// Called counts a request, if the context has a counter.
func Called(ctx context.Context) {
	if n, ok := ctx.Value(callsKey{}).(*atomic.Int64); ok {
		n.Add(1)
	}
}
