package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"regexp"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
)

const (
	maxDelivery = 25 << 20 // bytes of a body; GitHub sends no larger one
	usualSize   = 1 << 20  // bytes up to which bodies are read side by side
	bodyTime    = 20 * time.Second
	acceptTime  = 8 * time.Second // GitHub gives up on an answer after 10 s
	sideBySide  = 64
	large       = 2
)

// Inbox keeps deliveries, and what they ask to look at, in one transaction.
type Inbox interface {
	// Accept takes a delivery once: fresh is false for an ID that was taken before, and nothing is done then.
	Accept(ctx context.Context, d fleet.Delivery, looks []fleet.Look) (fresh bool, err error)
}

// Secrets are those that a delivery may be signed with; more than one while they are being rotated. They are asked for at each delivery.
type Secrets func() ([]fleet.Secret, error)

// SecretKey is where a Secret of Secrets holds its value.
const SecretKey = "secret"

// Receiver answers POST /webhook/github. A delivery that is not signed by one of the secrets is refused before anything of it is parsed; of
// one that is, only what it asks to look at is kept. It is answered once that is stored: a delivery that cannot be stored is refused with
// 503, so that the forge shows it as failed and it can be delivered again.
type Receiver struct {
	inbox      Inbox
	secrets    Secrets
	branch     string
	repository func() int64
	log        *slog.Logger

	usual, large chan struct{} // rooms for bodies: what strangers send never takes more memory than these
}

// NewReceiver makes the Receiver of one repository. Deliveries of other repositories are answered and let go; repository gives 0 as long as
// the repository's id is not known, and then every repository's count: they ask for no more than a look.
func NewReceiver(inbox Inbox, secrets Secrets, branch string, repository func() int64, log *slog.Logger) *Receiver {
	return &Receiver{inbox: inbox, secrets: secrets, branch: branch, repository: repository, log: log,
		usual: make(chan struct{}, sideBySide), large: make(chan struct{}, large)}
}

var (
	deliveryID = regexp.MustCompile(`^[A-Za-z0-9-]{1,128}$`)
	eventName  = regexp.MustCompile(`^[a-z_]{1,64}$`)
)

// refusal is an answer that is not 2xx.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(status int, text string) error { return &refusal{status, text} }

// ServeHTTP answers one delivery.
func (v *Receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := v.receive(w, r)
	var no *refusal
	switch {
	case err == nil:
		w.WriteHeader(http.StatusAccepted)
	case errors.As(err, &no):
		text = no.text
		if no.status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "10")
		}
		w.Header().Set("Connection", "close") // what is left of the body is not read
		w.WriteHeader(no.status)
	}
	_, _ = io.WriteString(w, text+"\n") // the forge shows it beside the delivery; if it has gone, nobody reads it
}

func (v *Receiver) receive(w http.ResponseWriter, r *http.Request) (string, error) {
	if err := acceptable(r); err != nil {
		return "", err
	}
	delivery := fleet.Delivery{ID: r.Header.Get("X-GitHub-Delivery"), Event: r.Header.Get("X-GitHub-Event")}
	if !deliveryID.MatchString(delivery.ID) || !eventName.MatchString(delivery.Event) {
		return "", refuse(http.StatusBadRequest, "X-GitHub-Delivery and X-GitHub-Event are required")
	}
	body, leave, err := v.read(w, r)
	if err != nil {
		return "", err
	}
	defer leave()
	if err := v.verify(r.Header.Values("X-Hub-Signature-256"), body); err != nil {
		return "", err
	}
	if delivery.Event == "ping" {
		return "pong", nil
	}
	looks, err := Parse(delivery.Event, body, v.branch, v.repository())
	if err != nil {
		return "", refuse(http.StatusBadRequest, err.Error())
	}
	if len(looks) == 0 {
		return "nothing to look at", nil
	}
	delivery.Push = PushOf(delivery.Event, body, v.branch, v.repository())
	return v.accept(r.Context(), delivery, looks)
}

func acceptable(r *http.Request) error {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case r.Method != http.MethodPost:
		return refuse(http.StatusMethodNotAllowed, "deliveries are sent by POST")
	case err != nil || media != "application/json":
		return refuse(http.StatusUnsupportedMediaType, "set the webhook's content type to application/json")
	case r.Header.Get("Content-Encoding") != "":
		return refuse(http.StatusUnsupportedMediaType, "a delivery is not compressed")
	case r.ContentLength > maxDelivery:
		return refuse(http.StatusRequestEntityTooLarge, "a delivery has at most 25 MiB")
	}
	return nil
}

// read takes the body into memory. Small ones are read side by side, of large ones a few: others are asked to come again.
func (v *Receiver) read(w http.ResponseWriter, r *http.Request) ([]byte, func(), error) {
	leave, ok := enter(v.usual)
	if !ok {
		return nil, nil, refuse(http.StatusServiceUnavailable, "too many deliveries at once")
	}
	// The server's own deadline covers the connection; this one ends a body that trickles in.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // not every ResponseWriter has one: the server's stands then
	body, err := io.ReadAll(io.LimitReader(r.Body, usualSize+1))
	if err == nil && len(body) > usualSize {
		more, ok := enter(v.large)
		if !ok {
			leave()
			return nil, nil, refuse(http.StatusServiceUnavailable, "too many large deliveries at once")
		}
		usual := leave
		leave = func() { more(); usual() }
		var rest []byte
		rest, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxDelivery-int64(len(body))))
		body = append(body, rest...)
	}
	if err == nil {
		return body, leave, nil
	}
	leave()
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return nil, nil, refuse(http.StatusRequestEntityTooLarge, "a delivery has at most 25 MiB")
	}
	return nil, nil, refuse(http.StatusRequestTimeout, "the body did not arrive")
}

func enter(room chan struct{}) (func(), bool) {
	select {
	case room <- struct{}{}:
		return func() { <-room }, true
	default:
		return nil, false
	}
}

// verify compares the signature with what each secret gives, over the bytes as they came. See GitHub's "Validating webhook deliveries".
func (v *Receiver) verify(header []string, body []byte) error {
	secrets, err := v.secrets()
	if err != nil || len(secrets) == 0 {
		v.log.Error("webhook deliveries are refused: there is no secret to check them with", "error", err)
		return refuse(http.StatusServiceUnavailable, "the webhook's secret is not to be had")
	}
	given, ok := strings.CutPrefix(strings.Join(header, ","), "sha256=")
	signature, err := hex.DecodeString(given)
	if !ok || err != nil || len(signature) != sha256.Size {
		return refuse(http.StatusUnauthorized, "X-Hub-Signature-256 is required: give the webhook a secret")
	}
	good := false
	for _, s := range secrets {
		key := s.Value(SecretKey)
		if len(key) == 0 {
			continue // an empty one would make every signature that anybody can compute a good one
		}
		mac := hmac.New(sha256.New, key)
		mac.Write(body)
		good = hmac.Equal(mac.Sum(nil), signature) || good
	}
	if !good {
		return refuse(http.StatusUnauthorized, "the signature fits none of the secrets")
	}
	return nil
}

func (v *Receiver) accept(ctx context.Context, d fleet.Delivery, looks []fleet.Look) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, acceptTime)
	defer cancel()
	fresh, err := v.inbox.Accept(ctx, d, looks)
	switch {
	case err != nil:
		v.log.Warn("a webhook delivery is not stored; the forge is asked to deliver it again", "delivery", d.ID, "event", d.Event, "error", err)
		return "", refuse(http.StatusServiceUnavailable, "not stored; deliver it again")
	case !fresh:
		return "taken before", nil
	}
	return "taken", nil
}
