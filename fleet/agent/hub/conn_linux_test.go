package hub

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"argosy.dev/argosy/fleet/agent"
)

// The test reads the kernel's settings: a keep-alive every fifteen seconds that is not acknowledged
// ends the connection.
func TestTheKernelClosesADeadConnectionWithinAMinute(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	connContext(context.Background(), tls.Server(conn, &tls.Config{}))
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	option := func(level, name int) (value int) {
		err := raw.Control(func(fd uintptr) {
			var err error
			if value, err = syscall.GetsockoptInt(int(fd), level, name); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	unansweredAfter := time.Duration(option(syscall.IPPROTO_TCP, tcpUserTimeout)) * time.Millisecond
	if dead := agent.Heartbeat + unansweredAfter; unansweredAfter == 0 || dead > time.Minute {
		t.Errorf("with bytes on their way it is noticed after %v", dead)
	}
	idle := option(syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE) + option(syscall.IPPROTO_TCP,
		syscall.TCP_KEEPINTVL)*option(syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT)
	if option(syscall.SOL_SOCKET, syscall.SO_KEEPALIVE) == 0 || idle > 60 {
		t.Errorf("without any it is noticed after %d s", idle)
	}
}

func TestAStreamSurvivesTheServersDeadlinesOnBothVersionsOfHTTP(t *testing.T) {
	for version, two := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(version, func(t *testing.T) {
			o := newTestHub(t)
			defer o.run()()
			d := o.newAgent("acme.edge", "acme")
			server := httptest.NewUnstartedServer(o.mux)
			server.EnableHTTP2 = two
			server.Config.ReadTimeout, server.Config.WriteTimeout = 300*time.Millisecond,
				300*time.Millisecond
			Detect(server.Config)
			server.StartTLS()
			defer server.Close()
			r := d.get(agent.PathStream, 0)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
				server.URL+agent.PathStream, nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Header = r.Header
			answer, err := server.Client().Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			if answer.Proto != version || answer.Header.Get("Content-Type") != "text/event-stream" {
				t.Fatalf("%s %v", answer.Proto, answer.Header)
			}
			lines := bufio.NewScanner(answer.Body)
			until := func(word string) {
				for lines.Scan() {
					if strings.Contains(lines.Text(), word) {
						return
					}
				}
				t.Fatalf("the stream ended before %q: %v", word, lines.Err())
			}
			until("event: syncs")
			// real time: the test depends on timers of the kernel and of http.Server
			timer := time.NewTimer(2 * server.Config.WriteTimeout)
			<-timer.C
			began := time.Now()
			o.store.put(application("acme.edge", "acme", "late"))
			o.hub.Wake()
			until("late")
			t.Logf("from the row to the agent: %v", time.Since(began))
		})
	}
}
