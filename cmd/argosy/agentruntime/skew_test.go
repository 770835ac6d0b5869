package agentruntime_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"argosy.dev/argosy/cmd/argosy/agentruntime"
	"argosy.dev/argosy/fleet/agent"
)

// olderHub makes the control plane answer as a hub of protocol 4 did: it announces 4, and leaves
// out the messages and requests of 5.
type olderHub struct{ is atomic.Bool }

func (o *olderHub) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if o.is.Load() && r.URL.Path == agent.PathInspections {
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (o *olderHub) rewrite(r *http.Response) error {
	if !o.is.Load() || r.Request.URL.Path != agent.PathStream || r.StatusCode != http.StatusOK {
		return nil
	}
	from, to := io.Pipe()
	body := r.Body
	go func() {
		defer body.Close()
		to.CloseWithError(asProtocol4(to, body))
	}()
	r.Body = from
	return nil
}

// asProtocol4 copies a stream of messages.
func asProtocol4(to io.Writer, from io.Reader) error {
	in := bufio.NewReader(from)
	var message bytes.Buffer
	event := ""
	for {
		line, err := in.ReadString('\n')
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			event = strings.TrimSpace(name)
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			line = "data: " + fieldsOf4(event, data)
		}
		message.WriteString(line)
		if line == "\n" || err != nil {
			if event != agent.EventInspect && event != agent.EventActions {
				if _, err := to.Write(message.Bytes()); err != nil {
					return err
				}
			}
			message.Reset()
			event = ""
		}
		if err != nil {
			return err
		}
	}
}

// fieldsOf4 returns the data of a message as protocol 4 had it.
func fieldsOf4(event, data string) string {
	var fields map[string]any
	if event != agent.EventHello || json.Unmarshal([]byte(data), &fields) != nil ||
		fields == nil {
		return data
	}
	fields["protocol"] = 4
	text, err := json.Marshal(fields)
	if err != nil {
		return data
	}
	return string(text) + "\n"
}

// Control plane and agent of adjacent protocol versions do the main job together. test/README.md
// has what this proves.
func TestAdjacentProtocolsDoTheMainJob(t *testing.T) {
	if agent.Protocol != 5 {
		t.Fatalf("the protocol is %d: this test plays %d beside it", agent.Protocol,
			agent.Protocol-1)
	}
	for name, c := range map[string]struct {
		agent int
		older bool
	}{"an earlier agent": {4, false}, "an earlier control plane": {5, true}} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, "managed", fmt.Sprintf("skew-%d", c.agent))
			s.older.is.Store(c.older)
			s.join()
			a, err := agentruntime.New(agentruntime.Config{Hub: s.hub, Namespace: s.agent,
				ArgoCDNamespace: s.argocd, CA: s.ca, MaxDeletions: 20, InFlight: 8,
				Cluster: rest.CopyConfig(s.cluster.REST()), Version: "skew",
				Log: slog.New(slog.NewTextHandler(testWriter{s.T}, nil))})
			s.must(err)
			agentruntime.Announce(a, c.agent)
			s.start("agent", a.Run)
			s.works("skew")
			s.mainJob()
		})
	}
}
