package edge

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"argosy.dev/argosy/fleet/printable"
)

// Hold is a period in which the agent writes nothing, by the word of the cluster's admin, whatever
// the control plane asks for.
type Hold struct {
	Until  time.Time // zero: there is none
	By     string
	Reason string
}

// The keys of a hold beside the ledger of deletions: the agent may read that ConfigMap already.
const (
	holdUntilKey  = "hold-until"
	holdByKey     = "hold-by"
	holdReasonKey = "hold-reason"
)

// LongestHold is the longest time for which the agent may be held. A longer one is a decision to
// remove the agent.
const LongestHold = 31 * 24 * time.Hour

const maxHoldReason = 200 // bytes

// Active reports whether the hold lasts at a time.
func (h Hold) Active(now time.Time) bool { return now.Before(h.Until) }

// String describes the hold, for people.
func (h Hold) String() string {
	text := fmt.Sprintf("the cluster's admin (%s) holds every write until %s", h.By,
		h.Until.UTC().Format("2006-01-02 15:04 UTC"))
	if h.Reason != "" {
		text += ": " + h.Reason
	}
	return text
}

// ReadHold reads the hold of a cluster. An unreadable time is an error: the caller keeps the hold
// that it knows.
func ReadHold(ctx context.Context, store ObjectStore) (Hold, error) {
	values, _, err := store.Load(ctx)
	if err != nil || len(values[holdUntilKey]) == 0 {
		return Hold{}, err
	}
	h := Hold{By: string(values[holdByKey]), Reason: string(values[holdReasonKey])}
	if h.Until, err = time.Parse(time.RFC3339, string(values[holdUntilKey])); err != nil {
		return Hold{}, fmt.Errorf("key %s of the ConfigMap is no time: %w; end the hold with "+
			"`argosy agent hold --end`, or set it again", holdUntilKey, err)
	}
	return h, nil
}

// SetHold holds the writes of the cluster's agent. It replaces an earlier hold.
func SetHold(ctx context.Context, store ObjectStore, h Hold, now time.Time) error {
	switch {
	case !h.Active(now):
		return fmt.Errorf("%s is over already: write a time to come, or a duration such as 8h",
			h.Until.UTC().Format(time.RFC3339))
	case h.Until.Sub(now) > LongestHold:
		return fmt.Errorf("a hold lasts at most %d days: hold again before it ends, or remove the "+
			"agent", int(LongestHold.Hours()/24))
	case len(h.Reason) > maxHoldReason || !utf8.ValidString(h.Reason) ||
		printable.Name(h.Reason) != h.Reason:
		return fmt.Errorf("the reason is one line of at most %d printable characters",
			maxHoldReason)
	}
	return updateObject(ctx, store, func(values map[string][]byte) (bool, error) {
		values[holdUntilKey] = []byte(h.Until.UTC().Format(time.RFC3339))
		values[holdByKey], values[holdReasonKey] = []byte(h.By), []byte(h.Reason)
		return true, nil
	})
}

// EndHold ends a hold, and reports whether there was one.
func EndHold(ctx context.Context, store ObjectStore) (ended bool, err error) {
	err = updateObject(ctx, store, func(values map[string][]byte) (bool, error) {
		_, ended = values[holdUntilKey]
		for _, key := range []string{holdUntilKey, holdByKey, holdReasonKey} {
			delete(values, key)
		}
		return ended, nil
	})
	return ended, err
}
