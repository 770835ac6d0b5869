package hub

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet/agent"
)

// flushes records the times of flushes.
type flushes struct {
	*httptest.ResponseRecorder
	at []time.Time
}

func (f *flushes) Flush() {
	f.at = append(f.at, time.Now())
	f.ResponseRecorder.Flush()
}

func TestTheProbeStreamsToAnonymousCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTestHub(t)
		w := &flushes{ResponseRecorder: httptest.NewRecorder()}
		o.mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet,
			agent.PathProbe, http.NoBody))
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/event-stream" ||
			w.Header().Get("Date") == "" {
			t.Fatalf("the probe answers %d with %v", w.Code, w.Header())
		}
		if len(w.at) != 2 || w.at[1].Sub(w.at[0]) != agent.ProbeGap {
			t.Errorf("its messages are handed on at %v", w.at)
		}
	})
	o := newTestHub(t)
	if w := o.serve(httptest.NewRequestWithContext(t.Context(), http.MethodPost, agent.PathProbe,
		http.NoBody)); w.Code == http.StatusOK {
		t.Error("the probe takes what is sent")
	}
}
