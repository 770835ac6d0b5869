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
	"net/netip"
	"regexp"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/peer"
)

const (
	maxDelivery = 25 << 20         // bytes of a body; GitHub sends no larger one
	usualSize   = 1 << 20          // bytes up to which bodies are read side by side
	bodyTime    = 20 * time.Second // for the largest body
	firstTime   = 3 * time.Second  // for a body of no size; larger ones have longer
	bodyRate    = 1 << 20          // bytes a second that a sender reaches at least
	acceptTime  = 8 * time.Second  // GitHub gives up on an answer after 10 s
	sideBySide  = 64
	large       = 2
)

// Inbox keeps deliveries, and what they ask to look at, in one transaction.
type Inbox interface {
	// Accept takes a delivery once: fresh is false for an ID that was taken before, and nothing is
	// done then.
	Accept(ctx context.Context, d forge.Delivery, looks []forge.Recheck) (fresh bool, err error)
}

// Secrets are those that a delivery may be signed with; more than one while they are being rotated.
// They are asked for at each delivery.
type Secrets func() ([]fleet.Secret, error)

// SecretKey is where a Secret of Secrets holds its value.
const SecretKey = "secret"

// Receiver answers POST /webhook/github. A delivery that is not signed by one of the secrets is
// refused before anything of it is parsed; of one that is, only what it asks to look at is kept. It
// is answered once that is stored: a delivery that cannot be stored is refused with 503, so that
// the forge shows it as failed and it can be delivered again.
type Receiver struct {
	inbox      Inbox
	secrets    Secrets
	branch     string
	repository func() int64
	log        *slog.Logger

	proxies []netip.Prefix // whose X-Forwarded-For says who asks

	usual, large rooms // for bodies: what strangers send never takes more memory than these
}

// NewReceiver makes the Receiver of one repository. Deliveries of other repositories are answered
// and let go; repository gives 0 as long as the repository's id is not known, and then every
// repository's count: they ask for no more than a look. proxies are those whose X-Forwarded-For
// says which address asks.
func NewReceiver(inbox Inbox, secrets Secrets, branch string, repository func() int64,
	proxies []netip.Prefix, log *slog.Logger) *Receiver {
	return &Receiver{inbox: inbox, secrets: secrets, branch: branch, repository: repository,
		proxies: proxies, log: log,
		usual: rooms{size: sideBySide}, large: rooms{size: large}}
}

var (
	deliveryID = regexp.MustCompile(`^[A-Za-z0-9-]{1,128}$`)
	eventName  = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)
)

// nothing is told of a signed delivery that asks for nothing: a host sends events that this version
// does not know.
const nothing = "nothing to review"

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
	// the forge shows it beside the delivery; if it has gone, nobody reads it
	_, _ = io.WriteString(w, text+"\n")
}

func (v *Receiver) receive(w http.ResponseWriter, r *http.Request) (string, error) {
	if err := acceptable(r); err != nil {
		return "", err
	}
	delivery := forge.Delivery{ID: r.Header.Get("X-GitHub-Delivery"),
		Event: r.Header.Get("X-GitHub-Event")}
	signature, err := signatureIn(r.Header.Values("X-Hub-Signature-256"))
	if err != nil {
		return "", err // it takes no room
	}
	body, leave, err := v.read(w, r)
	if err != nil {
		return "", err
	}
	defer leave()
	if err := v.verify(signature, body); err != nil {
		return "", err
	}
	if !deliveryID.MatchString(delivery.ID) || !eventName.MatchString(delivery.Event) {
		return nothing, nil
	}
	if delivery.Event == "ping" {
		return "pong", nil
	}
	looks, err := Parse(delivery.Event, body, v.branch, v.repository())
	if err != nil {
		return "", refuse(http.StatusBadRequest, err.Error())
	}
	if len(looks) == 0 {
		return nothing, nil
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
		return refuse(http.StatusUnsupportedMediaType,
			"set the webhook's content type to application/json")
	case r.Header.Get("Content-Encoding") != "":
		return refuse(http.StatusUnsupportedMediaType, "a delivery is not compressed")
	case r.ContentLength > maxDelivery:
		return refuse(http.StatusRequestEntityTooLarge, "a delivery has at most 25 MiB")
	}
	return nil
}

// read takes the body into memory. Small ones are read side by side, of large ones a few. leave
// gives their rooms up.
func (v *Receiver) read(w http.ResponseWriter, r *http.Request) (body []byte, leave func(),
	err error) {
	control := http.NewResponseController(w)
	// The server's own deadline covers the connection; this one ends a body that trickles in. Not
	// every ResponseWriter has one: the server's stands then.
	_ = control.SetReadDeadline(time.Now().Add(timeFor(r.ContentLength)))
	cut := func() { _ = control.SetReadDeadline(time.Unix(1, 0)) }
	address, full := peer.Address(r, v.proxies), refuse(http.StatusServiceUnavailable,
		"too many deliveries at once")
	usual, ok := v.usual.enter(address, time.Now(), cut)
	if !ok {
		return nil, nil, full
	}
	leave, kept := usual.leave, usual.arrived
	body, err = io.ReadAll(io.LimitReader(r.Body, usualSize+1))
	if err == nil && len(body) > usualSize {
		more, ok := v.large.enter(address, time.Now(), cut)
		if !ok {
			usual.leave()
			return nil, nil, full
		}
		leave = func() { more.leave(); usual.leave() }
		kept = func() bool { return more.arrived() && usual.arrived() }
		var rest []byte
		rest, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxDelivery-int64(len(body))))
		body = append(body, rest...)
	}
	if !kept() {
		leave()
		return nil, nil, full // it was cut for another one
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

// timeFor is how long a body of that many bytes may take; a negative size is not known.
func timeFor(size int64) time.Duration {
	if size < 0 {
		return bodyTime
	}
	return min(firstTime+time.Duration(size)*time.Second/bodyRate, bodyTime)
}

// signatureIn is the signature that a delivery names.
func signatureIn(header []string) ([]byte, error) {
	given, ok := strings.CutPrefix(strings.Join(header, ","), "sha256=")
	signature, err := hex.DecodeString(given)
	if !ok || err != nil || len(signature) != sha256.Size {
		return nil, refuse(http.StatusUnauthorized,
			"X-Hub-Signature-256 is required: give the webhook a secret")
	}
	return signature, nil
}

// verify compares the signature with what each secret gives, over the bytes as they came. See
// GitHub's "Validating webhook deliveries".
func (v *Receiver) verify(signature, body []byte) error {
	secrets, err := v.secrets()
	if err != nil || len(secrets) == 0 {
		v.log.Error("webhook deliveries are refused: there is no secret to check them with",
			"error", err)
		return refuse(http.StatusServiceUnavailable, "the webhook's secret is not to be had")
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

func (v *Receiver) accept(ctx context.Context, d forge.Delivery, looks []forge.Recheck) (string,
	error) {
	ctx, cancel := context.WithTimeout(ctx, acceptTime)
	defer cancel()
	fresh, err := v.inbox.Accept(ctx, d, looks)
	switch {
	case err != nil:
		v.log.Warn("a webhook delivery is not stored; the forge is asked to deliver it again",
			"delivery", d.ID, "event", d.Event, "error", err)
		return "", refuse(http.StatusServiceUnavailable, "not stored; deliver it again")
	case !fresh:
		return "taken before", nil
	}
	return "taken", nil
}
