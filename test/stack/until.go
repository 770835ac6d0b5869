package stack

import (
	"context"
	"time"
)

// Until asks again until nothing is missing, and then gives nothing; when ctx ends before, it gives
// what was missing last.
func Until(ctx context.Context, missing func() string) (left string) {
	for {
		if left = missing(); left == "" {
			return ""
		}
		select {
		case <-ctx.Done():
			return left
		case <-time.After(300 * time.Millisecond):
		}
	}
}
