package argocd

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// endWatches ends every new watch with "410 Gone", so that everything is listed again.
func endWatches(w http.ResponseWriter, r *http.Request) bool {
	if !isWatch(r) {
		return false
	}
	_, _ = io.WriteString(w,
		`{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}}`)
	return true
}

func TestAFailedListProvesNoAbsence(t *testing.T) {
	faults := map[string]func(http.ResponseWriter, *http.Request){
		"forbidden": func(w http.ResponseWriter, _ *http.Request) {
			answer(w, 403, "Forbidden", "no")
		},
		"CRD missing": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "404 page not found", 404)
		},
		"continue expired": func(w http.ResponseWriter, _ *http.Request) {
			answer(w, 410, "Expired", "too old")
		},
		"an empty body": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) },
		"a page cut short": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w,
				`{"kind":"ApplicationList","metadata":{"resourceVersion":"9"},"items":[`)
		},
		"no resource version": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"kind":"ApplicationList","items":[]}`)
		},
		"a proxy's page": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `<html>200 OK</html>`)
		},
		"another kind's list": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w,
				`{"kind":"SecretList","metadata":{"resourceVersion":"9"},"items":[]}`)
		},
		"bad gateway": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "bad gateway", 502)
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			b := newFaultRig(t, Options{})
			b.synced()
			row := b.app("v1")
			b.applied(row)
			var failed atomic.Int64
			b.f.Order(func(w http.ResponseWriter, r *http.Request) bool {
				if isList(r, "applications") {
					failed.Add(1)
					fault(w, r)
					return true
				}
				return endWatches(w, r)
			})
			http2Drop(b)
			b.until("the list failed several times", func() bool { return failed.Load() >= 3 })
			if b.reportedDeletion() {
				t.Error("reported as deleted")
			}
			if live, ok := b.e.Live(row.Key); !ok || !live.Ours {
				t.Error("no longer known")
			}
			b.until("the fault is reported", func() bool {
				return b.e.Health() != nil &&
					strings.Contains(b.e.Health().Error(), "applications")
			})
			b.f.Order(nil)
			b.until("it heals without a restart", func() bool { return b.e.Health() == nil })
			if b.reportedDeletion() {
				t.Error("reported as deleted once it healed")
			}
		})
	}
}

// http2Drop cuts the engine's connections, so that its watches end.
func http2Drop(b *faultRig) {
	b.e.client.http.CloseIdleConnections()
	b.f.Cut()
}

// unreadProjects creates the AppProjects of three tenants on the server, unknown to the engine.
func (b *faultRig) unreadProjects() (keys []fleet.ObjectKey) {
	b.Helper()
	for _, tenant := range []fleet.TenantName{"acme", "globex", "initech"} {
		p := projectObject(tenant)
		keys = append(keys, p.Key)
		r := b.row(p)
		r.Tenant = tenant
		w, err := prepare(r, fleet.Secret{}, b.lease)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := b.e.write(b.Context(), w, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.e.cache = newCache(resources, b.e.places)
	return keys
}

func TestTheFirstReadIsCompleteOrNone(t *testing.T) {
	b := newFaultRig(t, Options{})
	keys := b.unreadProjects()
	var expired, pages atomic.Int64
	b.f.Order(func(w http.ResponseWriter, r *http.Request) bool {
		if !isList(r, "appprojects") {
			return false
		}
		q := r.URL.Query()
		q.Set("limit", "1") // real pages with real tokens, one object each
		r.URL.RawQuery = q.Encode()
		if q.Get("continue") != "" && pages.Add(1) == 2 && expired.Add(1) == 1 {
			answer(w, 410, "Expired", "the provided continue parameter is too old")
			return true
		}
		return false
	})
	b.watch()
	b.until("a page expired", func() bool { return expired.Load() > 0 })
	b.until("read completely", b.e.Synced)
	for _, key := range keys {
		if live, ok := b.e.Live(key); !ok || !live.Ours {
			t.Errorf("%s is missing after a read that had to start again", key.Name)
		}
	}
}

// A failed page does not discard the pages before it.
func TestAFailedPageDoesNotRestartTheList(t *testing.T) {
	b := newFaultRig(t, Options{})
	b.unreadProjects()
	var begun, failed atomic.Int64
	b.f.Order(func(w http.ResponseWriter, r *http.Request) bool {
		q := r.URL.Query()
		switch {
		case !isList(r, "appprojects"):
			return false
		case q.Get("continue") == "":
			begun.Add(1)
		case failed.Add(1)%3 != 0: // each further page succeeds at the third attempt
			http.Error(w, "bad gateway", http.StatusBadGateway)
			return true
		}
		q.Set("limit", "1") // real pages with real tokens, one object each
		r.URL.RawQuery = q.Encode()
		return false
	})
	b.watch()
	b.until("read completely", b.e.Synced)
	if begun.Load() != 1 || failed.Load() < 6 || failed.Load()%3 != 0 {
		t.Errorf("%d lists were begun, further pages were asked for %d times", begun.Load(),
			failed.Load())
	}
}

func TestNotReadIsNotSynced(t *testing.T) {
	for _, plural := range []string{"applications", "appprojects", "secrets"} {
		t.Run(plural, func(t *testing.T) {
			b := newFaultRig(t, Options{})
			b.f.Order(func(w http.ResponseWriter, r *http.Request) bool {
				if isList(r, plural) {
					answer(w, 403, "Forbidden", "no")
					return true
				}
				return false
			})
			b.watch()
			b.until("the others are followed", func() bool {
				return b.f.Count("watch=1") >= 2 &&
					b.e.Health() != nil
			})
			if b.e.Synced() {
				t.Error("synced without having read everything")
			}
			if _, err := b.apply(b.app("v1")); err == nil {
				t.Error("wrote without having read everything")
			}
			b.f.Order(nil)
			b.until("read completely", b.e.Synced)
		})
	}
}

func TestASilentWatchIsRestarted(t *testing.T) {
	b := newFaultRig(t, Options{IdleTimeout: 300 * time.Millisecond})
	row := b.app("v1")
	b.f.Order(func(w http.ResponseWriter, r *http.Request) bool {
		if !isWatch(r) {
			return false
		}
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		<-r.Context().Done() // connected but silent
		return true
	})
	b.synced()
	b.out.t = t
	b.applied(row)
	b.out.Merge(row.Key, `{"spec":{"source":{"targetRevision":"drift"}}}`)
	b.until("the drift is found by a new list", func() bool {
		live, _ := b.e.Live(row.Key)
		return live.Drifted
	})
	b.out.Remove(row.Key)
	b.until("the loss is found by a new list", func() bool {
		_, ok := b.e.Live(row.Key)
		return !ok
	})
	if err := b.e.Health(); err != nil {
		t.Errorf("health is %v", err)
	}
}

func TestABrokenWatchResumes(t *testing.T) {
	b := newFaultRig(t, Options{})
	b.synced()
	row := b.app("v1")
	b.applied(row)
	b.until("the watch has shown it", func() bool { // without an object, resuming lists one
		c := b.e.cache
		c.mu.RLock()
		defer c.mu.RUnlock()
		known := c.objects[applications][row.Key.Name]
		return !newer(known.ResourceVersion, c.reached[applications])
	})
	lists := b.f.Count("limit=", "applications")
	for _, health := range []string{"Progressing", "Degraded", "Healthy"} {
		http2Drop(b)
		b.out.Merge(row.Key, `{"status":{"health":{"status":"`+health+
			`"},"sync":{"status":"Synced"}}}`)
		b.until("reported: "+health, func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.seen) > 0 && b.seen[len(b.seen)-1].Health == mirror.HealthState(health)
		})
	}
	if n := b.f.Count("limit=", "applications") - lists; n != 0 {
		t.Errorf("%d lists for a connection that broke", n)
	}
}

