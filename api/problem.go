package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/mirror"
)

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
