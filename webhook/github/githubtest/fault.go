package githubtest

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Fault answers in place of the server. The description does not bind it.
type Fault func(w http.ResponseWriter, r *http.Request)

type breakage struct {
	method, path string
	query        url.Values
	fault        Fault
	before       func()
}

// Break answers requests with the fault until repair is called. Requests are named as in "GET
// /repos/acme/fleet/pulls?page=2": the request must have the same query parameters, "*" at the end
// of the path matches anything, and so does the method "*".
func (s *Server) Break(requests string, fault Fault) (repair func()) {
	method, target, _ := strings.Cut(requests, " ")
	path, query, _ := strings.Cut(target, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		s.t.Fatal(err)
	}
	b := &breakage{method: method, path: path, query: values, fault: fault}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, b)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		b.fault = nil
	}
}

// Watch calls back before the request is answered as usual; requests are named as in Break.
func (s *Server) Watch(requests string, before func()) {
	s.Break(requests, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[len(s.faults)-1].before = before
}

func (b *breakage) matches(r *http.Request) bool {
	begin, open := strings.CutSuffix(b.path, "*")
	if b.method != "*" && b.method != r.Method || r.URL.Path != b.path &&
		!(open && strings.HasPrefix(r.URL.Path, begin)) {
		return false
	}
	for name := range b.query {
		if r.URL.Query().Get(name) != b.query.Get(name) {
			return false
		}
	}
	return true
}

// Reply answers with a status and a message, and with headers as names and values.
func Reply(status int, message string, headers ...string) Fault {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"message":%q,"documentation_url":"https://docs.github.com/rest"}`, message)
	}
}

// JSON answers 200 with the text as it is.
func JSON(text string) Fault {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, text)
	}
}

// HTML answers as a proxy does that knows nothing of APIs.
func HTML(status int) Fault {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		fmt.Fprint(w, "<html><body>Welcome</body></html>")
	}
}

// SecondaryLimit answers as GitHub does to a client that sends too many requests.
func SecondaryLimit(after time.Duration) Fault {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", strconv.Itoa(int(after/time.Second)))
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"message":"You have exceeded a secondary rate limit.",`+
			`"documentation_url":"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits"}`)
	}
}

// Redirect sends on to another URL.
func Redirect(status int, to string) Fault {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", to)
		w.WriteHeader(status)
	}
}

// Huge answers with a list that does not end before so many bytes.
func Huge(size int) Fault {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		line := []byte(strings.Repeat(" ", 1<<16))
		fmt.Fprint(w, "[")
		for n := 0; n < size; n += len(line) {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
		fmt.Fprint(w, "]")
	}
}

// CutOff breaks the connection in the middle of the answer.
func CutOff(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", "1000")
	fmt.Fprint(w, `[{"id":1,`)
	panic(http.ErrAbortHandler)
}

// Silent accepts the request and never answers.
func Silent(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// Echo refuses the credential, and repeats it: in the message, in a header and in an error.
func Echo(status int) Fault {
	return func(w http.ResponseWriter, r *http.Request) {
		credential := r.Header.Get("Authorization")
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Accepted-GitHub-Permissions", credential)
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"message":%q,"errors":[{"resource":%q,"message":%q}]}`,
			"who is "+credential+" at "+r.URL.Path, credential, credential)
	}
}
