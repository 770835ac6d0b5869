package edge

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Keys of the ConfigMap. The digest and the count are for people; the ledger has the held
// deletions.
const (
	ledgerKey     = "book.json.gz"
	countKey      = "waiting"
	digestKey     = "digest"
	noteKey       = "note"
	approvedKey   = "approved" // digest of the deletions that the admin has approved
	approvedByKey = "approvedBy"

	maxLedger = 8 << 20 // bytes, uncompressed
)

// ledger is the state of the deletion limiter. It identifies Applications by their object names.
type ledger struct {
	// started within the window without an approval, by the cluster's clock
	Deleted []time.Time          `json:"deleted,omitempty"`
	Granted map[string]time.Time `json:"granted,omitempty"` // may proceed; the value is the start
	Waiting map[string]time.Time `json:"waiting,omitempty"` // held; the value is the start

	approved string
}

func readLedger(values map[string][]byte) (ledger, error) {
	b := ledger{approved: string(values[approvedKey])}
	if len(values[ledgerKey]) > 0 {
		if err := b.unpack(values[ledgerKey]); err != nil {
			return ledger{},
				fmt.Errorf(
					"failed to read the ledger of deletions, and nothing is deleted until it is "+
						"readable: remove %s from the ConfigMap to start over: %w", ledgerKey, err)
		}
	}
	if b.Granted == nil {
		b.Granted = map[string]time.Time{}
	}
	if b.Waiting == nil {
		b.Waiting = map[string]time.Time{}
	}
	return b, nil
}

func (b *ledger) unpack(packed []byte) error {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(r, maxLedger))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, b)
}

func (b *ledger) write(values map[string][]byte) error {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if err := errors.Join(json.NewEncoder(w).Encode(b), w.Close()); err != nil {
		return fmt.Errorf("ledger of deletions: %w", err)
	}
	values[ledgerKey] = packed.Bytes()
	for _, name := range []string{countKey, digestKey, noteKey, approvedKey, approvedByKey} {
		delete(values, name)
	}
	if len(b.Waiting) > 0 {
		values[countKey], values[digestKey] = []byte(strconv.Itoa(len(b.Waiting))),
			[]byte(b.digest())
		values[noteKey] = []byte(
			"these deletions wait for the cluster's admin: review and approve them with: " +
				"argosy agent approve-deletions")
	}
	return nil
}

// digest identifies exactly this set of held deletions.
func (b *ledger) digest() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(b.Waiting)) {
		fmt.Fprintf(h, "%d:%s", len(name), name)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (b *ledger) granted(name string) bool { _, ok := b.Granted[name]; return ok }

func (b *ledger) holds(name string) bool { _, ok := b.Waiting[name]; return ok }

// prune drops deletions before the window, and the grants and holds of deletions that no row
// requests any more (nil: unknown). A time in the future comes from a clock that was set back, and
// counts.
func (b *ledger) prune(now time.Time, asked map[string]bool) bool {
	before := len(b.Deleted) + len(b.Granted) + len(b.Waiting)
	b.Deleted = slices.DeleteFunc(b.Deleted, func(at time.Time) bool {
		return now.Sub(at) >= limitWindow
	})
	if asked != nil {
		over := func(name string, _ time.Time) bool { return !asked[name] }
		maps.DeleteFunc(b.Granted, over)
		maps.DeleteFunc(b.Waiting, over)
	}
	return len(b.Deleted)+len(b.Granted)+len(b.Waiting) != before
}

// approve grants the held deletions if the admin has approved exactly this set, and returns their
// names. An approval of another set has no effect.
func (b *ledger) approve() []string {
	if b.approved == "" || b.approved != b.digest() {
		return nil
	}
	freed := slices.Sorted(maps.Keys(b.Waiting))
	maps.Copy(b.Granted, b.Waiting)
	clear(b.Waiting)
	b.approved = ""
	return freed
}

// decide grants or holds one deletion of a burst. It reports whether the deletion is held and
// whether the ledger has changed.
func (b *ledger) decide(name string, burst []string, most int, now time.Time) (held, changed bool) {
	switch {
	case b.granted(name):
		return false, false
	case b.holds(name):
		return true, b.hold(burst, now)
	}
	fresh := map[string]bool{name: true}
	for _, other := range burst {
		if !b.granted(other) {
			fresh[other] = true
		}
	}
	if len(b.Waiting) > 0 || len(b.Deleted)+len(fresh) > most {
		b.hold(slices.Collect(maps.Keys(fresh)), now)
		return true, true
	}
	b.Granted[name] = now
	b.Deleted = append(b.Deleted, now)
	return false, true
}

// hold holds those deletions that are not granted.
func (b *ledger) hold(names []string, now time.Time) bool {
	changed := false
	for _, name := range names {
		if !b.granted(name) && !b.holds(name) {
			b.Waiting[name], changed = now, true
		}
	}
	return changed
}

func (b *ledger) withdraw(name string) bool {
	if !b.granted(name) && !b.holds(name) {
		return false
	}
	delete(b.Granted, name)
	delete(b.Waiting, name)
	return true
}

// HeldDeletions are the held deletions of a cluster.
type HeldDeletions struct {
	Names  []string // names of Applications, sorted
	Digest string   // identifies exactly this set
	Since  time.Time
}

// ReadHeld reads the held deletions, for `argosy agent approve-deletions`.
func ReadHeld(ctx context.Context, store ObjectStore) (HeldDeletions, error) {
	values, _, err := store.Load(ctx)
	if err != nil {
		return HeldDeletions{}, err
	}
	b, err := readLedger(values)
	if err != nil {
		return HeldDeletions{}, err
	}
	return b.heldDeletions(), nil
}

func (b *ledger) heldDeletions() HeldDeletions {
	h := HeldDeletions{Names: slices.Sorted(maps.Keys(b.Waiting))}
	if len(h.Names) == 0 {
		return h
	}
	h.Digest = b.digest()
	for _, since := range b.Waiting {
		if h.Since.IsZero() || since.Before(h.Since) {
			h.Since = since
		}
	}
	return h
}

// ErrHeldChanged reports that the held deletions have changed since they were shown.
var ErrHeldChanged = errors.New(
	"the held deletions have changed since they were shown; review them again")

// ApproveHeld approves the held deletions with this digest, on behalf of by. It returns
// ErrHeldChanged if others are held now.
func ApproveHeld(ctx context.Context, store ObjectStore, digest, by string) error {
	return updateObject(ctx, store, func(values map[string][]byte) (bool, error) {
		b, err := readLedger(values)
		if err != nil {
			return false, err
		}
		if len(b.Waiting) == 0 || b.digest() != digest {
			return false, ErrHeldChanged
		}
		values[approvedKey], values[approvedByKey] = []byte(digest), []byte(by)
		return true, nil
	})
}
