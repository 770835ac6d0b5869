package api

import (
	"context"
	"encoding/json"
	"net/http"
	"runtime/debug"
	"time"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/printable"
)

// recorder records the status of an answer for the log.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// observed logs each request: the pattern that it matched, never its query, a header or the path as
// sent, because a misplaced token may be in any of them.
func (s *Server) observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		rec := &recorder{ResponseWriter: w}
		_, pattern := s.mux.Handler(r)
		defer func() {
			s.log.DebugContext(r.Context(), "request", "method", r.Method, "route", pattern,
				"status", rec.status, "took", time.Since(begun))
		}()
		next.ServeHTTP(rec, r)
	})
}

// recovered turns a panic into a plain 500 and a line in the log.
func (s *Server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if cause == http.ErrAbortHandler {
				//nolint:errorlint // a sentinel that net/http asks to be panicked with as it is
				panic(cause)
			}
			s.log.ErrorContext(r.Context(), "request failed with an internal error", "method", r.Method, "cause",
				cause, "stack", string(debug.Stack()))
			if rec, ok := w.(*recorder); ok && rec.status != 0 {
				panic(http.ErrAbortHandler) // a truncated answer must not look complete
			}
			writeProblem(w, problem(http.StatusInternalServerError, "",
				"this is a fault of the control plane", "see the log of `argosy serve`"))
		}()
		next.ServeHTTP(w, r)
	})
}

// secured sets the headers that restrict a browser to displaying an answer.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		policy := "default-src 'none'; frame-ancestors 'none'"
		if !isAPI(r) {
			policy =
				"default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; " +
					"connect-src 'self'; " +
					"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
		}
		h.Set("Content-Security-Policy", policy)
		next.ServeHTTP(w, r)
	})
}

// bounded limits the size of a request and the duration of its answer. Streams extend the time for
// themselves.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		if isStream(r) {
			next.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), requestTime)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func isStream(r *http.Request) bool {
	return r.URL.Path == wire.Base+"/events" || r.URL.Path == pageEvents
}

func writeProblem(w http.ResponseWriter, p *wire.Refusal) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	enc := json.NewEncoder(printable.JSONWriter(w))
	enc.SetEscapeHTML(false)
	_ = enc.Encode(p) // the client has disconnected
}
