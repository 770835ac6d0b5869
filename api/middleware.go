package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/printable"
	"github.com/danielgtaylor/huma/v2"
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
			//nolint:errorlint // net/http requires a panic with this sentinel itself
			if cause == http.ErrAbortHandler {
				panic(cause)
			}
			s.log.ErrorContext(r.Context(), "request failed with an internal error", "method",
				r.Method, "cause",
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
	return r.URL.Path == wire.Base+"/events" || r.URL.Path == pageEvents || isLogs(r)
}

// isLogs reports whether the request is for the log of a container: see Server.logs.
func isLogs(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, wire.Base+"/tenants/") &&
		strings.HasSuffix(r.URL.Path, "/logs")
}

func writeProblem(w http.ResponseWriter, p *wire.Refusal) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	enc := json.NewEncoder(printable.JSONWriter(w))
	enc.SetEscapeHTML(false)
	_ = enc.Encode(p) // the client has disconnected
}

// init replaces every error of huma's own by one of ours. It never echoes the request: a misplaced
// token may be in it.
func init() {
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		p := problem(status, "", message, "")
		for _, err := range errs {
			var detail *huma.ErrorDetail
			if errors.As(err, &detail) {
				p.Errors = append(p.Errors, strings.TrimSpace(detail.Location+" "+detail.Message))
			}
		}
		if status == http.StatusUnprocessableEntity {
			p.Next = "see /openapi.json for what this request takes"
		}
		return p
	}
}

var problemTypes = map[int]string{
	http.StatusBadRequest:            "bad-request",
	http.StatusUnauthorized:          "not-signed-in",
	http.StatusForbidden:             "not-allowed",
	http.StatusNotFound:              "not-found",
	http.StatusMethodNotAllowed:      "method-not-allowed",
	http.StatusConflict:              "conflict",
	http.StatusRequestEntityTooLarge: "too-large",
	http.StatusUnprocessableEntity:   "invalid",
	http.StatusTooManyRequests:       "too-many",
	http.StatusServiceUnavailable:    "unavailable",
	http.StatusGatewayTimeout:        "timeout",
}

func problem(status int, subject, detail, next string) *wire.Refusal {
	kind := problemTypes[status]
	if kind == "" {
		kind = "internal"
	}
	return &wire.Refusal{
		Type: "urn:argosy:" + kind, Title: http.StatusText(status), Status: status, Detail: detail,
		Subject: subject, Next: next,
	}
}

// notFound is the only answer for a missing object and for another tenant's. Its subject comes from
// the request alone.
func notFound(subject string) *wire.Refusal {
	return problem(http.StatusNotFound, subject,
		"no such object, or not one that this token may see",
		"list objects with `argosy get`, and check who you are with `argosy login --check`")
}

// answer translates a store's error into what a caller may know. It logs the cause itself.
func (s *Server) answer(ctx context.Context, subject string, err error) error {
	var known *wire.Refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case errors.Is(err, mirror.ErrNotFound):
		return notFound(subject)
	case errors.Is(err, mirror.ErrCursor):
		return problem(http.StatusBadRequest, "after", "this cursor is not one of this list",
			"read the list again from its beginning")
	case inspectProblem(subject, err) != nil:
		return inspectProblem(subject, err)
	case errors.Is(err, mirror.ErrTooManySyncs):
		return problem(http.StatusTooManyRequests, subject, mirror.ErrTooManySyncs.Error(),
			"ask again when some have ended: list them with `argosy get operations`")
	case errors.Is(err, context.DeadlineExceeded):
		return problem(http.StatusGatewayTimeout, subject, "the mirror did not answer in time",
			"try again, or ask for less with a filter")
	case ctx.Err() != nil:
		return problem(http.StatusServiceUnavailable, subject, "the request was cancelled", "")
	}
	s.log.ErrorContext(ctx, "the mirror cannot be read", "subject", subject, "error", err)
	return problem(http.StatusServiceUnavailable, subject, "the mirror cannot be read now",
		"workloads on the engines are not affected; try again, and see the log of `argosy serve`")
}

func subjectf(format string, args ...any) string { return fmt.Sprintf(format, args...) }
