package webhook

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
)

// memory is an Inbox that keeps what it is given.
type memory struct {
	mu      sync.Mutex
	ids     map[string]bool
	jobs    []forge.Recheck
	notices []string
	fail    error
}

func (m *memory) Accept(_ context.Context, d forge.Delivery, jobs []forge.Recheck) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return false, m.fail
	}
	if m.ids == nil {
		m.ids = map[string]bool{}
	}
	if m.ids[d.ID] {
		return false, nil
	}
	m.ids[d.ID] = true
	m.jobs = append(m.jobs, jobs...)
	if d.Notice != "" {
		m.notices = append(m.notices, d.Notice)
	}
	return true, nil
}

func secretsOf(values ...string) Secrets {
	return func() ([]fleet.Secret, error) {
		var all []fleet.Secret
		for _, v := range values {
			all = append(all, fleet.NewSecret(map[string][]byte{SecretKey: []byte(v)}))
		}
		return all, nil
	}
}

func sign(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func receiver(inbox Inbox, secrets Secrets) *Receiver {
	return NewReceiver(ReceiverConfig{
		Inbox: inbox, Secrets: secrets, Branch: "main", Repository: func() int64 { return 42 },
		Holder: "replica-1", Pushed: func() {}, Log: quiet(),
	})
}

func delivery(event, secret, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/webhook/github", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-GitHub-Event", event)
	r.Header.Set("X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")
	if secret != "" {
		r.Header.Set("X-Hub-Signature-256", sign(secret, []byte(body)))
	}
	return r
}

const push = `{"ref":"refs/heads/main","repository":{"id":42}}`

func answer(v http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	v.ServeHTTP(w, r)
	return w
}

// A delivery that comes again wakes the loop too: of the first the answer may have been lost.
func TestAPushWakesTheLoopOnceItIsStored(t *testing.T) {
	inbox, woken := &memory{fail: errors.New("the database is away")}, 0
	v := receiver(inbox, secretsOf("s3cret"))
	v.Pushed = func() { woken++ }
	for _, c := range []struct {
		event, body, secret string
		fail                error
		want                int
	}{
		{"push", push, "another", nil, 0},
		{"push", push, "s3cret", inbox.fail, 0},
		{"push", push, "s3cret", nil, 1},
		{"push", push, "s3cret", nil, 2},
		{"push", `{"ref":"refs/heads/other","repository":{"id":42}}`, "s3cret", nil, 2},
		{"push", `{"ref":"refs/heads/main","repository":{"id":43}}`, "s3cret", nil, 2},
		{"pull_request", `{"number":7}`, "s3cret", nil, 2},
	} {
		inbox.fail = c.fail
		answer(v, delivery(c.event, c.secret, c.body))
		if woken != c.want {
			t.Errorf("%s %s: woken %d times, not %d", c.event, c.body, woken, c.want)
		}
	}
}

func TestASignedDeliveryIsTakenOnce(t *testing.T) {
	inbox := &memory{}
	v := receiver(inbox, secretsOf("s3cret"))
	for i := range 3 {
		if w := answer(v, delivery("push", "s3cret", push)); w.Code != http.StatusAccepted {
			t.Fatalf("delivery %d: %d %s", i, w.Code, w.Body)
		}
	}
	if len(inbox.jobs) > 0 || !slices.Equal(inbox.notices, []string{"pushed replica-1"}) {
		t.Errorf("jobs %v, notices %q", inbox.jobs, inbox.notices)
	}
}

// GitHub's own example, in "Validating webhook deliveries".
func TestTheVectorThatGitHubPublishesIsGood(t *testing.T) {
	v := receiver(&memory{}, secretsOf("It's a Secret to Everybody"))
	signature, err := signatureIn([]string{
		"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"})
	if err != nil {
		t.Fatal(err)
	}
	if err := v.verify(signature, []byte("Hello, World!")); err != nil {
		t.Error(err)
	}
}

