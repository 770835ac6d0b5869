package argocd

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

func isApply(r *http.Request) bool {
	return r.Method == http.MethodPatch && r.Header.Get("Content-Type") == applyPatch
}

// blind hides everything that happens from now on from the engine's watches.
func blind(w http.ResponseWriter, r *http.Request) bool {
	if isWatch(r) {
		<-r.Context().Done()
		return true
	}
	return false
}

func TestAConflictingWriteIsDecidedAgain(t *testing.T) {
	b := newFaultRig(t, Options{})
	b.f.Order(blind)
	b.synced()
	b.applied(b.app("v1"))
	b.out.Merge(b.app("v1").Key,
		`{"status":{"health":{"status":"Healthy"},"sync":{"status":"Synced"}}}`)
	gets, applies := b.f.Count("GET", "applications/"), b.f.Count("PATCH")
	b.applied(b.app("v2"))
	if n := b.f.Count("GET", "applications/") - gets; n != 1 {
		t.Errorf("%d reads", n)
	}
	if n := b.f.Count("PATCH") - applies; n != 2 {
		t.Errorf("%d applies, want the refused one and the next", n)
	}
	if got := b.out.Field(b.app("v1").Key, "spec.source.targetRevision"); got != "v2" {
		t.Errorf("target revision is %q", got)
	}
}

func TestACreationNeverOverwritesWhatItCannotSee(t *testing.T) {
	b := newFaultRig(t, Options{})
	b.f.Order(blind)
	b.synced()
	row := b.app("v1")
	b.out.CreateForeign(row.Key)
	if _, err := b.apply(row); !errors.Is(err, engine.ErrForeign) {
		t.Errorf("a foreign object: %v", err)
	}
	if got := b.out.Field(row.Key, "spec.project"); got != "default" {
		t.Errorf("the foreign object was changed: project %q", got)
	}
	secret := b.row(clusterObject(prodEU, exampleServer))
	b.out.CreateForeign(secret.Key)
	if _, err := b.e.Apply(t.Context(), secret, values("token", canary), b.lease); !errors.Is(err,
		engine.ErrForeign) {
		t.Errorf("a foreign Secret: %v", err)
	}
	if got := b.out.Field(secret.Key, "data"); got != "" {
		t.Error("the foreign Secret was changed")
	}
}

func TestAnUpdateNeverRecreatesADeletedObject(t *testing.T) {
	b := newFaultRig(t, Options{})
	b.f.Order(blind)
	b.synced()
	b.applied(b.app("v1"))
	b.out.Remove(b.app("v1").Key)
	b.applied(b.app("v2")) // rejected by UID, read, and created as new
	if b.f.Count("PATCH") != 3 || b.f.Count("GET", "applications/") != 1 {
		t.Errorf("requests: %q", b.f.Requests())
	}
}

// TestWhatIsDeclaredAgainAfterADeletionIsWritten: the event of the deletion may arrive late, and a
// project that is missing meanwhile stops its Applications.
func TestWhatIsDeclaredAgainAfterADeletionIsWritten(t *testing.T) {
	b := newFaultRig(t, Options{})
	b.f.Order(blind)
	b.synced()
	for _, row := range []mirror.Row{b.row(projectObject(acme)), b.app("v1")} {
		b.applied(row)
		b.until("deleted", func() bool {
			done, err := b.e.Delete(t.Context(), row, b.lease)
			if err != nil {
				t.Fatal(err)
			}
			return done
		})
		b.applied(row)
		if !b.out.Exists(row.Key) {
			t.Errorf("%s was not created again", row.Key)
		}
	}
}

