package pacing

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

type entry struct {
	name string
	seq  int
}

var errFatal = errors.New("another writer has taken over")

func batchTo(size int, write func(context.Context, []entry) error) *Batch[string, entry] {
	return NewBatch(BatchConfig[string, entry]{Every: time.Second, Size: size,
		Key:   func(e entry) string { return e.name },
		Write: write,
		Fatal: func(err error) bool { return errors.Is(err, errFatal) },
		Log:   slog.New(slog.DiscardHandler)})
}

func TestBatchWritesTheLatestValueOfEachKeyOncePerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes [][]entry
		b := batchTo(100, func(_ context.Context, entries []entry) error {
			writes = append(writes, entries)
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- b.Run(ctx) }()
		for seq := range 50 {
			b.Add(entry{"a", seq})
		}
		Sleep(t.Context(), 1500*time.Millisecond)
		b.Add(entry{"a", 51})
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if len(writes) != 2 || len(writes[0]) != 1 || writes[0][0].seq != 49 ||
			writes[1][0].seq != 51 {
			t.Fatalf("wrote %v; want one write of 49, and the last one when it ends", writes)
		}
	})
}

func TestBatchKeepsWhatAFailedWriteHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stored := map[string]int{}
		failures := 3
		b := batchTo(2, func(_ context.Context, entries []entry) error {
			if failures > 0 {
				failures--
				return errors.New("the database is away")
			}
			for _, e := range entries {
				stored[e.name] = e.seq
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- b.Run(ctx) }()
		b.Add(entry{"a", 1})
		b.Add(entry{"b", 1})
		Sleep(t.Context(), 1500*time.Millisecond)
		b.Add(entry{"a", 2}) // newer than the entry of the failed write
		Sleep(t.Context(), time.Minute)
		cancel()
		<-done
		if stored["a"] != 2 || stored["b"] != 1 {
			t.Fatalf("stored %v", stored)
		}
	})
}

func TestBatchEndsWithAFatalError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writes := 0
		b := batchTo(2, func(context.Context, []entry) error {
			writes++
			return errFatal
		})
		b.Add(entry{"a", 1})
		if err := b.Run(t.Context()); !errors.Is(err, errFatal) || writes != 1 {
			t.Fatalf("%d writes, and then %v", writes, err)
		}
	})
}
