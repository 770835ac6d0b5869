package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/api"
	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// watch serves an event stream to a writer until ctx ends.
func watch(ctx context.Context, server http.Handler, token string, w http.ResponseWriter) {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, wire.Base+"/events", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	server.ServeHTTP(w, r)
}

// readsOf returns the reads of events that a storm costs with so many streams.
func readsOf(t *testing.T, streams int) (reads int) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: apitest.New(content())}
		server := api.New(configOf(store))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go server.Run(ctx)
		var all []*slowWriter
		for i := range streams {
			w := &slowWriter{ResponseRecorder: httptest.NewRecorder()}
			all = append(all, w)
			go watch(ctx, server, []string{platformToken, acmeToken}[i%2], w)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		before := store.asked()
		for i := range 50 {
			store.Change(nothing, happened("acme", fmt.Sprint("change-", i)))
			server.Wake()
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		reads = store.asked() - before
		for i, w := range all {
			if n := strings.Count(w.text(), "event: application"); n != 50 {
				t.Errorf("stream %d of %d: %d events", i, streams, n)
			}
		}
	})
	return reads
}

func TestReadsOfEventsDoNotGrowWithViewers(t *testing.T) {
	few, many := readsOf(t, 2), readsOf(t, 60)
	if many > few+5 || few == 0 {
		t.Errorf("%d reads for 2 streams, %d for 60", few, many)
	}
}

// stuckWriter blocks every write until it is released.
type stuckWriter struct {
	*slowWriter
	release chan struct{}
}

func (w *stuckWriter) Write(b []byte) (int, error) {
	<-w.release
	return w.slowWriter.Write(b)
}

// A stream whose client does not read delays no other. It reads what it has missed later, every
// event once and in order.
func TestASlowStreamMissesNoEventAndDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := apitest.New(content())
		server := api.New(configOf(store))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go server.Run(ctx)
		slow := &stuckWriter{&slowWriter{ResponseRecorder: httptest.NewRecorder()},
			make(chan struct{})}
		quick := &slowWriter{ResponseRecorder: httptest.NewRecorder()}
		go watch(ctx, server, acmeToken, slow)
		go watch(ctx, server, acmeToken, quick)
		time.Sleep(time.Second)
		const many = 60
		for i := range many {
			store.Change(nothing, happened("acme", fmt.Sprintf("change-%03d", i)),
				happened("globex", "theirs"))
			time.Sleep(300 * time.Millisecond)
		}
		synctest.Wait()
		if n := strings.Count(quick.text(), "change-"); n != many {
			t.Errorf("the other stream got %d events", n)
		}
		close(slow.release)
		time.Sleep(2 * time.Second)
		store.Change(nothing, happened("acme", "change-last"))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		text, at := slow.text(), 0
		for i := range many {
			name := fmt.Sprintf("change-%03d", i)
			if found := strings.Index(text, name); found < at || strings.Count(text, name) != 1 {
				t.Fatalf("%s: at %d after %d, %d times", name, found, at,
					strings.Count(text, name))
			} else {
				at = found
			}
		}
		if !strings.Contains(text, "change-last") || strings.Contains(text, "theirs") {
			t.Errorf("%s", text[at:])
		}
	})
}

// renew requests what has changed of a page, as its script does.
func (s *site) renew(path, token string) answer {
	s.t.Helper()
	req, err := http.NewRequest(http.MethodGet, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Argosy-Parts", "content=x")
	req.AddCookie(&http.Cookie{Name: "argosy-session", Value: token})
	return s.send(req)
}

func TestRenewalsOfPagesShareTheirReads(t *testing.T) {
	t.Parallel()
	g := newGated()
	s := newSiteOver(t, g)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { s.renew("/applications?health=Suspended", platformToken) })
	}
	eventually(t, "the read", func() bool { return g.began.Load() > 0 })
	close(g.gate)
	all.Wait()
	if n := g.began.Load(); n > 2 {
		t.Errorf("%d reads for 10 pages", n)
	}
}

// A page that renews itself because of an event shows the state after it, whatever was read before.
func TestARenewalShowsTheEventThatCausedIt(t *testing.T) {
	s := newSite(t, content())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lines, _ := s.follow(ctx, acmeToken, "")
	until(t, lines, "event: open")
	for i, health := range []mirror.HealthState{mirror.HealthDegraded, mirror.HealthMissing,
		mirror.HealthSuspended} {
		s.renew("/applications", acmeToken)
		s.store.Change(func(m *apitest.Mirror) {
			for i := range m.Applications {
				m.Applications[i].Health = health
			}
		}, view.Event{Kind: "application", Tenant: "acme", Name: fmt.Sprint("event-", i)})
		until(t, lines, fmt.Sprint("event-", i))
		for _, token := range []string{acmeToken, platformToken} {
			s.want(s.renew("/applications", token), http.StatusOK, string(health)+"</span>")
		}
	}
}
