package github

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// of one answer, unpacked: fifty comments of GitHub's 65,536 characters, each written as
	// \uXXXX, are 20 MB
	answerBytes = 32 << 20
	longestWait = time.Hour
)

var errElsewhere = errors.New("the Git host redirects to another host; nothing is sent there")

// wire carries requests to the one host. It reads each response whole, within bounds, and removes
// the credential from it, so that no caller can print one. It keeps responses with an ETag for
// conditional requests.
type wire struct {
	base   *url.URL
	next   http.RoundTripper
	kept   *cache // nil keeps nothing
	secret string // another secret of its requests, in their URL
	most   int64  // bytes of one answer; default answerBytes
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if !sameHost(r.URL, w.base) {
		closeBody(r)
		return nil, errElsewhere
	}
	credential := credentialOf(r)
	key, before := w.kept.find(r)
	if before != nil {
		r = r.Clone(r.Context())
		r.Header.Set("If-None-Match", before.etag)
	}
	answer, body, err := w.exchange(r, credential)
	if err != nil {
		return nil, err
	}
	tame(answer.Header, time.Now())
	if answer.StatusCode == http.StatusNotModified {
		if before == nil {
			return nil,
				errors.New("the Git host answers \"not modified\" to an unconditional request")
		}
		return before.revive(answer), nil
	}
	w.kept.keep(key, r, answer, body)
	return answer, nil
}

// exchange sends the request and reads the whole answer.
func (w *wire) exchange(r *http.Request, credential string) (*http.Response, []byte, error) {
	answer, err := w.next.RoundTrip(r)
	if err != nil {
		return nil, nil, w.lost(r.Context(), err, credential)
	}
	most := cmp.Or(w.most, answerBytes)
	body, err := io.ReadAll(io.LimitReader(answer.Body, most+1))
	_ = answer.Body.Close() // it has been read; the connection is kept or not
	if err != nil {
		return nil, nil, w.lost(r.Context(), err, credential)
	}
	if int64(len(body)) > most {
		return nil, nil, fmt.Errorf("the Git host answers with more than %d MiB", most>>20)
	}
	body = redactBytes(redactBytes(body, credential), w.secret)
	for _, values := range answer.Header {
		for i, v := range values {
			values[i] = redact(redact(v, credential), w.secret)
		}
	}
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	// not what the other side calls it
	answer.Status = strconv.Itoa(answer.StatusCode) + " " + http.StatusText(answer.StatusCode)
	return answer, body, nil
}

// lost is an error of the connection. The net package quotes what it does not understand.
func (w *wire) lost(ctx context.Context, err error, credential string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.New(plain(redact(redact(err.Error(), credential), w.secret)))
}

func credentialOf(r *http.Request) string {
	_, credential, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return credential
}

const redacted = "[redacted]"

func redact(text, credential string) string {
	if credential == "" {
		return text
	}
	return strings.ReplaceAll(text, credential, redacted)
}

func redactBytes(text []byte, credential string) []byte {
	if credential == "" || !bytes.Contains(text, []byte(credential)) {
		return text
	}
	return bytes.ReplaceAll(text, []byte(credential), []byte(redacted))
}

// tame bounds the headers that set when to ask again: GitHub's client obeys any value, and would
// wait for years.
func tame(h http.Header, now time.Time) {
	if after, ok := retryAfter(h, now); ok {
		h.Set("Retry-After", strconv.Itoa(int(after/time.Second)))
	} else {
		h.Del("Retry-After")
	}
	reset, err := strconv.ParseInt(h.Get("X-RateLimit-Reset"), 10, 64)
	if _, bad := strconv.Atoi(h.Get("X-RateLimit-Remaining")); err != nil || bad != nil ||
		reset <= 0 {
		h.Del("X-RateLimit-Reset")
		h.Del("X-RateLimit-Remaining")
		return
	}
	h.Set("X-RateLimit-Reset", strconv.FormatInt(min(reset, now.Add(longestWait).Unix()), 10))
}

// retryAfter reads both forms of the header: seconds and a date.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 64); err == nil {
		return time.Duration(min(seconds, uint64(longestWait/time.Second))) * time.Second, true
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), longestWait), true
	}
	return 0, false
}