func TestWhatIsNotSignedByASecretIsRefusedBeforeItIsParsed(t *testing.T) {
	good := sign("s3cret", []byte(push))
	for name, header := range map[string]string{
		"missing": "", "of sha1": "sha1=" + strings.Repeat("0", 40), "short": good[:60],
		"with another secret":  sign("other", []byte(push)),
		"with an empty secret": sign("", []byte(push)), "without its prefix": good[7:],
		"twice": good + "," + good, "in upper case of another": strings.ToUpper(
			sign("x", []byte(push))),
	} {
		t.Run(name, func(t *testing.T) {
			inbox := &memory{}
			r := delivery("push", "", push)
			if header != "" {
				r.Header.Set("X-Hub-Signature-256", header)
			}
			if w := answer(receiver(inbox, secretsOf("s3cret", "")),
				r); w.Code != http.StatusUnauthorized {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			if len(inbox.notices) > 0 {
				t.Error("it was taken")
			}
		})
	}
}

func TestSecretsRotate(t *testing.T) {
	current := []string{"old", "new"}
	v := receiver(&memory{}, func() ([]fleet.Secret, error) { return secretsOf(current...)() })
	for _, s := range current {
		if w := answer(v, delivery("push", s, push)); w.Code != http.StatusAccepted {
			t.Errorf("%s: %d", s, w.Code)
		}
	}
	current = []string{"new"}
	if w := answer(v, delivery("push", "old", push)); w.Code != http.StatusUnauthorized {
		t.Errorf("the old secret is good after it was let go: %d", w.Code)
	}
	current = nil
	if w := answer(v, delivery("push", "new", push)); w.Code != http.StatusServiceUnavailable {
		t.Errorf("without any secret: %d", w.Code)
	}
}

func TestWhatCannotBeStoredIsToBeDeliveredAgain(t *testing.T) {
	inbox := &memory{fail: errors.New("the database is away")}
	v := receiver(inbox, secretsOf("s3cret"))
	if w := answer(v, delivery("push", "s3cret", push)); w.Code != http.StatusServiceUnavailable {
		t.Fatalf("%d", w.Code)
	}
	inbox.fail = nil
	if w := answer(v, delivery("push", "s3cret", push)); w.Code != http.StatusAccepted ||
		len(inbox.notices) != 1 {
		t.Errorf("%d, jobs %v", w.Code, inbox.jobs)
	}
}

func TestRequestsThatAreNoDeliveries(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(make([]byte, 50<<20))
	z.Close()
	for name, c := range map[string]struct {
		change func(*http.Request)
		status int
	}{
		"by GET": {func(r *http.Request) { r.Method = http.MethodGet },
			http.StatusMethodNotAllowed},
		"a form": {
			func(r *http.Request) {
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			}, http.StatusUnsupportedMediaType},
		"compressed": {func(r *http.Request) {
			r.Header.Set("Content-Encoding", "gzip")
			r.Body = io.NopCloser(&zipped)
		}, http.StatusUnsupportedMediaType},
		"without an id": {func(r *http.Request) { r.Header.Del("X-GitHub-Delivery") },
			http.StatusAccepted},
		"with a strange id": {
			func(r *http.Request) {
				r.Header.Set("X-GitHub-Delivery", "a b\x00")
			}, http.StatusAccepted},
		"without an event": {func(r *http.Request) { r.Header.Del("X-GitHub-Event") },
			http.StatusAccepted},
		"with a strange event": {func(r *http.Request) { r.Header.Set("X-GitHub-Event", "A b") },
			http.StatusAccepted},
		"with another event": {
			func(r *http.Request) {
				r.Header.Set("X-GitHub-Event", "projects_v2_item")
			}, http.StatusAccepted},
		"strange and not signed": {func(r *http.Request) {
			r.Header.Set("X-GitHub-Event", "projects_v2_item")
			r.Header.Del("X-Hub-Signature-256")
		}, http.StatusUnauthorized},
		"declared as 26 MiB": {func(r *http.Request) { r.ContentLength = 26 << 20 },
			http.StatusRequestEntityTooLarge},
		"of 26 MiB without a declared length": {func(r *http.Request) {
			r.ContentLength, r.Body = -1,
				io.NopCloser(io.LimitReader(zeros{}, 26<<20))
		}, http.StatusRequestEntityTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			inbox := &memory{}
			r := delivery("push", "s3cret", push)
			c.change(r)
			w := answer(receiver(inbox, secretsOf("s3cret")), r)
			if w.Code != c.status || len(inbox.notices) > 0 || c.status == http.StatusAccepted &&
				w.Body.String() != "nothing to review\n" {
				t.Errorf("%d %s, jobs %v", w.Code, w.Body, inbox.jobs)
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// Rooms for bodies are few, and given back: after a flood of large ones that never end, small ones
// are taken.
func TestAFloodOfBodiesThatNeverEndHoldsNothingBack(t *testing.T) {
	inbox := &memory{}
	server := httptest.NewServer(receiver(inbox, secretsOf("s3cret")))
	defer server.Close()
	var slow []net.Conn
	for range largeBodies + 1 {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn,
			"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-GitHub-Event: "+
				"push\r\nX-GitHub-Delivery: a\r\nX-Hub-Signature-256: %s\r\nContent-Length: "+
				"%d\r\n\r\n", sign("", nil), 20<<20)
		_, _ = conn.Write(make([]byte, smallBody+2))
		slow = append(slow, conn)
	}
	// One of them gets no slot and is answered at once: that proves that the others have theirs.
	answered := make(chan string, len(slow))
	for _, conn := range slow {
		go func() {
			b := make([]byte, 64)
			_ = conn.SetReadDeadline(time.Now().Add(bodyTime))
			n, _ := conn.Read(b)
			answered <- string(b[:n])
		}()
	}
	if a := <-answered; !strings.Contains(a, "503") {
		t.Fatalf("answered %q", a)
	}
	r := delivery("push", "s3cret", push)
	again, err := http.NewRequest(http.MethodPost, server.URL, r.Body)
	if err != nil {
		t.Fatal(err)
	}
	again.Header = r.Header
	res, err := http.DefaultClient.Do(again)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusAccepted {
		t.Errorf("a small delivery beside: %d", res.StatusCode)
	}
	for _, conn := range slow {
		conn.Close()
	}
}

func TestAPushToAnotherRepositoryIsPassedOnAndNotStored(t *testing.T) {
	inbox := &memory{}
	v := receiver(inbox, secretsOf("s3cret"))
	v.Pushed = func() { t.Error("the loop is woken") }
	var moved []string
	v.Moved = func(_ context.Context, ref string, urls []string) {
		moved = append(append(moved, ref), urls...)
	}
	const other = `{"ref":"refs/heads/main","repository":{"id":43,` +
		`"clone_url":"https://git.example.com/acme/services.git"}}`
	if w := answer(v, delivery("push", "another", other)); w.Code != http.StatusUnauthorized ||
		len(moved) > 0 {
		t.Errorf("a forged push: %d, %v", w.Code, moved)
	}
	w := answer(v, delivery("push", "s3cret", other))
	if w.Code != http.StatusAccepted || len(moved) != 2 ||
		moved[1] != "https://git.example.com/acme/services.git" {
		t.Errorf("%d, %v", w.Code, moved)
	}
	if len(inbox.ids) > 0 {
		t.Errorf("stored: %+v", inbox.ids)
	}
}