func TestAThrottledReadWaitsForRetryAfter(t *testing.T) {
	b := newFaultRig(t, Options{})
	var first, second atomic.Int64
	b.f.Order(func(w http.ResponseWriter, r *http.Request) bool {
		if !isList(r, "applications") {
			return false
		}
		if first.CompareAndSwap(0, time.Now().UnixNano()) {
			w.Header().Set("Retry-After", "1")
			answer(w, 429, "TooManyRequests", "slow down")
			return true
		}
		second.CompareAndSwap(0, time.Now().UnixNano())
		return false
	})
	b.synced()
	if waited := time.Duration(second.Load() - first.Load()); waited < time.Second {
		t.Errorf("it came back after %s, asked for 1s", waited)
	}
}

func TestTheCacheNeverGoesBackInTime(t *testing.T) {
	b := newFaultRig(t, Options{})
	b.synced()
	row := b.app("v1")
	b.applied(row)
	old := *b.e.cache.get(row.Key)
	b.applied(b.app("v2"))
	// a late event
	b.e.cache.put(applications, &old)
	// an old deletion
	b.e.cache.remove(applications, &old, old.ResourceVersion)
	// a list of a server that is behind
	b.e.cache.replaceAll(applications, map[string]*entry{}, old.ResourceVersion)
	b.e.cache.replaceAll(applications, map[string]*entry{row.Key.Name: &old}, old.ResourceVersion)
	live, ok := b.e.Live(row.Key)
	if !ok || live.Hash != b.app("v2").Manifest.Hash {
		t.Errorf("the cache went back to %+v, %v", live, ok)
	}
	if out, err := b.apply(b.app("v2")); err != nil || out.Changed {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestALateEventOfAFormerObjectNeverReplacesItsSuccessor(t *testing.T) {
	b := newFaultRig(t, Options{})
	b.synced()
	row := b.app("v1")
	b.applied(row)
	former := *b.e.cache.get(row.Key)
	b.out.Remove(row.Key)
	b.until("the cache has dropped it", func() bool { _, ok := b.e.Live(row.Key); return !ok })
	b.applied(row)
	b.e.cache.put(applications, &former)
	if live, ok := b.e.Live(row.Key); !ok || live.UID == former.UID {
		t.Errorf("the former object is shown: %+v, %t", live, ok)
	}
	b.e.cache.remove(applications, &former, former.ResourceVersion)
	if _, ok := b.e.Live(row.Key); !ok {
		t.Error("the deletion of the former object took its successor")
	}
}

// A read that the deletion overtakes must not bring the object back: no event would end it again,
// and its cluster and its project would stay in use for ever.
func TestALateResponseNeverBringsADeletedObjectBack(t *testing.T) {
	b := newFaultRig(t, Options{})
	b.synced()
	row := b.app("v1")
	b.applied(row)
	read := newEntry(b.e.name, b.e.places, applications, mustRead(b, row.Key))
	b.out.Remove(row.Key)
	b.until("the cache has dropped it", func() bool { _, ok := b.e.Live(row.Key); return !ok })
	b.e.cache.learn(applications, read)
	if live, ok := b.e.Live(row.Key); ok {
		t.Errorf("the deleted object is back: %+v", live)
	}
	b.applied(row)
	if live, ok := b.e.Live(row.Key); !ok || live.UID == read.UID {
		t.Errorf("its successor is not known at once: %+v, %t", live, ok)
	}
}

func TestStatusTextIsSanitized(t *testing.T) {
	long := strings.Repeat("é", 3000)
	for in, check := range map[string]func(string) bool{
		"a\nb\x00c\x1b[31m": func(s string) bool { return s == "a b c [31m" },
		long: func(s string) bool {
			return len(s) <= maxText && strings.HasSuffix(s, "...") &&
				!strings.Contains(s, "\ufffd")
		},
		"\xff\xfe": func(s string) bool { return s == "  " },
		"":         func(s string) bool { return s == "" },
	} {
		if got := clip(in, maxText); !check(got) || !bytes.Equal([]byte(got),
			bytes.ToValidUTF8([]byte(got), nil)) {
			t.Errorf("%.20q became %.40q of %d bytes", in, got, len(got))
		}
	}
}