func TestALostResponseCausesNoSecondWrite(t *testing.T) {
	b := newFaultRig(t, Options{})
	b.f.Order(blind)
	b.synced()
	for _, revision := range []string{"v1", "v2"} { // a creation and an update
		row := b.app(revision)
		var lost atomic.Bool
		b.f.Order(func(w http.ResponseWriter, r *http.Request) bool {
			if isApply(r) && lost.CompareAndSwap(false, true) {
				b.f.Forward(httptest.NewRecorder(), r) // the write arrives ...
				panic(http.ErrAbortHandler)            // ... and its response is lost
			}
			return blind(w, r)
		})
		if _, err := b.apply(row); !errors.Is(err, engine.ErrUnreachable) {
			t.Fatalf("error is %v", err)
		}
		version := b.out.Field(row.Key, "metadata.resourceVersion")
		if out, err := b.apply(row); err != nil || out.Changed || out.State != mirror.ApplyApplied {
			t.Fatalf("%s again: %+v, %v", revision, out, err)
		}
		if got := b.out.Field(row.Key, "metadata.resourceVersion"); got != version ||
			b.out.Field(row.Key, "spec.source.targetRevision") != revision {
			t.Errorf("%s was written twice, or never", revision)
		}
	}
}

// Argo CD writes the status between the read and the write of a first overwrite. The repeated write
// does not wait as the answer to a second change by another writer would.
func TestAnOverwriteThatConflictsIsRepeatedAtOnce(t *testing.T) {
	b := newFaultRig(t, Options{Conflict: time.Hour})
	b.synced()
	row := b.app("v1")
	b.applied(row)
	b.out.Merge(row.Key, `{"metadata":{"finalizers":["`+cascadeFinalizer+`"]}}`)
	b.until("the finalizer is seen", func() bool {
		live, _ := b.e.Live(row.Key)
		return live.Drifted
	})
	var writes atomic.Int32
	b.f.Order(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPatch || writes.Add(1) > 2 {
			return false
		}
		answer(w, 409, "Conflict", "the object has been modified")
		return true
	})
	if out, err := b.apply(row); err != nil || out.State != mirror.ApplyApplied || !out.Changed {
		t.Errorf("%+v, %v after %d writes", out, err, writes.Load())
	}
	b.out.Merge(row.Key, `{"metadata":{"finalizers":["`+cascadeFinalizer+`"]}}`)
	b.until("the second finalizer is seen", func() bool {
		live, _ := b.e.Live(row.Key)
		return live.Drifted
	})
	if out, err := b.apply(row); err != nil || out.State != mirror.ApplyConflict || out.Changed {
		t.Errorf("a second change: %+v, %v", out, err)
	}
}

func TestEndlessConflictsEndWithAnError(t *testing.T) {
	b := newFaultRig(t, Options{})
	b.synced()
	b.f.Order(func(w http.ResponseWriter, r *http.Request) bool {
		if isApply(r) {
			answer(w, 409, "Conflict", "the object has been modified")
		}
		return isApply(r)
	})
	if _, err := b.apply(b.app("v1")); err == nil || !strings.Contains(err.Error(),
		"other writers changed it") {
		t.Errorf("error is %v", err)
	}
	if n := b.f.Count("PATCH"); n != attempts {
		t.Errorf("%d applies, want %d", n, attempts)
	}
}

func TestThrottlingAppliesPerEngine(t *testing.T) {
	slow, quick := newFaultRig(t, Options{}), newFaultRig(t, Options{})
	slow.synced()
	quick.synced()
	var refusedAt, acceptedAt atomic.Int64
	slow.f.Order(func(w http.ResponseWriter, r *http.Request) bool {
		if !isApply(r) {
			return false
		}
		if refusedAt.CompareAndSwap(0, time.Now().UnixNano()) {
			w.Header().Set("Retry-After", "1")
			answer(w, 429, "TooManyRequests", "slow down")
			return true
		}
		acceptedAt.CompareAndSwap(0, time.Now().UnixNano())
		return false
	})
	var done sync.WaitGroup
	done.Go(func() { slow.applied(slow.app("v1")) })
	slow.until("throttled", func() bool { return refusedAt.Load() > 0 })
	quick.applied(quick.app("v1"))
	if acceptedAt.Load() != 0 {
		t.Error("the throttled engine was written to before the other")
	}
	done.Wait()
	if waited := time.Duration(acceptedAt.Load() - refusedAt.Load()); waited < time.Second {
		t.Errorf("it came back after %s, asked for 1s", waited)
	}
	if slow.e.client.flow.limit >= 8 {
		t.Errorf("%d in flight are still allowed", slow.e.client.flow.limit)
	}
}

