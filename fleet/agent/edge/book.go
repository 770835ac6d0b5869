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

// Names of the values in the ConfigMap. The digest and the count are there for people; what waits
// is in the book.
const (
	bookName     = "book.json.gz"
	bookCount    = "waiting"
	bookDigest   = "digest"
	bookNote     = "note"
	bookApproved = "approved" // digest of what the admin has approved
	bookBy       = "approvedBy"

	maxBook = 8 << 20 // bytes, unpacked
)

// book is what the cap remembers. Applications are named by their object names.
type book struct {
	// begun within the window and not approved, by the cluster's clock
	Deleted []time.Time          `json:"deleted,omitempty"`
	Granted map[string]time.Time `json:"granted,omitempty"` // may go on to be deleted; since
	Waiting map[string]time.Time `json:"waiting,omitempty"` // since

	approved string
}

func readBook(values map[string][]byte) (book, error) {
	b := book{approved: string(values[bookApproved])}
	if len(values[bookName]) > 0 {
		if err := b.unpack(values[bookName]); err != nil {
			return book{},
				fmt.Errorf(
					"the count of deletions cannot be read, and nothing is deleted until it "+
						"can: remove %s from the ConfigMap to begin anew: %w", bookName, err)
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

func (b *book) unpack(packed []byte) error {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(r, maxBook))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, b)
}

func (b *book) write(values map[string][]byte) error {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if err := errors.Join(json.NewEncoder(w).Encode(b), w.Close()); err != nil {
		return fmt.Errorf("count of deletions: %w", err)
	}
	values[bookName] = packed.Bytes()
	for _, name := range []string{bookCount, bookDigest, bookNote, bookApproved, bookBy} {
		delete(values, name)
	}
	if len(b.Waiting) > 0 {
		values[bookCount], values[bookDigest] = []byte(strconv.Itoa(len(b.Waiting))),
			[]byte(b.digest())
		values[bookNote] = []byte(
			"these deletions wait for the cluster's admin: look at them and approve them with: " +
				"argosy agent approve-deletions")
	}
	return nil
}

// digest names what waits, exactly.
func (b *book) digest() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(b.Waiting)) {
		fmt.Fprintf(h, "%d:%s", len(name), name)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (b *book) granted(name string) bool { _, ok := b.Granted[name]; return ok }

func (b *book) waits(name string) bool { _, ok := b.Waiting[name]; return ok }

// tidy drops what is over: deletions before the window, and grants and waits of what nobody asks to
// delete any more (nil: not known). A time in the future is one of a clock that was set back, and
// counts on.
func (b *book) tidy(now time.Time, asked map[string]bool) bool {
	before := len(b.Deleted) + len(b.Granted) + len(b.Waiting)
	b.Deleted = slices.DeleteFunc(b.Deleted, func(at time.Time) bool {
		return now.Sub(at) >= capWindow
	})
	if asked != nil {
		over := func(name string, _ time.Time) bool { return !asked[name] }
		maps.DeleteFunc(b.Granted, over)
		maps.DeleteFunc(b.Waiting, over)
	}
	return len(b.Deleted)+len(b.Granted)+len(b.Waiting) != before
}

// approve grants what waits if the admin has approved just that, and names it. An approval of
// something else is dropped.
func (b *book) approve() []string {
	if b.approved == "" || b.approved != b.digest() {
		return nil
	}
	freed := slices.Sorted(maps.Keys(b.Waiting))
	maps.Copy(b.Granted, b.Waiting)
	clear(b.Waiting)
	b.approved = ""
	return freed
}

// ask decides about one deletion of a burst, and reports whether it is held and whether the book
// has changed.
func (b *book) ask(name string, burst []string, most int, now time.Time) (held, changed bool) {
	switch {
	case b.granted(name):
		return false, false
	case b.waits(name):
		return true, b.wait(burst, now)
	}
	fresh := map[string]bool{name: true}
	for _, other := range burst {
		if !b.granted(other) {
			fresh[other] = true
		}
	}
	if len(b.Waiting) > 0 || len(b.Deleted)+len(fresh) > most {
		b.wait(slices.Collect(maps.Keys(fresh)), now)
		return true, true
	}
	b.Granted[name] = now
	b.Deleted = append(b.Deleted, now)
	return false, true
}

// wait lets all of them wait that were not granted.
func (b *book) wait(names []string, now time.Time) bool {
	changed := false
	for _, name := range names {
		if !b.granted(name) && !b.waits(name) {
			b.Waiting[name], changed = now, true
		}
	}
	return changed
}

func (b *book) withdraw(name string) bool {
	if !b.granted(name) && !b.waits(name) {
		return false
	}
	delete(b.Granted, name)
	delete(b.Waiting, name)
	return true
}

// HeldDeletions are the deletions that wait on a cluster.
type HeldDeletions struct {
	Names  []string // of the Applications, sorted
	Digest string   // names just these
	Since  time.Time
}

// ReadHeld reads what waits, for `argosy agent approve-deletions` to show.
func ReadHeld(ctx context.Context, cell Cell) (HeldDeletions, error) {
	values, _, err := cell.Load(ctx)
	if err != nil {
		return HeldDeletions{}, err
	}
	b, err := readBook(values)
	if err != nil {
		return HeldDeletions{}, err
	}
	return b.held(), nil
}

func (b *book) held() HeldDeletions {
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

// ErrOthersWait says that what waits is no longer what was looked at.
var ErrOthersWait = errors.New("other deletions wait by now than those that were shown; look again")

// ApproveHeld releases exactly the deletions that have this digest, in the name of by.
// ErrOthersWait when those are not what waits.
func ApproveHeld(ctx context.Context, cell Cell, digest, by string) error {
	return change(ctx, cell, func(values map[string][]byte) (bool, error) {
		b, err := readBook(values)
		if err != nil {
			return false, err
		}
		if len(b.Waiting) == 0 || b.digest() != digest {
			return false, ErrOthersWait
		}
		values[bookApproved], values[bookBy] = []byte(digest), []byte(by)
		return true, nil
	})
}
