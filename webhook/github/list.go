package github

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
)

const (
	texts     = 50  // on a page of what people write, which can be long
	names     = 100 // on a page of what has a fixed size
	mostPages = 200
	listBytes = 64 << 20 // of all pages of a list
	mostTries = 3        // at a list that changes while it is read
)

var errMoved = errors.New("the list changes faster than it can be read")

// sheet is one page of a list.
type sheet[T any] struct {
	items []T
	next  int // 0 when it is the last
	total int // of all pages; -1 if unknown
	bytes int
}

// turner reads one page of a list.
type turner[T any] func(ctx context.Context, page int) (sheet[T], error)

// every reads all pages. The Git host cuts pages for each request: if an earlier item is deleted
// meanwhile, another item moves to the page before and is seen on neither. So every reads all pages
// but the last again, which costs nothing if they are unchanged, and starts over if they differ.
func every[T any](ctx context.Context, id func(T) int64, turn turner[T]) ([]T, error) {
	for range mostTries {
		pages, err := leaf(ctx, turn)
		if err != nil {
			return nil, err
		}
		same, err := isUnchanged(ctx, pages, id, turn)
		if err != nil {
			return nil, err
		}
		if same {
			var all []T
			for _, p := range pages {
				all = append(all, p.items...)
			}
			return all, nil
		}
	}
	return nil, errMoved
}

// leaf reads every page once.
func leaf[T any](ctx context.Context, turn turner[T]) ([]sheet[T], error) {
	var pages []sheet[T]
	count, size := 0, 0
	for page := 1; ; page++ {
		p, err := turn(ctx, page)
		if err != nil {
			return nil, err
		}
		pages = append(pages, p)
		count += len(p.items)
		size += p.bytes
		switch {
		case p.next == 0 && count < p.total:
			return nil, fmt.Errorf("the Git host lists %d of %d: the list is not complete", count,
				p.total)
		case p.next == 0:
			return pages, nil
		case p.next != page+1:
			return nil, fmt.Errorf("the list goes on from page %d to page %d: it is not complete",
				page, p.next)
		case page == mostPages || size > listBytes:
			return nil, fmt.Errorf("the list is longer than %d pages or %d MiB", mostPages,
				listBytes>>20)
		}
	}
}

// isUnchanged reports whether the list is unchanged.
func isUnchanged[T any](ctx context.Context, pages []sheet[T], id func(T) int64,
	turn turner[T]) (bool,
	error) {
	for i := range len(pages) - 1 {
		again, err := turn(ctx, i+1)
		if err != nil {
			return false, err
		}
		same := slices.EqualFunc(again.items, pages[i].items, func(a, b T) bool {
			return id(a) == id(b)
		})
		if !same {
			return false, nil
		}
	}
	return true, nil
}

// pagesOf reads the pages of a list of T at a path, so many to a page.
func pagesOf[T interface{ check() error }](f *connection, p string, query url.Values,
	size int) turner[T] {
	return func(ctx context.Context, page int) (sheet[T], error) {
		q, err := f.paged(ctx, query, page, &size)
		if err != nil {
			return sheet[T]{}, err
		}
		a, err := f.get(ctx, p, q)
		if err != nil {
			return sheet[T]{}, err
		}
		items, err := readList[T](a)
		if err != nil {
			return sheet[T]{}, err
		}
		s := sheet[T]{items: items, next: a.next, total: -1, bytes: len(a.body)}
		if f.gitea {
			s.next, err = after(a, page, size)
		}
		if err == nil && a.odd {
			err = fmt.Errorf("%s: the list goes on, and where cannot be decoded", a.what)
		}
		return s, err
	}
}

// wholeOf reads a list that Gitea gives in one piece, and GitHub in pages.
func wholeOf[T interface{ check() error }](f *connection, p string, query url.Values,
	size int) turner[T] {
	if !f.gitea {
		return pagesOf[T](f, p, query, size)
	}
	return func(ctx context.Context, _ int) (sheet[T], error) {
		a, err := f.get(ctx, p, query)
		if err != nil {
			return sheet[T]{}, err
		}
		items, err := readList[T](a)
		if err != nil {
			return sheet[T]{}, err
		}
		total, err := strconv.Atoi(a.header.Get("X-Total-Count"))
		if err != nil {
			return sheet[T]{}, fmt.Errorf("%s: the Git host does not return the length of the list",
				a.what)
		}
		return sheet[T]{items: items, total: total}, nil
	}
}

func readList[T interface{ check() error }](a answer) ([]T, error) {
	var items []T
	if err := decode(a, &items); err != nil {
		return nil, err
	}
	for _, item := range items {
		if err := item.check(); err != nil {
			return nil, fmt.Errorf("%s: the Git host's answer cannot be decoded: %w", a.what,
				err)
		}
	}
	return items, nil
}

// paged is the query for one page. Gitea limits a page to a size that its operator sets, and
// returns that size.
func (f *connection) paged(ctx context.Context, query url.Values, page int, size *int) (url.Values,
	error) {
	q := url.Values{}
	for name, values := range query {
		q[name] = values
	}
	name := "per_page"
	if f.gitea {
		most, err := f.largestPage(ctx)
		if err != nil {
			return nil, err
		}
		name, *size = "limit", min(*size, most)
	}
	q.Set(name, strconv.Itoa(*size))
	if page > 1 {
		q.Set("page", strconv.Itoa(page))
	}
	return q, nil
}

// after is the next page on Gitea, which returns the total and not always a link to the next page.
// Gitea leaves hidden items out of a page, so that a page may be short.
func after(a answer, page, size int) (int, error) {
	total, err := strconv.Atoi(a.header.Get("X-Total-Count"))
	switch {
	case err != nil || total < 0:
		return 0, fmt.Errorf("%s: the Git host does not return the length of the list", a.what)
	case page*size < total:
		return page + 1, nil
	}
	return 0, nil
}

type pageSettings struct {
	Most int `json:"max_response_items"`
}

func (s pageSettings) check() error {
	if s.Most <= 0 {
		return errors.New("the largest page has no size")
	}
	return nil
}

func (f *connection) largestPage(ctx context.Context) (int, error) {
	f.mu.Lock()
	most := f.pageSize
	f.mu.Unlock()
	if most > 0 {
		return most, nil
	}
	a, err := f.get(ctx, path("settings", "api"), nil)
	if err != nil {
		return 0, err
	}
	s, err := read[pageSettings](a)
	if err != nil {
		return 0, err
	}
	f.mu.Lock()
	f.pageSize = s.Most
	f.mu.Unlock()
	return s.Most, nil
}
