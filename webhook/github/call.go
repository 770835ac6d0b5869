package github

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	api "github.com/google/go-github/v60/github"
)

// call is one request. Its path is relative to the base URL and escaped.
type call struct {
	client *api.Client
	method string
	path   string
	query  url.Values
	body   any    // sent as JSON; nil for none
	shown  string // replaces the path in errors where the path holds a secret
}

func (c call) what() string {
	if c.shown != "" {
		return c.method + " " + c.shown
	}
	return c.method + " /" + c.path
}

// answer is a 2xx answer.
type answer struct {
	what   string
	header http.Header
	body   []byte
	next   int    // page that follows; 0 when there is none
	cursor string // of the page that follows, where pages have cursors
	odd    bool   // it names a page that follows in a way that is not understood
}

// path joins the parts of a path, each escaped.
func path(parts ...string) string {
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}

// in is a path below a repository, whose name is checked before it gets here.
func in(repository string, parts ...string) string {
	owner, name, _ := strings.Cut(repository, "/")
	return path(append([]string{"repos", owner, name}, parts...)...)
}

// send makes one call. It replaces an installation token that the Git host no longer knows, once:
// the call had no effect.
func (f *connection) send(ctx context.Context, c call) (answer, error) {
	a, err := f.once(ctx, c)
	if hasStatus(err, http.StatusUnauthorized) && f.grant != nil && c.client == f.client {
		f.grant.forget()
		a, err = f.once(ctx, c)
	}
	return a, err
}

func (f *connection) once(ctx context.Context, c call) (answer, error) {
	target := c.path
	if len(c.query) > 0 {
		target += "?" + c.query.Encode()
	}
	request, err := c.client.NewRequest(c.method, target, c.body)
	if err != nil {
		return answer{}, fmt.Errorf("%s: the request cannot be made", c.what())
	}
	response, err := c.client.BareDo(ctx, request)
	var accepted *api.AcceptedError
	if errors.As(err, &accepted) { // 202: what was asked for is under way
		return answer{what: c.what(), header: response.Header, body: accepted.Raw}, nil
	}
	if err != nil {
		return answer{}, failure(ctx, c.what(), err)
	}
	body, err := io.ReadAll(response.Body) // wire has it in memory
	_ = response.Body.Close()
	if err != nil {
		return answer{}, failure(ctx, c.what(), err)
	}
	a := answer{what: c.what(), header: response.Header, body: body, next: response.NextPage,
		cursor: response.Cursor}
	a.odd = a.next == 0 && a.cursor == "" && strings.Contains(response.Header.Get("Link"),
		`rel="next"`)
	return a, nil
}

func (f *connection) get(ctx context.Context, p string, query url.Values) (answer, error) {
	return f.send(ctx, call{client: f.client, method: http.MethodGet, path: p, query: query})
}

func (f *connection) write(ctx context.Context, method, p string, body any) (answer, error) {
	return f.send(ctx, call{client: f.client, method: method, path: p, body: body})
}

// read decodes a response. An empty body, HTML and null are errors, and so is a value that its
// check rejects.
func read[T interface{ check() error }](a answer) (T, error) {
	var v T
	if err := decode(a, &v); err != nil {
		return v, err
	}
	if err := v.check(); err != nil {
		return v, fmt.Errorf("%s: the Git host's answer cannot be decoded: %w", a.what, err)
	}
	return v, nil
}

func decode(a answer, v any) error {
	if !isJSON(a.header) {
		return fmt.Errorf(
			"%s: the Git host answers with something other than JSON; is the base URL right?",
			a.what)
	}
	body := bytes.TrimSpace(a.body)
	if len(body) == 0 || bytes.Equal(body, []byte("null")) {
		return fmt.Errorf("%s: the Git host's answer is empty", a.what)
	}
	err := json.Unmarshal(body, v)
	var typed *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typed):
		return fmt.Errorf("%s: the Git host's answer cannot be decoded: %q is a %s", a.what,
			plain(typed.Field), plain(typed.Value))
	case err != nil: // the error would quote the secret
		return fmt.Errorf("%s: the Git host's answer is cut off or is not JSON", a.what)
	}
	return nil
}

func isJSON(h http.Header) bool {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}
