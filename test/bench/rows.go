package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"argosy.dev/argosy/test/bench/observe"
	"argosy.dev/argosy/test/bench/report"
)

// rows counts what commits write into the database: some that change one file, and some that change
// nothing of ours.
func (l *ladder) rows(ctx context.Context, n int, watch *observe.Watch) error {
	if err := l.catchUp(ctx); err != nil {
		return err
	}
	before, err := observe.Rows(ctx, l.url)
	if err != nil {
		return err
	}
	if _, err := l.several(ctx, watch); err != nil {
		return err
	}
	between, err := observe.Rows(ctx, l.url)
	if err != nil {
		return err
	}
	requests, err := l.requests(ctx)
	if err != nil {
		return err
	}
	cpu, err := l.cpu()
	if err != nil {
		return err
	}
	for range l.options.commits {
		l.commits++
		if _, err := l.repo.Commit(ctx, "nothing of ours", map[string]string{
			"docs/notes.md": fmt.Sprintf("note %d\n", l.commits)}); err != nil {
			return err
		}
		if err := l.catchUp(ctx); err != nil {
			return err
		}
	}
	after, err := l.cpu()
	if err != nil {
		return err
	}
	asked, err := l.requests(ctx)
	if err != nil {
		return err
	}
	end, err := observe.Rows(ctx, l.url)
	if err != nil {
		return err
	}
	k, size := float64(l.options.commits), fmt.Sprintf("%d files: ", n)
	data, books, by := observe.Split(before, between)
	l.change.Add(report.Line{Name: size + "data rows a commit", Ours: report.Sample{
		float64(data) / k}})
	l.change.Note(
		"%d files, rows written by %d commits: %s (%d of them bookkeeping, leases' renewals "+
			"included)", n, l.options.commits, tables(by), books)
	data, books, by = observe.Split(between, end)
	l.noop.Add(report.Line{Name: size + "data rows", Ours: report.Sample{float64(data)},
		Exact: true})
	l.noop.Add(report.Line{Name: size + "API requests", Ours: report.Sample{
		asked.Sub(requests).Total()}, Exact: true})
	l.noop.Add(report.Line{Name: size + "CPU a commit", Unit: "ms", Ours: report.Sample{
		float64((after - cpu).Milliseconds()) / k}})
	l.noop.Note(
		"%d files, rows written by %d commits: %s (%d of them bookkeeping, leases' renewals "+
			"included)", n, l.options.commits, tables(by), books)
	return nil
}

func tables(by map[string]int64) string {
	var names []string
	for table, n := range by {
		names = append(names, fmt.Sprintf("%s %d", table, n))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
