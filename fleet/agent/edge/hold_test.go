package edge

import (
	"strings"
	"testing"
	"time"
)

var holdNow = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

func TestAHoldIsBesideTheLedgerOfDeletions(t *testing.T) {
	ctx, store := t.Context(), newObjectStore()
	if h, err := ReadHold(ctx, store); err != nil || h.Active(holdNow) {
		t.Errorf("without an object: %+v, %v", h, err)
	}
	want := Hold{Until: holdNow.Add(8 * time.Hour), By: "ann", Reason: "stocktaking"}
	if err := SetHold(ctx, store, want, holdNow); err != nil {
		t.Fatal(err)
	}
	// the agent writes its ledger, and the hold stays
	if err := updateObject(ctx, store, func(values map[string][]byte) (bool, error) {
		b := ledger{Waiting: map[string]time.Time{"x": holdNow}}
		return true, b.write(values)
	}); err != nil {
		t.Fatal(err)
	}
	got, err := ReadHold(ctx, store)
	if err != nil || got != want || !got.Active(holdNow) || got.Active(want.Until) {
		t.Errorf("%+v, %v", got, err)
	}
	if text := got.String(); text != "the cluster's admin (ann) holds every write until "+
		"2026-11-24 20:00 UTC: stocktaking" {
		t.Error(text)
	}
	for range 2 {
		ended, err := EndHold(ctx, store)
		if err != nil || ended != got.Active(holdNow) {
			t.Errorf("%v, %v", ended, err)
		}
		if got, err = ReadHold(ctx, store); err != nil || got.Active(holdNow) {
			t.Errorf("after its end: %+v, %v", got, err)
		}
	}
	if held, err := ReadHeld(ctx, store); err != nil || len(held.Names) != 1 {
		t.Errorf("the ledger is lost: %+v, %v", held, err)
	}
}

func TestAHoldThatIsNoneIsRefused(t *testing.T) {
	ctx, store := t.Context(), newObjectStore()
	for name, c := range map[string]struct {
		hold Hold
		want string
	}{
		"over": {Hold{Until: holdNow}, "is over already"},
		"long": {Hold{Until: holdNow.Add(LongestHold + time.Minute)}, "at most 31 days"},
		"lines": {Hold{Until: holdNow.Add(time.Hour), Reason: "a\nb"},
			"one line of at most 200 printable"},
		"length": {Hold{Until: holdNow.Add(time.Hour), Reason: strings.Repeat("a", 201)},
			"one line of at most 200 printable"},
	} {
		if err := SetHold(ctx, store, c.hold, holdNow); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An unreadable hold neither ends nor begins one.
func TestAnUnreadableHoldIsAnError(t *testing.T) {
	ctx, store := t.Context(), newObjectStore()
	if _, err := store.Save(ctx, map[string][]byte{holdUntilKey: []byte("tomorrow")},
		""); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadHold(ctx, store); err == nil || !strings.Contains(err.Error(),
		"argosy agent hold --end") {
		t.Error(err)
	}
}
