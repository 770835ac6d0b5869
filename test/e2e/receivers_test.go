package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

const (
	signingKey   = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqrTwj="
	mailUser     = "argosy"
	mailPassword = "smtp-passw0rd"
)

// receivers are the services that a team runs beside Argosy, at localhost: its Git host and a
// webhook over TLS, an SMTP server with a password, and an OpenTelemetry collector.
type receivers struct {
	authority []byte // PEM, of the TLS certificates
	pair      tls.Certificate
	front     *httptest.Server // the Git host, and /in of the webhook
	mailPort  int
	spans     *httptest.Server

	mu      sync.Mutex
	titles  []string // of the webhook's events
	mails   []string
	commits map[string]map[string]bool // names of the spans by argosy.revision of their commit
}

func newReceivers(t *testing.T) *receivers {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1),
		NotAfter: time.Now().Add(24 * time.Hour),
		Subject:  pkix.Name{CommonName: "a team's authority"}, DNSNames: []string{"localhost"},
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	check(t, err)
	return &receivers{commits: map[string]map[string]bool{},
		authority: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pair:      tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}
}

// start serves, with the Git host at this address behind TLS.
func (r *receivers) start(t *testing.T, gitHost string) {
	t.Helper()
	to, err := url.Parse(gitHost)
	check(t, err)
	verify, err := standardwebhooks.NewWebhook(signingKey)
	check(t, err)
	mux := http.NewServeMux()
	mux.Handle("/", httputil.NewSingleHostReverseProxy(to))
	mux.HandleFunc("POST /in", func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		err = errors.Join(err, verify.Verify(body, req.Header))
		var e struct {
			Type string
			Data struct{ Events []struct{ Title string } }
		}
		if err = errors.Join(err, json.Unmarshal(body, &e)); err != nil {
			t.Error("a webhook:", err)
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, event := range e.Data.Events {
			r.titles = append(r.titles, event.Title)
		}
	})
	r.front = httptest.NewUnstartedServer(mux)
	r.front.TLS = &tls.Config{Certificates: []tls.Certificate{r.pair}}
	r.front.StartTLS()
	t.Cleanup(r.front.Close)
	r.spans = httptest.NewServer(http.HandlerFunc(r.collect))
	t.Cleanup(r.spans.Close)
	r.serveMail(t)
}

// host is the address of the Git host and the webhook, by the name in their certificate.
func (r *receivers) host(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(r.front.Listener.Addr().String())
	check(t, err)
	return "localhost:" + port
}

// collect takes spans as an OpenTelemetry collector does.
func (r *receivers) collect(w http.ResponseWriter, req *http.Request) {
	var data tracepb.TracesData
	body, err := io.ReadAll(req.Body)
	if err = errors.Join(err, proto.Unmarshal(body, &data)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	names, revisions := map[string]map[string]bool{}, map[string]string{} // by trace
	for _, resource := range data.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				trace := string(s.TraceId)
				if names[trace] == nil {
					names[trace] = map[string]bool{}
				}
				names[trace][s.Name] = true
				for _, a := range s.Attributes {
					if a.Key == "argosy.revision" {
						revisions[trace] = a.Value.GetStringValue()
					}
				}
			}
		}
	}
	for trace, revision := range revisions {
		r.commits[revision] = names[trace]
	}
}

func (r *receivers) serveMail(t *testing.T) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	r.mailPort = listener.Addr().(*net.TCPAddr).Port
	server := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) {
		return &letter{to: r}, nil
	}))
	server.Domain = "localhost"
	server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{r.pair}}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
}

// letter is one connection to the SMTP server, which accepts nothing without the password.
type letter struct {
	to     *receivers
	authed bool
}

func (l *letter) AuthMechanisms() []string { return []string{sasl.Plain} }

func (l *letter) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != mailUser || password != mailPassword {
			return smtp.ErrAuthFailed
		}
		l.authed = true
		return nil
	}), nil
}

func (l *letter) Reset()        {}
func (l *letter) Logout() error { return nil }

func (l *letter) Mail(string, *smtp.MailOptions) error {
	if !l.authed {
		return smtp.ErrAuthRequired
	}
	return nil
}

func (l *letter) Rcpt(string, *smtp.RcptOptions) error { return nil }

func (l *letter) Data(from io.Reader) error {
	b, err := io.ReadAll(from)
	l.to.mu.Lock()
	defer l.to.mu.Unlock()
	l.to.mails = append(l.to.mails, string(b))
	return err
}
