package deliver

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/notify"
)

const signing = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqrTwj="

// evil is a text that a workload controls.
const evil = "<!channel> @here <https://evil.example.com|click> **bold** [a](https://evil.example.com) " +
	"\u202egnp.exe \x1b[31m </TextBlock>\r\nBcc: victim@example.com"

func events(n int) (all []mirror.Notification) {
	at := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	for i := range n {
		all = append(all, mirror.Notification{ID: fmt.Sprintf("id-%d", i), Tenant: "acme",
			Channel: "chat", Trigger: fleet.TriggerDegraded, About: "acme",
			Deployment: fleet.DeploymentName(fmt.Sprintf("web-%d", i)), Environment: "prod",
			Engine: "eu-1", Message: evil, Since: at, At: at.Add(time.Minute),
			Commit: strings.Repeat("a", 40)})
	}
	return all
}

// receiverOf is a TLS server and a delivery to it, which the Fleet allows.
func receiverOf(t *testing.T, h http.HandlerFunc) (*httptest.Server, *Sender, notify.Delivery) {
	t.Helper()
	s := httptest.NewTLSServer(h)
	t.Cleanup(s.Close)
	host := strings.TrimPrefix(s.URL, "https://")
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return s, &Sender{Roots: roots, Timeout: 3 * time.Second}, notify.Delivery{
		Channel: fleet.Channel{Name: "hook", Webhook: &fleet.WebhookChannel{URL: s.URL + "/in",
			CredentialsRef: fleet.SecretRef{Name: "hook"}}},
		Secret: fleet.NewSecret(map[string][]byte{"signingKey": []byte(signing),
			"bearerToken": []byte("t0ken-of-the-receiver")}),
		Fleet: &fleet.FleetNotifications{AllowedHosts: []string{host},
			PrivateHosts: []string{host}},
		Public: "https://argosy.example.com", MessageID: "msg-1", Events: events(1),
		At: time.Now()}
}

func TestAWebhookGetsASignedCloudEvent(t *testing.T) {
	verify, err := standardwebhooks.NewWebhook(signing)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		SpecVersion, ID, Source, Type, Subject, DataContentType string
		Time                                                    time.Time
		Data                                                    struct {
			Title  string
			Events []struct{ ID, Trigger, Tenant, Deployment, Message, Link, Next string }
		}
	}
	_, s, d := receiverOf(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := verify.Verify(body, r.Header); err != nil {
			t.Errorf("the signature is not valid: %v", err)
		}
		if h := r.Header.Get("Content-Type"); h != "application/cloudevents+json; charset=UTF-8" {
			t.Errorf("content type %q", h)
		}
		if h := r.Header.Get("Authorization"); h != "Bearer t0ken-of-the-receiver" {
			t.Errorf("authorization %q", h)
		}
		if err := json.Unmarshal(body, &got); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "thanks for "+r.Header.Get("Authorization"))
	})
	answer, err := s.Send(t.Context(), d)
	if err != nil || answer != "202 Accepted: thanks for Bearer …" {
		t.Fatalf("answer %q, %v", answer, err)
	}
	if got.SpecVersion != "1.0" || got.ID != "msg-1" || got.Type != EventType ||
		got.Source != "https://argosy.example.com" || got.Time.IsZero() ||
		got.Subject != "acme/web-0@prod" || len(got.Data.Events) != 1 ||
		got.Data.Events[0].Link == "" || got.Data.Title != "acme/web-0@prod is Degraded" {
		t.Errorf("%+v", got)
	}
	if strings.ContainsAny(got.Data.Events[0].Message, "\u202e\x1b\n") {
		t.Errorf("message %q", got.Data.Events[0].Message)
	}
}

