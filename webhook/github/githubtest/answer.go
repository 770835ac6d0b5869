package githubtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

func (s *Server) write(w http.ResponseWriter, r *http.Request, o *operation, a answer) {
	h := w.Header()
	for name, values := range a.header {
		h[name] = values
	}
	if s.remaining >= 0 {
		h.Set("X-RateLimit-Limit", "5000")
		h.Set("X-RateLimit-Remaining", strconv.Itoa(s.remaining))
		h.Set("X-RateLimit-Reset", strconv.FormatInt(s.reset.Unix(), 10))
	}
	body := s.encode(r, o, &a, h)
	if err := s.d.checkAnswer(o, a.status, body); err != nil &&
		a.status != http.StatusMovedPermanently && a.status != http.StatusTemporaryRedirect {
		s.t.Errorf("githubtest: the answer %d to %s %s does not fit GitHub's description: %v\n%s",
			a.status, r.Method, r.URL, err, body)
	}
	if a.status == http.StatusOK && r.Method == http.MethodGet && s.unchanged(w, r, body) {
		return
	}
	if len(body) > 0 {
		h.Set("Content-Type", "application/json; charset=utf-8")
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(body) // the client may have closed the connection
}

// encode returns the body: a page of a list, in the shape that the description requires.
func (s *Server) encode(r *http.Request, o *operation, a *answer, h http.Header) []byte {
	v := a.body
	if a.list != nil {
		page := cut(r, a.list, h, s.URL)
		v = any(page)
		if a.wrap != nil {
			v = a.wrap(page, len(a.list))
		}
	}
	if schema := o.Answers[strconv.Itoa(a.status)]; schema != nil {
		v = s.d.shape(schema, v)
	}
	if v == nil {
		return nil
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		s.t.Errorf("githubtest: %v", err)
	}
	return out.Bytes()
}

// cut gives the page that is asked for, and the links to the others.
func cut(r *http.Request, list []object, h http.Header, base string) []object {
	q := r.URL.Query()
	size, page := 30, 1
	if n, err := strconv.Atoi(q.Get("per_page")); err == nil {
		size = min(max(n, 1), 100)
	}
	if n, err := strconv.Atoi(q.Get("page")); err == nil {
		page = max(n, 1)
	}
	last := max((len(list)+size-1)/size, 1)
	link := func(page int, rel string) string {
		q := url.Values{}
		for name, values := range r.URL.Query() {
			q[name] = values
		}
		q.Set("page", strconv.Itoa(page))
		return fmt.Sprintf(`<%s%s?%s>; rel="%s"`, strings.TrimSuffix(base, "/"),
			r.URL.EscapedPath(), q.Encode(), rel)
	}
	if page < last {
		h.Set("Link", link(page+1, "next")+", "+link(last, "last"))
	}
	from := min((page-1)*size, len(list))
	return list[from:min(from+size, len(list))]
}

// unchanged answers 304 when the caller has the body already. An ETag that another credential got
// does not count.
func (s *Server) unchanged(w http.ResponseWriter, r *http.Request, body []byte) bool {
	whose := r.Header.Get("Authorization")
	sum := sha256.Sum256(append([]byte(whose+"\n"+r.URL.String()+"\n"), body...))
	etag := `W/"` + hex.EncodeToString(sum[:]) + `"`
	s.etags[etag] = whose
	w.Header().Set("ETag", etag)
	given := r.Header.Get("If-None-Match")
	if given == "" {
		return false
	}
	if s.etags[given] != whose {
		s.t.Errorf("githubtest: %s %s is sent with an ETag that this credential was never given",
			r.Method, r.URL)
	}
	if given != etag {
		return false
	}
	s.same++
	w.Header().Del("Link")
	w.WriteHeader(http.StatusNotModified)
	return true
}
