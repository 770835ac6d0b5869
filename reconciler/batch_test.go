package reconciler

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
)

func ackOf(name string, seq int64) fleet.Ack {
	return fleet.Ack{Key: fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectApplication,
		Name: name}, Seq: seq}
}

func TestBatchWritesTheLatestOfEachOncePerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes [][]fleet.Ack
		b := newBatch(time.Second, 100, func(a fleet.Ack) fleet.ObjectKey { return a.Key },
			func(_ context.Context, acks []fleet.Ack) error {
				writes = append(writes, acks)
				return nil
			})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- b.run(ctx) }()
		for seq := range int64(50) {
			b.add(ackOf("a", seq))
		}
		wait(t.Context(), 1500*time.Millisecond)
		b.add(ackOf("a", 51))
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if len(writes) != 2 || len(writes[0]) != 1 || writes[0][0].Seq != 49 ||
			writes[1][0].Seq != 51 {
			t.Fatalf("wrote %v; want one write of 49, and the last one when it ends", writes)
		}
	})
}

func TestBatchLosesNothingWhenAWriteFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stored := map[string]int64{}
		failures := 3
		b := newBatch(time.Second, 2, func(a fleet.Ack) fleet.ObjectKey { return a.Key },
			func(_ context.Context, acks []fleet.Ack) error {
				if failures > 0 {
					failures--
					return errors.New("the database is away")
				}
				for _, a := range acks {
					stored[a.Key.Name] = a.Seq
				}
				return nil
			})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- b.run(ctx) }()
		b.add(ackOf("a", 1))
		b.add(ackOf("b", 1))
		wait(t.Context(), 1500*time.Millisecond)
		b.add(ackOf("a", 2)) // newer than the one that failed
		wait(t.Context(), time.Minute)
		cancel()
		<-done
		if stored["a"] != 2 || stored["b"] != 1 {
			t.Fatalf("stored %v", stored)
		}
	})
}

func TestBatchEndsWhenTheRightToWriteIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writes := 0
		b := newBatch(time.Second, 2, func(a fleet.Ack) fleet.ObjectKey { return a.Key },
			func(context.Context, []fleet.Ack) error {
				writes++
				return fleet.ErrFenced
			})
		b.add(ackOf("a", 1))
		if err := b.run(t.Context()); !errors.Is(err, fleet.ErrFenced) || writes != 1 {
			t.Fatalf("%d writes, and then %v", writes, err)
		}
	})
}