func TestAHostileReceiverIsRefusedOrGivenUp(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		edit    func(*Sender, *notify.Delivery)
		want    string // of the error; "": it succeeds
		refused bool
	}{
		{"an answer of 10 MB", func(w http.ResponseWriter, _ *http.Request) {
			for range 10 {
				_, _ = io.WriteString(w, big)
			}
		}, nil, "", false},
		{"no answer", func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			<-r.Context().Done()
		}, func(s *Sender, _ *notify.Delivery) { s.Timeout = 200 * time.Millisecond },
			"did not answer within 200ms", false},
		{"an answer that stops", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
			_, _ = io.ReadAll(r.Body)
			<-r.Context().Done()
		}, func(s *Sender, _ *notify.Delivery) { s.Timeout = 300 * time.Millisecond },
			"did not answer within", false},
		{"an answer that never ends", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, big); err != nil {
					return
				}
			}
		}, nil, "answers 500 Internal Server Error: xxx", false},
		{"a redirect to the metadata of a cloud", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/", http.StatusFound)
		}, nil, "redirect (302), which is not followed", true},
		{"an unknown certificate", func(http.ResponseWriter, *http.Request) {},
			func(s *Sender, _ *notify.Delivery) { s.Roots = x509.NewCertPool() },
			"certificate of", false},
		{"a private address", func(http.ResponseWriter, *http.Request) {},
			func(_ *Sender, d *notify.Delivery) { d.Fleet.PrivateHosts = nil },
			"127.0.0.1 of a private network", true},
		{"a host that is not allowed", func(http.ResponseWriter, *http.Request) {},
			func(_ *Sender, d *notify.Delivery) { d.Fleet.AllowedHosts = nil },
			"allows no messages to 127.0.0.1", true},
		{"no Fleet", func(http.ResponseWriter, *http.Request) {},
			func(_ *Sender, d *notify.Delivery) { d.Fleet = nil }, "allows no messages to", true},
		{"a receiver that is gone", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "gone", http.StatusGone)
		}, nil, "answers 410 Gone: gone", true},
		{"a receiver with an error", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "\x1b[31mno\u202e", http.StatusBadGateway)
		}, nil, `answers 502 Bad Gateway: \x1b[31mno\u202e`, false},
		{"no key", func(http.ResponseWriter, *http.Request) {},
			func(_ *Sender, d *notify.Delivery) { d.Secret = fleet.Secret{} },
			"signingKey has 0 bytes", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, s, d := receiverOf(t, c.handler)
			if c.edit != nil {
				c.edit(s, &d)
			}
			began := time.Now()
			answer, err := s.Send(t.Context(), d)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
			if len([]rune(answer)) > 300 {
				t.Errorf("an answer of %d characters is kept", len(answer))
			}
			var refused *notify.Refused
			switch {
			case c.want == "" && err != nil, c.want != "" && err == nil:
				t.Fatalf("error %v, want %q", err, c.want)
			case err != nil && !strings.Contains(err.Error(), c.want):
				t.Errorf("error %q, want %q", err, c.want)
			case err != nil && errors.As(err, &refused) != c.refused:
				t.Errorf("refused is %v: %v", !c.refused, err)
			}
		})
	}
}

func TestAReceiverThatWantsAPauseGetsIt(t *testing.T) {
	_, s, d := receiverOf(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "90")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	_, err := s.Send(t.Context(), d)
	var busy *notify.Busy
	if !errors.As(err, &busy) || busy.After != 90*time.Second {
		t.Errorf("%v", err)
	}
}

// The URL of Slack and Teams is the credential.
func TestNoErrorContainsTheURLOfAHook(t *testing.T) {
	const path = "/services/T000/B000/verysecretpart"
	for _, status := range []int{0, 302, 404, 500} {
		server, s, d := receiverOf(t, func(w http.ResponseWriter, r *http.Request) {
			if status == 0 {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "no such hook: https://"+r.Host+r.URL.Path)
		})
		d.Channel = fleet.Channel{Name: "chat", Slack: &fleet.HookChannel{}}
		d.Secret = fleet.NewSecret(map[string][]byte{"url": []byte(server.URL + path + "\n")})
		answer, err := s.Send(t.Context(), d)
		if err == nil || strings.Contains(err.Error()+answer, "verysecretpart") {
			t.Errorf("status %d: %q, %v", status, answer, err)
		}
	}
}

