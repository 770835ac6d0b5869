package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet/view"
)

// An open page asks for the parts that an event may have changed, at the same time as every other
// open page. People who may do the same, in the same scope, see the same: their parts are rendered
// once.

// renewed is what a page shows now: its data, and the parts that were rendered of it.
type renewed struct {
	page  string
	data  any
	parts map[string]renderedPart
}

type renewedKey struct{}

// errNotRenewed means that the page shows a failure in place of its content.
var errNotRenewed = errors.New("the page is not shown")

// sharedPages are those that many people have open. Their reads come from the mirror alone, whose
// changes are events.
var sharedPages = []string{"/", "/applications", "/tenants", "/environments", "/deployments",
	"/engines", "/agents", "/services", "/operations", "/moves", "/rollouts", "/holds", "/problems",
	"/revisions", "/pulls"}

// shares reports whether people share the rendered parts of a page: of a few pages without a
// filter, so that what is kept is bounded.
func shares(r *http.Request) bool {
	return r.URL.RawQuery == "" && slices.Contains(sharedPages, r.URL.Path)
}

// partsIn returns the parts that a request names, each with the hash that the browser has.
func partsIn(r *http.Request) (names []string, hashes map[string]string) {
	hashes = map[string]string{}
	for _, one := range strings.Fields(r.Header.Get(partsHeader)) {
		name, hash, _ := strings.Cut(one, "=")
		if _, known := partKinds[name]; !known && name != "content" {
			continue // of another version of the page
		}
		if _, twice := hashes[name]; !twice {
			names, hashes[name] = append(names, name), hash
		}
	}
	slices.Sort(names)
	return names, hashes
}

// renew answers a request for parts with those whose hash is another than the browser's. show is
// the page's own handler.
func (s *website) renew(w http.ResponseWriter, r *http.Request, token view.Token,
	show func(http.ResponseWriter, *http.Request, view.Token)) {
	n, err := (*renewed)(nil), errNotRenewed
	if shares(r) {
		names, _ := partsIn(r)
		// Nothing of a part depends on the person but what the person may do.
		subject := fmt.Sprintf("%s %t %+v %q", r.URL.Path, token.SignedIn != nil, token.Roles(),
			names)
		n, err = s.renewals.getOf(r.Context(), token.Tenant, subject, func(ctx context.Context) (
			*renewed, error) {
			return renewNow(ctx, &unwritten{header: http.Header{}}, r, token, show)
		})
		if r.Context().Err() != nil {
			return // the client has left
		}
	}
	if err != nil {
		n, err = renewNow(r.Context(), w, r, token, show)
		if errors.Is(err, errNotRenewed) {
			return // the page has answered with its failure
		}
	}
	if err != nil {
		s.notRendered(w, r.URL.Path, err)
		return
	}
	var out bytes.Buffer
	names, hashes := partsIn(r)
	for _, name := range names {
		if part, ok := n.parts[name]; ok && part.hash != hashes[name] {
			out.WriteString(part.html)
		}
	}
	sendPage(w, r, http.StatusOK, out.Bytes())
}

// renewNow renders the named parts of a page, after show, which may drop some that the browser
// renews by itself. If the page is not shown, it answers w and returns errNotRenewed.
func renewNow(ctx context.Context, w http.ResponseWriter, r *http.Request, token view.Token,
	show func(http.ResponseWriter, *http.Request, view.Token)) (*renewed, error) {
	n := &renewed{parts: map[string]renderedPart{}}
	show(w, r.WithContext(context.WithValue(ctx, renewedKey{}, n)), token)
	if n.page == "" {
		return nil, errNotRenewed
	}
	t := pages[n.page]
	names, _ := partsIn(r)
	for _, name := range names {
		if name != "content" && t.Lookup("part-"+name) == nil {
			continue // another page's
		}
		part, err := renderPart(t, n.page, name, n.data)
		if err != nil {
			return nil, err
		}
		n.parts[name] = part
	}
	n.data = nil
	return n, nil
}

// unwritten is a response that is not sent.
type unwritten struct{ header http.Header }

func (u *unwritten) Header() http.Header         { return u.header }
func (u *unwritten) Write(b []byte) (int, error) { return len(b), nil }
func (u *unwritten) WriteHeader(int)             {}
