package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
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

// shares reports whether people share the reads and the parts of a page. They do not share a page
// of one person's own, nor one Application's: it is read from the engine too, which sends no event,
// and is seldom open for many people.
func shares(path string) bool {
	return path != "/sessions" && !strings.Contains(path, "/applications/")
}

// errNotRenewed means that the page shows a failure in place of its content.
var errNotRenewed = errors.New("the page is not shown")

// renew answers a request for parts with those whose hash is another than the browser's. show is
// the page's own handler.
func (s *website) renew(w http.ResponseWriter, r *http.Request, token view.Token,
	show func(http.ResponseWriter, *http.Request, view.Token)) {
	var names []string
	hashes := map[string]string{}
	for _, one := range strings.Fields(r.Header.Get(partsHeader)) {
		name, hash, _ := strings.Cut(one, "=")
		if _, twice := hashes[name]; !twice && len(names) < maxParts {
			names, hashes[name] = append(names, name), hash
		}
	}
	// Nothing of a part depends on the person but what the person may do.
	subject := fmt.Sprintf("%s %t %+v %q", r.URL.RequestURI(), token.SignedIn != nil,
		token.Roles(), names)
	n, err := (*renewed)(nil), errNotRenewed
	if shares(r.URL.Path) {
		n, err = s.renewals.getOf(r.Context(), token.Tenant, subject, func(ctx context.Context) (
			*renewed, error) {
			return renewNow(ctx, &unwritten{header: http.Header{}}, r, token, show, names)
		})
	}
	if err != nil {
		n, err = renewNow(r.Context(), w, r, token, show, names)
		if errors.Is(err, errNotRenewed) {
			return // the page has answered with its failure
		}
	}
	if err != nil {
		s.notRendered(w, r.URL.Path, err)
		return
	}
	var out bytes.Buffer
	for _, name := range names {
		if part, ok := n.parts[name]; ok && part.hash != hashes[name] {
			out.WriteString(part.html)
		}
	}
	sendPage(w, r, http.StatusOK, out.Bytes())
}

// renewNow renders the named parts of a page. If the page is not shown, it answers w and returns
// errNotRenewed.
func renewNow(ctx context.Context, w http.ResponseWriter, r *http.Request, token view.Token,
	show func(http.ResponseWriter, *http.Request, view.Token), names []string) (*renewed, error) {
	n := &renewed{parts: map[string]renderedPart{}}
	show(w, r.WithContext(context.WithValue(ctx, renewedKey{}, n)), token)
	if n.page == "" {
		return nil, errNotRenewed
	}
	t := pages[n.page]
	for _, name := range names {
		if name != "content" && t.Lookup("part-"+name) == nil {
			continue // of another version of the page
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