func TestChatGetsTextsWithoutMarks(t *testing.T) {
	for _, kind := range []fleet.ChannelKind{fleet.ChannelSlack, fleet.ChannelTeams} {
		t.Run(string(kind), func(t *testing.T) {
			var raw []byte
			server, s, d := receiverOf(t, func(w http.ResponseWriter, r *http.Request) {
				raw, _ = io.ReadAll(r.Body)
				_, _ = io.WriteString(w, "ok")
			})
			d.Channel = fleet.Channel{Name: "chat", Slack: &fleet.HookChannel{}}
			if kind == fleet.ChannelTeams {
				d.Channel = fleet.Channel{Name: "chat", Teams: &fleet.HookChannel{}}
			}
			d.Secret = fleet.NewSecret(map[string][]byte{"url": []byte(server.URL + "/x")})
			d.Events, d.More = events(30), 4970
			if _, err := s.Send(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			var payload map[string]any
			if err := json.Unmarshal(raw, &payload); err != nil {
				t.Fatal(err)
			}
			texts := 0
			walk(payload, func(o map[string]any) {
				text, has := o["text"].(string)
				if !has {
					return
				}
				texts++
				if typ := o["type"]; typ != "plain_text" && typ != "TextRun" && typ != nil {
					t.Errorf("a text of type %v reads marks: %q", typ, text)
				}
				if typ := o["type"]; typ == nil && strings.ContainsAny(text, "<>") {
					t.Errorf("the fallback has marks: %q", text)
				}
				if strings.ContainsAny(text, "\u202e\x1b\r") || strings.Contains(text, "://evil") {
					t.Errorf("text %q", text)
				}
			})
			if texts < 20 || len(raw) > 40<<10 {
				t.Errorf("%d texts in %d bytes", texts, len(raw))
			}
			if !bytes.Contains(raw, []byte("and 4980 more events")) {
				t.Error("the events that are not listed are not counted")
			}
			checkShape(t, kind, payload)
		})
	}
}

// checkShape compares with the shapes that Slack and Microsoft document; neither can be reached
// from a test.
func checkShape(t *testing.T, kind fleet.ChannelKind, payload map[string]any) {
	t.Helper()
	if kind == fleet.ChannelSlack {
		blocks := payload["blocks"].([]any)
		if len(blocks) > 50 || blocks[0].(map[string]any)["type"] != "header" {
			t.Errorf("%d blocks", len(blocks))
		}
		for _, b := range blocks[1:] {
			text := b.(map[string]any)["text"].(map[string]any)["text"].(string)
			if n := len([]rune(text)); n == 0 || n > 3000 {
				t.Errorf("a section of %d characters", n)
			}
		}
		return
	}
	attachment := payload["attachments"].([]any)[0].(map[string]any)
	card := attachment["content"].(map[string]any)
	if payload["type"] != "message" || card["type"] != "AdaptiveCard" || card["version"] != "1.4" ||
		attachment["contentType"] != "application/vnd.microsoft.card.adaptive" ||
		len(card["body"].([]any)) == 0 || len(card["actions"].([]any)) != 1 {
		t.Errorf("%v", payload)
	}
}

func walk(v any, visit func(map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		visit(v)
		for _, item := range v {
			walk(item, visit)
		}
	case []any:
		for _, item := range v {
			walk(item, visit)
		}
	}
}

func TestPublicAddresses(t *testing.T) {
	for address, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700:4700::1111": true,
		"127.0.0.1": false, "::1": false, "10.1.2.3": false, "172.31.0.1": false,
		"192.168.1.1": false, "169.254.169.254": false, "100.64.0.1": false, "0.0.0.0": false,
		"224.0.0.1": false, "255.255.255.255": false, "::ffff:127.0.0.1": false,
		"::ffff:8.8.8.8": true, "fe80::1%eth0": false, "fd00::1": false, "::": false,
		"64:ff9b::7f00:1": false, "2002:7f00:1::": false, "2001:db8::1": false,
		"198.18.0.1": false, "ff02::1": false, "fec0::1": false,
	} {
		if got := Public(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: public is %v", address, got)
		}
	}
}