func TestARequestToASlowEngineTimesOut(t *testing.T) {
	b := newFaultRig(t, Options{Timeout: 2 * time.Second})
	b.synced()
	b.f.Order(func(_ http.ResponseWriter, r *http.Request) bool {
		if !isApply(r) {
			return false
		}
		<-r.Context().Done()
		return true
	})
	begun := time.Now()
	_, err := b.apply(b.app("v1"))
	if !errors.Is(err, engine.ErrUnreachable) || time.Since(begun) > time.Minute {
		t.Errorf("after %s: %v", time.Since(begun), err)
	}
}

func TestRefusalsNameTheNextStepAndNoSecret(t *testing.T) {
	b := newFaultRig(t, Options{})
	b.synced()
	cases := map[string]struct {
		code           int
		reason         string
		want           error
		text           string
		shownOfSecrets bool
	}{
		"invalid":     {422, "Invalid", engine.ErrRefused, "422", false},
		"bad request": {400, "BadRequest", engine.ErrRefused, "400", false},
		"forbidden":   {403, "Forbidden", engine.ErrRefused, "grant it", false},
		"no such":     {404, "NotFound", engine.ErrRefused, "is Argo CD installed", false},
		"too large":   {413, "RequestEntityTooLarge", engine.ErrTooLarge, "413", false},
		"unavailable": {503, "ServiceUnavailable", engine.ErrUnreachable, "tried again", false},
		"internal":    {500, "InternalError", engine.ErrRefused, "500", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b.f.Order(func(w http.ResponseWriter, r *http.Request) bool {
				if isApply(r) {
					answer(w, c.code, c.reason, "because of "+canary)
				}
				return isApply(r)
			})
			_, err := b.apply(b.app("v1"))
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) ||
				!strings.Contains(err.Error(), canary) || !strings.Contains(err.Error(),
				b.app("v1").Key.Name) {
				t.Errorf("an Application's: %v", err)
			}
			_, err = b.e.Apply(t.Context(), b.row(clusterObject(prodEU, exampleServer)),
				values("token", canary), b.lease)
			if !errors.Is(err, c.want) || strings.Contains(err.Error(), canary) {
				t.Errorf("a Secret's: %v", err)
			}
		})
	}
}

func TestAnObjectAboveTheLimitIsRejectedBeforeAnyRequest(t *testing.T) {
	b := newFaultRig(t, Options{})
	b.synced()
	row := b.app("v1")
	row.Manifest.Body = []byte(`{"metadata":{"name":"x"},"spec":{"x":"` + strings.Repeat("y",
		maxObject) + `"}}`)
	before := b.f.Count("PATCH")
	if _, err := b.apply(row); !errors.Is(err, engine.ErrTooLarge) {
		t.Errorf("error is %v", err)
	}
	if b.f.Count("PATCH") != before {
		t.Error("it was sent")
	}
}

