package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/fleet/view"
)

const (
	settle = 300 * time.Millisecond // changes that come together are shown together
	clear  = "\x1b[H\x1b[2J\x1b[3J"
)

// watch shows the list whenever it changes: anew on a terminal, the changed rows only otherwise.
// Events only say "look"; what is shown is always read anew.
func (l lookout) watch(ctx context.Context) error {
	if l.format == "json" || l.format == "yaml" {
		return errors.New("--watch shows tables: use -o table, wide or name with it")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	look := pacing.NewSignal()
	ended := make(chan error, 1)
	go func() {
		ended <- l.client.Events(ctx, func(view.Event) error {
			look.Set()
			return nil
		}, func(err error) { l.app.hint("the event stream broke and is taken up again: %s", err) })
	}()
	shown := map[string]string{}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return err
		case <-look: // the stream's first message says so too
		}
		found, err := l.list(ctx)
		if err != nil {
			return err
		}
		if err := l.update(found, shown); err != nil {
			return err
		}
		if !pacing.Sleep(ctx, settle) {
			return ctx.Err()
		}
	}
}

// update shows what is new against what was shown, and remembers it.
func (l lookout) update(found listing, shown map[string]string) error {
	if isTerminal(l.app.out) {
		if _, err := fmt.Fprint(l.app.out, clear); err != nil {
			return err
		}
		return l.print(found)
	}
	now := time.Now()
	rows := found.table(true, time.Time{}) // ages are no change
	seen := make(map[string]bool, len(found.names))
	var changed []int
	for i, name := range found.names {
		for seen[name] { // two holds of one revision, two problems of one line
			name += "'"
		}
		text := fmt.Sprint(rows.Rows[i])
		if shown[name] != text {
			changed = append(changed, i)
		}
		shown[name], seen[name] = text, true
	}
	for name := range shown {
		if !seen[name] {
			delete(shown, name)
			l.app.hint("%s is gone", name)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	if l.format == "name" {
		for _, i := range changed {
			if err := l.app.say("%s", found.names[i]); err != nil {
				return err
			}
		}
		return nil
	}
	t := found.table(l.format == "wide", now)
	picked := t.Rows[:0:0]
	for _, i := range changed {
		picked = append(picked, t.Rows[i])
	}
	t.Rows = picked
	return t.Write(l.app.out, l.app.colour())
}