func FuzzSigningKey(f *testing.F) {
	f.Add([]byte(signing))
	f.Add([]byte("whsec_"))
	f.Add([]byte(strings.Repeat("k", 24)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if key, err := signingKey(raw); err == nil && len(key) < 24 {
			t.Errorf("%q is a key of %d bytes", raw, len(key))
		}
	})
}

// post office is an SMTP server of the tests.
type office struct {
	mu    sync.Mutex
	mails []string
	rcpts []string
	auth  bool
}

func (o *office) NewSession(*smtp.Conn) (smtp.Session, error) { return &letter{o: o}, nil }

type letter struct {
	o      *office
	authed bool
}

func (l *letter) AuthMechanisms() []string { return []string{sasl.Plain} }

func (l *letter) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != "argosy" || password != "smtp-passw0rd" {
			return errors.New("wrong password smtp-passw0rd")
		}
		l.authed = true
		return nil
	}), nil
}

func (l *letter) Reset()        {}
func (l *letter) Logout() error { return nil }

func (l *letter) Mail(string, *smtp.MailOptions) error {
	if l.o.auth && !l.authed {
		return smtp.ErrAuthRequired
	}
	return nil
}

func (l *letter) Rcpt(to string, _ *smtp.RcptOptions) error {
	if strings.HasPrefix(to, "nobody@") {
		return &smtp.SMTPError{Code: 550, Message: "no such mailbox"}
	}
	l.o.mu.Lock()
	defer l.o.mu.Unlock()
	l.o.rcpts = append(l.o.rcpts, to)
	return nil
}

func (l *letter) Data(r io.Reader) error {
	b, err := io.ReadAll(r)
	l.o.mu.Lock()
	defer l.o.mu.Unlock()
	l.o.mails = append(l.o.mails, string(b))
	return err
}

// certificate is one of smtp.test, and its authority.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		Subject: pkix.Name{CommonName: "smtp.test"}, DNSNames: []string{"localhost"},
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}