func TestATerminatingNamespaceIsReported(t *testing.T) {
	b := newFaultRig(t, Options{})
	b.synced()
	row := b.app("v1")
	b.applied(row)
	b.out.Merge(row.Key, `{"metadata":{"finalizers":["example.com/stay"]}}`)
	client := apiServer(t).Client().CoreV1().Namespaces()
	if err := client.Delete(t.Context(), b.e.namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.until("the namespace is terminating", func() bool {
		ns, err := client.Get(t.Context(), b.e.namespace, metav1.GetOptions{})
		return err == nil && ns.DeletionTimestamp != nil
	})
	b.until("reported", func() bool {
		_, err := b.apply(b.row(projectObject(acme)))
		return errors.Is(err, engine.ErrRefused) && strings.Contains(err.Error(),
			"is being deleted; decide")
	})
	b.until("the Application is being deleted", func() bool {
		live, _ := b.e.Live(row.Key)
		return live.Deleting
	})
	if out, err := b.apply(b.app("v2")); err != nil || out.State != mirror.ApplyPending ||
		out.Changed {
		t.Errorf("apply of an Application that is being deleted: %+v, %v", out, err)
	}
	b.out.Merge(row.Key, `{"metadata":{"finalizers":null}}`)
}

func TestDeleteAcceptsOnlyAProofOfAbsence(t *testing.T) {
	faults := map[string]func(http.ResponseWriter){
		"a proxy's 404": func(w http.ResponseWriter) { http.Error(w, "404 page not found", 404) },
		"the kind is not served": func(w http.ResponseWriter) {
			answer(w, 404, "NotFound", "the server could not find the requested resource")
		},
		"deleted for good": func(w http.ResponseWriter) { answer(w, 410, "Gone", "gone") },
		"an empty answer":  func(w http.ResponseWriter) { w.WriteHeader(200) },
		"an object without a UID": func(w http.ResponseWriter) {
			_, _ = w.Write([]byte(`{"kind":"Application","metadata":{}}`))
		},
		"forbidden": func(w http.ResponseWriter) {
			answer(w, 403, "Forbidden", "no")
		},
	}
	b := newFaultRig(t, Options{})
	b.synced()
	row := b.app("v1")
	b.applied(row)
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			b.f.Order(func(w http.ResponseWriter, r *http.Request) bool {
				is := r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/applications/")
				if is {
					fault(w)
				}
				return is
			})
			if done, err := b.e.Delete(t.Context(), row, b.lease); done || err == nil {
				t.Errorf("%v, %v", done, err)
			}
		})
	}
	if !b.out.Exists(row.Key) {
		t.Error("it was deleted")
	}
}

func TestDeleteHasTheReadObjectAsPrecondition(t *testing.T) {
	b := newFaultRig(t, Options{})
	b.synced()
	row := b.app("v1")
	b.applied(row)
	uid := b.out.Field(row.Key, "metadata.uid")
	var meddled atomic.Int64
	b.f.Order(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete && meddled.Add(1) == 1 {
			b.out.Remove(row.Key) // another writer recreates it between our read and our deletion
			b.out.CreateForeign(row.Key)
		}
		return false
	})
	if done, err := b.e.Delete(t.Context(), row, b.lease); done ||
		!errors.Is(err, engine.ErrForeign) {
		t.Errorf("%v, %v", done, err)
	}
	if got := b.out.Field(row.Key, "metadata.uid"); got == "" || got == uid {
		t.Error("another object than the one that was read was deleted")
	}
}

func TestAFailedListKeepsObjectsThatMayBeInUse(t *testing.T) {
	b := newFaultRig(t, Options{})
	b.synced()
	row := b.row(projectObject(acme))
	b.applied(row)
	b.f.Order(func(w http.ResponseWriter, r *http.Request) bool {
		if isList(r, "applications") {
			answer(w, 403, "Forbidden", "no")
			return true
		}
		return false
	})
	if done, err := b.e.Delete(t.Context(), row, b.lease); done || err == nil {
		t.Errorf("%v, %v", done, err)
	}
	if !b.out.Exists(row.Key) {
		t.Error("it was deleted without a proof that nothing needs it")
	}
}

func TestStopsAreCheckedImmediatelyBeforeEachWrite(t *testing.T) {
	b := newFaultRig(t, Options{})
	b.synced()
	row := b.app("v1")
	b.applied(row)
	b.out.Merge(row.Key, `{"metadata":{"finalizers":["resources-finalizer.argocd.argoproj.io"]}}`)
	// The stop comes after the read at the start of a deletion.
	b.f.Order(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/applications/") {
			b.stopped.Store(true)
		}
		return false
	})
	before := b.f.Count("PATCH") + b.f.Count("DELETE")
	if done, err := b.e.Delete(t.Context(), row, b.lease); done ||
		!errors.Is(err, engine.ErrStopped) {
		t.Errorf("%v, %v", done, err)
	}
	if n := b.f.Count("PATCH") + b.f.Count("DELETE") - before; n != 0 {
		t.Errorf("%d writes after the stop", n)
	}
}
