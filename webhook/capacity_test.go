package webhook

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAFullTableEvictsAnEntry(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	for name, c := range map[string]struct {
		// addresses whose bodies come in, the oldest first; "=" after one: its body is there
		taken   []string
		after   time.Duration // since they came
		newest  string
		evicted int // place of the one that is cut; -1: the newest is refused
	}{
		"there is one":                         {[]string{"a", "a"}, 0, "b", -2},
		"an address with several gives one up": {[]string{"b", "a", "a"}, 0, "c", 1},
		"one with as many does not at once": {[]string{"a", "a", "a"}, admissionTime - 1, "a",
			-1},
		"but does after a while":                {[]string{"a", "a", "a"}, admissionTime, "a", 0},
		"single ones make room for a new one":   {[]string{"a", "b", "c"}, 0, "d", 0},
		"but not for one that has a room":       {[]string{"a", "b", "c"}, 0, "c", -1},
		"a body that is there is not cut":       {[]string{"a=", "a", "a="}, admissionTime, "b", 1},
		"when all are there none is cut":        {[]string{"a=", "a=", "a="}, time.Hour, "b", -1},
		"the oldest of the busiest goes":        {[]string{"x", "b", "a", "a"}, time.Hour, "b", 2},
		"the busiest address gets no more room": {[]string{"b", "a", "a"}, 0, "a", -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := admission{size: max(3, len(c.taken))}
			cut := []int{}
			for i, address := range c.taken {
				address, there := strings.CutSuffix(address, "=")
				r, ok := s.enter(address, now, func() { cut = append(cut, i) })
				if !ok {
					t.Fatal("there was a room")
				}
				if there {
					r.complete()
				}
			}
			r, ok := s.enter(c.newest, now.Add(c.after), func() {})
			if ok != (c.evicted != -1) || c.evicted >= 0 && !slices.Equal(cut, []int{c.evicted}) ||
				c.evicted < 0 && len(cut) > 0 {
				t.Errorf("let in: %t, cut %v", ok, cut)
			}
			if ok {
				r.leave()
			}
		})
	}
}

// Strangers who hold every room by bodies that never come cost an honest delivery nothing.
func TestSilentConnectionsKeepNoDeliveryOut(t *testing.T) {
	t.Parallel()
	v := receiver(&memory{}, secretsOf("s3cret"))
	server := httptest.NewServer(v)
	defer server.Close()
	for range smallBodies {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn,
			"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-GitHub-Event: "+
				"push\r\nX-GitHub-Delivery: a\r\nX-Hub-Signature-256: %s\r\nContent-Length: "+
				"100\r\n\r\n{", sign("", nil))
	}
	held := func() int {
		v.bodies.small.mu.Lock()
		defer v.bodies.small.mu.Unlock()
		return len(v.bodies.small.taken)
	}
	for deadline := time.Now().Add(2 * time.Minute); held() < smallBodies; {
		if time.Now().After(deadline) {
			t.Fatalf("%d rooms are taken", held())
		}
	}
	deliver := func(from string) int {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext,
			DisableKeepAlives: true}}
		r := delivery("push", "s3cret", push)
		again, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, r.Body)
		if err != nil {
			t.Fatal(err)
		}
		again.Header, again.ContentLength = r.Header, int64(len(push))
		res, err := client.Do(again)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	for range 8 {
		if status := deliver("127.0.0.2"); status != http.StatusAccepted {
			t.Fatalf("an honest delivery: %d", status)
		}
	}
	// Behind one proxy all have one address: then those go who take long.
	for deadline := time.Now().Add(2 * time.Minute); deliver("127.0.0.1") != http.StatusAccepted; {
		if time.Now().After(deadline) {
			t.Fatal("no delivery of the same address is taken")
		}
	}
}