func TestEmailIsSentOverAnEncryptedConnection(t *testing.T) {
	pair, roots := certificate(t)
	for _, c := range []struct {
		name       string
		tls        fleet.SMTPEncryption
		offered    bool // the server has a certificate
		password   string
		to         string
		want       string
		refused    bool
		unallowed  bool
		wrongRoots bool
	}{
		{name: "STARTTLS", offered: true},
		{name: "STARTTLS with a password", offered: true, password: "smtp-passw0rd"},
		{name: "implicit TLS", tls: fleet.SMTPImplicitTLS, offered: true},
		{name: "implicit TLS with a password", tls: fleet.SMTPImplicitTLS, offered: true,
			password: "smtp-passw0rd"},
		{name: "no encryption", want: "STARTTLS"},
		{name: "a wrong password", offered: true, password: "wrong-passw0rd", want: "localhost:"},
		{name: "an unknown certificate", offered: true, wrongRoots: true, want: "certificate"},
		{name: "an unknown mailbox", offered: true, to: "nobody@example.com", want: "550",
			refused: true},
		{name: "a domain that is not allowed", offered: true, to: "a@example.org",
			want: "allows no messages to a@example.org", refused: true},
		{name: "a private address", offered: true, unallowed: true, want: "private network",
			refused: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := &office{auth: c.password != ""}
			server := smtp.NewServer(o)
			server.Domain, server.ReadTimeout, server.WriteTimeout = "localhost", 5*time.Second,
				5*time.Second
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			port := listener.Addr().(*net.TCPAddr).Port
			if c.offered {
				server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}}
			}
			if c.tls == fleet.SMTPImplicitTLS {
				listener = tls.NewListener(listener, server.TLSConfig)
			}
			go func() { _ = server.Serve(listener) }()
			t.Cleanup(func() { _ = server.Close() })

			s := &Sender{Roots: roots, Timeout: 5 * time.Second}
			if c.wrongRoots {
				s.Roots = x509.NewCertPool()
			}
			to := "team@example.com"
			if c.to != "" {
				to = c.to
			}
			spec := &fleet.SMTPServer{Host: "localhost", Port: port, TLS: c.tls,
				From: "argosy@example.com"}
			d := notify.Delivery{Channel: fleet.Channel{Name: "mail",
				Email: &fleet.EmailChannel{To: []string{to}}},
				Fleet: &fleet.FleetNotifications{SMTP: spec, EmailDomains: []string{"example.com"},
					PrivateHosts: []string{spec.Authority()}},
				Public: "https://argosy.example.com", MessageID: "msg-1", Events: events(2),
				At: time.Now()}
			if c.unallowed {
				d.Fleet.PrivateHosts = nil
			}
			if c.password != "" {
				spec.CredentialsRef = &fleet.SecretRef{Name: "smtp"}
				d.SMTP = fleet.NewSecret(map[string][]byte{"username": []byte("argosy"),
					"password": []byte(c.password)})
			}
			answer, err := s.Send(t.Context(), d)
			if c.want != "" {
				var refused *notify.Refused
				if err == nil || !strings.Contains(err.Error(), c.want) ||
					errors.As(err, &refused) != c.refused ||
					c.password != "" && strings.Contains(err.Error(), c.password) {
					t.Fatalf("answer %q, error %v, want %q", answer, err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			checkMail(t, o, to)
		})
	}
}

func checkMail(t *testing.T, o *office, to string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.mails) != 1 || len(o.rcpts) != 1 || o.rcpts[0] != to {
		t.Fatalf("%d mails to %v", len(o.mails), o.rcpts)
	}
	m, err := mail.ReadMessage(strings.NewReader(o.mails[0]))
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Header.Get("Subject"); got != "Argosy: 2 events: 2 Degraded" {
		t.Errorf("subject %q", got)
	}
	if id := m.Header.Get("Message-ID"); id != "<msg-1@argosy>" {
		t.Errorf("message ID %q", id)
	}
	if m.Header.Get("Bcc") != "" || !strings.HasPrefix(m.Header.Get("Content-Type"), "text/plain") {
		t.Errorf("headers %v", m.Header)
	}
	body, _ := io.ReadAll(m.Body)
	if m.Header.Get("Content-Transfer-Encoding") == "base64" {
		body, _ = base64.StdEncoding.DecodeString(string(body))
	}
	if !bytes.Contains(body, []byte("acme/web-0@prod is Degraded")) ||
		bytes.ContainsAny(body, "\u202e\x1b") || bytes.Contains(body, []byte("\nBcc:")) {
		t.Errorf("body %q", body)
	}
}

func TestAnSMTPServerThatNeverAnswersIsGivenUp(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	s := &Sender{Timeout: 300 * time.Millisecond}
	spec := &fleet.SMTPServer{Host: "localhost", Port: listener.Addr().(*net.TCPAddr).Port,
		From: "argosy@example.com"}
	began := time.Now()
	_, err = s.Send(context.Background(), notify.Delivery{Channel: fleet.Channel{
		Email: &fleet.EmailChannel{To: []string{"a@example.com"}}},
		Fleet: &fleet.FleetNotifications{SMTP: spec, EmailDomains: []string{"example.com"},
			PrivateHosts: []string{spec.Authority()}}, Events: events(1), At: time.Now()})
	if err == nil || time.Since(began) > 3*time.Second {
		t.Errorf("%v after %s", err, time.Since(began))
	}
}
