package githubtest

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Server is a small GitHub. It is an http.Handler; Start also serves it.
type Server struct {
	URL string // of the API, with a slash at its end

	t testing.TB
	d *description

	mu          sync.Mutex
	clock       time.Time
	last        int64 // id that was given out
	accounts    map[int64]*Account
	teams       map[string]*team // by org/slug
	repos       map[int64]*Repository
	names       map[string]int64 // of repositories, in lower case; former names redirect
	apps        map[int64]*App
	codes       map[string]*App // of manifests that wait to be converted
	credentials map[string]*caller
	etags       map[string]string // the credential of each ETag
	faults      []*breakage
	asked       []string
	same        int // answers of 304
	remaining   int // requests before the rate limit; below 0 it is not counted
	reset       time.Time
}

// New returns a GitHub without accounts. A request or answer that does not fit GitHub's description
// fails the test.
func New(t testing.TB) *Server {
	t.Helper()
	d, err := described()
	if err != nil {
		t.Fatal(err)
	}
	return &Server{
		URL: "http://github.test/", t: t, d: d, clock: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC),
		last:     1000,
		accounts: map[int64]*Account{}, teams: map[string]*team{}, repos: map[int64]*Repository{},
		names: map[string]int64{},
		apps:  map[int64]*App{}, codes: map[string]*App{}, credentials: map[string]*caller{},
		etags: map[string]string{}, remaining: -1,
	}
}

// Start serves a new GitHub on this machine until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	s := New(t)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.URL = server.URL + "/"
	return s
}

// Asked lists the requests so far, such as "GET /repos/acme/fleet/pulls?page=2".
func (s *Server) Asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.asked...)
}

// Count counts the requests so far that begin with the text.
func (s *Server) Count(begin string) int {
	n := 0
	for _, r := range s.Asked() {
		if strings.HasPrefix(r, begin) {
			n++
		}
	}
	return n
}

// Unchanged counts the responses "not modified" so far.
func (s *Server) Unchanged() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.same
}

// Limit lets so many requests through, and refuses all others until the reset.
func (s *Server) Limit(requests int, reset time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remaining, s.reset = requests, reset
}

// Clock returns the time of the next event: each event takes a second.
func (s *Server) Clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock
}

func (s *Server) tick() time.Time {
	s.clock = s.clock.Add(time.Second)
	return s.clock
}

func (s *Server) id() int64 {
	s.last++
	return s.last
}

// commit returns a new commit.
func (s *Server) commit() string {
	sum := sha1.Sum([]byte(strconv.FormatInt(s.id(), 10)))
	return hex.EncodeToString(sum[:])
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// request is one request under way.
type request struct {
	*http.Request
	caller
	inPath map[string]string
	body   object
	repo   *Repository
}

func (r *request) number(name string) int64 {
	n, _ := strconv.ParseInt(r.inPath[name], 10, 64) // the description has it checked
	return n
}

func (r *request) text(field string) string {
	text, _ := r.body[field].(string)
	return text
}

// answer is the response of a handler: an object, or a list that is cut into pages.
type answer struct {
	status int
	body   any
	list   []object
	wrap   func(page []object, total int) any // where a page is not the list itself
	header http.Header
}

func problem(status int, message string) answer {
	return answer{
		status: status, body: object{
			"message": message, "documentation_url": "https://docs.github.com/rest"}}
}

var notFound = problem(http.StatusNotFound, "Not Found")

// handler answers an operation; s.mu is held.
type handler func(s *Server, r *request) answer

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	fault, watchers := s.note(r)
	for _, before := range watchers {
		before()
	}
	if fault != nil {
		fault(w, r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lead(r)
	o, inPath := s.d.find(r.Method, r.URL.EscapedPath())
	if o == nil {
		s.t.Errorf("githubtest: %s %s is no operation of GitHub's that is known here", r.Method,
			r.URL.Path)
		http.NotFound(w, r)
		return
	}
	if err := s.d.checkRequest(o, r, inPath, body); err != nil {
		s.t.Errorf("githubtest: %s %s does not fit GitHub's description: %v", r.Method, r.URL, err)
	}
	if r.UserAgent() == "" || !strings.HasPrefix(r.Header.Get("Accept"), "application/vnd.github") {
		s.t.Errorf(
			"githubtest: %s %s has no User-Agent, or accepts something else than GitHub's JSON",
			r.Method, r.URL)
	}
	s.write(w, r, o, s.handle(o, r, inPath, body))
}

// note remembers the request and returns its fault and its watchers.
func (s *Server) note(r *http.Request) (fault Fault, watchers []func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r.Method+" "+r.URL.RequestURI())
	for _, b := range s.faults {
		switch {
		case !b.matches(r):
		case b.before != nil:
			watchers = append(watchers, b.before)
		case b.fault != nil && fault == nil:
			fault = b.fault
		}
	}
	return fault, watchers
}

// lead takes a request for /repositories/{id}, where redirects lead, to the name that the
// repository has now.
func (s *Server) lead(r *http.Request) {
	rest, ok := strings.CutPrefix(r.URL.Path, "/repositories/")
	if !ok {
		return
	}
	id, rest, _ := strings.Cut(rest, "/")
	n, _ := strconv.ParseInt(id, 10, 64)
	if repo := s.repos[n]; repo != nil {
		r.URL.Path, r.URL.RawPath = strings.TrimSuffix("/repos/"+repo.Name+"/"+rest, "/"), ""
	}
}

func (s *Server) handle(o *operation, r *http.Request, inPath map[string]string,
	body []byte) answer {
	handle, known := handlers[o.Method+" "+o.Path]
	if !known {
		s.t.Errorf("githubtest: %s %s is not answered here", o.Method, o.Path)
		return notFound
	}
	q := &request{Request: r, inPath: inPath, body: object{}}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &q.body); err != nil {
			return problem(http.StatusUnprocessableEntity, "Problems parsing JSON")
		}
	}
	if a, ok := s.admit(o, q); !ok {
		return a
	}
	if owner, ok := inPath["owner"]; ok {
		a, ok := s.enter(q, owner+"/"+inPath["repo"])
		if !ok {
			return a
		}
	}
	return handle(s, q)
}

// enter finds the repository of a request. Accounts without read access get "not found".
func (s *Server) enter(q *request, name string) (answer, bool) {
	id, ok := s.names[strings.ToLower(name)]
	repo := s.repos[id]
	if !ok || repo == nil || !q.reads(repo) {
		return notFound, false
	}
	if !strings.EqualFold(repo.Name, name) {
		status := http.StatusMovedPermanently
		if q.Method != http.MethodGet {
			status = http.StatusTemporaryRedirect
		}
		to := s.URL + "repositories/" + strconv.FormatInt(id, 10) + strings.TrimPrefix(
			q.URL.EscapedPath(), "/repos/"+name)
		if q.URL.RawQuery != "" {
			to += "?" + q.URL.RawQuery
		}
		a := answer{status: status, body: object{"message": "Moved", "url": to,
			"documentation_url": "https://docs.github.com/rest"}, header: http.Header{
			"Location": {to}}}
		return a, false
	}
	q.repo = repo
	return answer{}, true
}
