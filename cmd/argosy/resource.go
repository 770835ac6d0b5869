package main

import (
	"context"
	"time"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

// resource is a kind of thing that `get` lists.
type resource struct {
	plural  string
	aliases []string // the singular first
	filters []string // flags that narrow it
	about   string   // what an empty list means, or how to go on
	list    func(context.Context, *client.Client, view.Filter, int) (listing, error)
}

// listing is a list in all its forms.
type listing struct {
	items any // for JSON and YAML
	names []string
	table func(wide bool, now time.Time) table.Table
}

// column is one column of a resource's table.
type column[T any] struct {
	head string
	wide bool // with -o wide only
	of   func(item T, now time.Time) table.Cell
}

// lister makes the list function of a resource from how its items are asked for, named and shown.
func lister[T any](ask func(*client.Client, context.Context, view.Filter, int) ([]T, error),
	name func(T) string, columns []column[T],
) func(context.Context, *client.Client, view.Filter, int) (listing, error) {
	return func(ctx context.Context, c *client.Client, f view.Filter, limit int) (listing, error) {
		items, err := ask(c, ctx, f, limit)
		if err != nil {
			return listing{}, err
		}
		names := make([]string, len(items))
		for i, item := range items {
			names[i] = name(item)
		}
		return listing{items: map[string]any{"items": items}, names: names,
			table: func(wide bool, now time.Time) table.Table {
				return tabulate(items, columns, wide, now)
			}}, nil
	}
}

func tabulate[T any](items []T, columns []column[T], wide bool, now time.Time) table.Table {
	var t table.Table
	for _, c := range columns {
		if wide || !c.wide {
			t.Heads = append(t.Heads, c.head)
		}
	}
	for _, item := range items {
		row := make([]table.Cell, 0, len(t.Heads))
		for _, c := range columns {
			if wide || !c.wide {
				row = append(row, c.of(item, now))
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// age is how long ago something was; a time that is not known is a dash.
func age(t time.Time, now time.Time) table.Cell {
	if t.IsZero() {
		return table.Cell{}
	}
	return table.Cell{Text: fleet.Age(now.Sub(t))}
}

func agePtr(t *time.Time, now time.Time) table.Cell {
	if t == nil {
		return table.Cell{}
	}
	return age(*t, now)
}
