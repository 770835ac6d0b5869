package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
)

const refsPath = "/info/refs?service=git-upload-pack"

// httpChannel speaks Git's smart HTTP protocol (gitprotocol-http).
type httpChannel struct {
	client *http.Client
	base   *url.URL // without a trailing slash
	auth   Auth
	meter  *meter
	bodies []io.Closer
}

func (h *httpChannel) stateless() bool { return true }

func (h *httpChannel) open(ctx context.Context) (io.Reader, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.base.String()+refsPath, nil)
	if err != nil {
		return nil, unavailable("the source URL cannot be requested")
	}
	body, final, err := h.do(request, "application/x-git-upload-pack-advertisement")
	if err != nil {
		return nil, err
	}
	// following requests use the redirect that sameRepository accepted
	moved := *final
	moved.RawQuery, moved.Path, moved.RawPath = "", strings.TrimSuffix(final.Path, "/info/refs"), ""
	h.base = &moved
	return body, nil
}

func (h *httpChannel) ask(ctx context.Context, request []byte) (io.Reader, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.base.String()+"/git-upload-pack",
		bytes.NewReader(request))
	if err != nil {
		return nil, unavailable("the source URL cannot be requested")
	}
	r.Header.Set("Content-Type", "application/x-git-upload-pack-request")
	r.Header.Set("Accept", "application/x-git-upload-pack-result")
	body, _, err := h.do(r, "application/x-git-upload-pack-result")
	return body, err
}

func (h *httpChannel) do(r *http.Request, contentType string) (io.Reader, *url.URL, error) {
	// some Git hosts answer clients whose user agent does not start with git with a web page
	r.Header.Set("User-Agent", "git/2 argosy")
	r.Header.Set("Git-Protocol", "version=2")
	h.auth.apply(r)
	response, err := h.client.Do(
		r) //nolint:bodyclose // it is read after this returns; Close closes it
	if err != nil {
		return nil, nil, httpFailure(err)
	}
	h.bodies = append(h.bodies, response.Body)
	if err := judge(response, contentType); err != nil {
		return nil, nil, err
	}
	return h.meter.reader(response.Body), response.Request.URL, nil
}

// judge distinguishes Git's answer from any other response of a server, proxy or login page
// (argo-cd#14318, argo-cd#18212).
func judge(r *http.Response, contentType string) error {
	switch r.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return unauthorized(
			"answered %d; check that the credential is valid and may read this repository",
			r.StatusCode)
	case http.StatusNotFound:
		return unavailable(
			"answered 404; check the URL, and that the credential may read this repository")
	default:
		return unavailable("answered %d %s", r.StatusCode, http.StatusText(r.StatusCode))
	}
	got, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if strings.TrimSpace(strings.ToLower(got)) != contentType {
		return unavailable(
			"answered 200 with %q instead of Git's protocol; a proxy or login page may be "+
				"before it", printable(got))
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return unavailable("answered in encoding %q, which was not asked for", printable(encoding))
	}
	return nil
}

// httpFailure unwraps an error that repeats the URL.
func httpFailure(err error) error {
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return unavailable("%v", err)
}

// Close discards the unread response, which closes its connection.
func (h *httpChannel) Close() error {
	for _, body := range h.bodies {
		body.Close()
	}
	h.bodies = nil
	return nil
}
