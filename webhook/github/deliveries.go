package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	api "github.com/google/go-github/v60/github"

	"argosy.dev/argosy/fleet/forge"
)

// deliveries lists and repeats the deliveries of our webhook.
type deliveries struct{ *connection }

// Missed implements webhook.Deliveries: of an App's webhook, or of the repository's webhook with
// Config.HookURL. GitHub keeps what it delivered for some days. With a token and without a HookURL,
// and on Gitea, there is no such list.
func (f deliveries) Missed(ctx context.Context, since time.Time) ([]forge.MissedDelivery, error) {
	client, at, err := f.hook(ctx)
	if err != nil {
		return nil, fmt.Errorf("deliveries that were missed: %w", err)
	}
	tries, err := f.tries(ctx, client, at, since)
	if err != nil {
		return nil, fmt.Errorf("deliveries that were missed: %w", err)
	}
	return f.missed(tries), nil
}

// Redeliver implements webhook.Deliveries.
func (f deliveries) Redeliver(ctx context.Context, id int64) error {
	client, at, err := f.hook(ctx)
	if err == nil {
		_, err = f.send(ctx, call{client: client, method: http.MethodPost,
			path: at + "/" + path(number(id), "attempts")})
	}
	if err != nil {
		return fmt.Errorf("delivery %d: %w", id, err)
	}
	return nil
}

// hook is where the deliveries to us are listed.
func (f deliveries) hook(ctx context.Context) (*api.Client, string, error) {
	if f.gitea || f.app == nil && f.hookURL == "" {
		return nil, "", errors.ErrUnsupported
	}
	r, err := f.here(ctx)
	if err != nil {
		return nil, "", err
	}
	if f.app != nil {
		return f.app, path("app", "hook", "deliveries"), nil
	}
	hooks, err := every(ctx, func(h hook) int64 { return h.ID },
		pagesOf[hook](f.connection, in(r.FullName, "hooks"), nil, names))
	if isGone(err) || hasStatus(err, http.StatusForbidden) {
		return nil, "",
			fmt.Errorf(
				"our account may not read the repository's webhooks: the token needs "+
					"\"Webhooks: write\" or the scope admin:repo_hook: %w", err)
	}
	if err != nil {
		return nil, "", err
	}
	hooks = slices.DeleteFunc(hooks, func(h hook) bool { return h.Config.URL != f.hookURL })
	if len(hooks) != 1 {
		return nil, "",
			fmt.Errorf("%d webhooks of the repository have the URL %s; there must be one",
				len(hooks), f.hookURL)
	}
	return f.client, in(r.FullName, "hooks", number(hooks[0].ID), "deliveries"), nil
}

// tries lists the tries since then, the newest first.
func (f deliveries) tries(ctx context.Context, client *api.Client, at string,
	since time.Time) ([]delivery, error) {
	var all []delivery
	q := url.Values{"per_page": {strconv.Itoa(names)}}
	for range mostPages {
		a, err := f.send(ctx, call{client: client, method: http.MethodGet, path: at, query: q})
		if err != nil {
			return nil, err
		}
		page, err := readList[delivery](a)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		switch {
		case a.odd || a.next != 0:
			return nil, fmt.Errorf("%s: the list goes on, and where cannot be decoded",
				a.what)
		case a.cursor == "" || len(page) > 0 && page[len(page)-1].DeliveredAt.Before(since):
			return slices.DeleteFunc(all, func(d delivery) bool {
				return d.DeliveredAt.Before(since)
			}), nil
		case a.cursor == q.Get("cursor"):
			return nil, fmt.Errorf("%s: the list goes on where it is", a.what)
		}
		q.Set("cursor", a.cursor)
	}
	return nil, fmt.Errorf("there are more than %d deliveries", mostPages*names)
}

// missed are the deliveries to our repository of which no try was answered with 2xx, oldest first,
// each with its newest try. An App's webhook also has those of other repositories.
func (f deliveries) missed(tries []delivery) []forge.MissedDelivery {
	arrived, seen := map[string]bool{}, map[string]bool{}
	for _, d := range tries {
		if d.StatusCode >= 200 && d.StatusCode < 300 {
			arrived[d.GUID] = true
		}
	}
	var missed []forge.MissedDelivery
	for _, d := range tries {
		if arrived[d.GUID] || seen[d.GUID] || d.Repository != 0 && d.Repository != f.pin.Load() {
			continue
		}
		seen[d.GUID] = true
		missed = append(missed, forge.MissedDelivery{ID: d.ID, GUID: d.GUID})
	}
	slices.Reverse(missed)
	return missed
}
