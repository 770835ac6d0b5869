package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/webhook/sources"
)

const storeTime = 8 * time.Second // GitHub closes the connection after 10 s

// Inbox stores deliveries.
type Inbox interface {
	// Accept stores a delivery with the review jobs that it requests and sends its notice to every
	// replica, all in one transaction. fresh is false, and nothing is done, for an ID stored
	// before.
	Accept(ctx context.Context, d forge.Delivery, jobs []forge.Recheck) (fresh bool, err error)
}

// Secrets returns the secrets that a delivery may be signed with: two during a rotation. It is
// called for each delivery.
type Secrets func() ([]fleet.Secret, error)

// SecretKey is the key of the value in a Secret of Secrets.
const SecretKey = "secret"

// ReceiverConfig configures a Receiver.
type ReceiverConfig struct {
	Inbox   Inbox
	Secrets Secrets
	Branch  string
	// Repository returns the repository's ID, 0 while it is unknown. The Receiver ignores
	// deliveries of other repositories; while the ID is unknown it accepts all: a delivery carries
	// no facts.
	Repository func() int64
	Holder     string // names this replica in notices of pushes
	Pushed     func() // called after a push to the branch was stored; must not block
	// Moved is called for a push to any repository; nil: no other is read. It carries no facts:
	// a set that lists the repository is read again.
	Moved func(ctx context.Context, ref string, urls []string)
	// Sources stores a push to any repository, which Applications may deploy from; nil: none is.
	Sources func(context.Context, mirror.SourcePush) error
	Proxies []netip.Prefix // whose X-Forwarded-For names the sender's address
	Log     *slog.Logger
}

// Receiver answers POST /webhook/github. It verifies the signature before it parses anything, and
// stores no more of a delivery than the request for a reconcile or a review job. It answers 2xx
// only after the commit; 503 if the delivery could not be stored, so that the Git host shows it as
// failed and can deliver it again.
type Receiver struct {
	ReceiverConfig
	bodies *bodies
}

// NewReceiver returns a Receiver.
func NewReceiver(c ReceiverConfig) *Receiver {
	return &Receiver{ReceiverConfig: c, bodies: newBodies(c.Proxies)}
}

// refusal is a response other than 2xx.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(status int, text string) error { return &refusal{status, text} }

// ServeHTTP handles one delivery.
func (v *Receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answerDelivery(w, func() (string, error) { return v.receive(w, r) })
}

// nothing answers a signed delivery that requests nothing: Git hosts send events unknown to this
// version.
const nothing = "nothing to review"

func (v *Receiver) receive(w http.ResponseWriter, r *http.Request) (string, error) {
	if err := acceptableFrom(r, "application/json"); err != nil {
		return "", err
	}
	delivery := forge.Delivery{
		ID: r.Header.Get("X-GitHub-Delivery"), Event: r.Header.Get("X-GitHub-Event")}
	signature, err := signatureIn(r.Header.Values("X-Hub-Signature-256"))
	if err != nil {
		return "", err // before the body takes memory
	}
	body, leave, err := v.bodies.read(w, r)
	if err != nil {
		return "", err
	}
	defer leave()
	if err := v.verify(signature, body); err != nil {
		return "", err
	}
	if delivery.Validate() != nil {
		return nothing, nil
	}
	if delivery.Event == "ping" {
		return "pong", nil
	}
	asks, err := Parse(delivery.Event, body, v.Branch, v.Repository())
	if err != nil {
		return "", refuse(http.StatusBadRequest, err.Error())
	}
	if asks.Pushed || len(asks.Rechecks) > 0 {
		text, err := v.store(r.Context(), delivery, asks)
		if err != nil {
			return "", err
		}
		if _, err := v.move(r, delivery.Event, asks, body); err != nil {
			v.Log.Warn("a push to a repository of Applications was not stored; Argo CD polls",
				"delivery", delivery.ID, "error", err)
		}
		return text, nil
	}
	moved, err := v.move(r, delivery.Event, asks, body)
	switch {
	case err != nil:
		return "", err
	case moved:
		return accepted, nil
	}
	return nothing, nil
}

const accepted = "accepted"

// move passes on what moved in any repository: to the sets that list it, and to the Applications
// that deploy from it.
func (v *Receiver) move(r *http.Request, event string, asks Asks, body []byte) (moved bool,
	err error) {
	ctx, cancel := context.WithTimeout(r.Context(), storeTime)
	defer cancel()
	if asks.Moved != nil && v.Moved != nil {
		v.Moved(ctx, asks.Moved.Ref, asks.Moved.URLs)
	}
	if v.Sources == nil || event != pushEvent && !sources.IsPackage(event) {
		return asks.Moved != nil, nil
	}
	pushes, err := sources.Parse(r.Header, body)
	if err != nil {
		return false, refuse(http.StatusBadRequest, err.Error())
	}
	return asks.Moved != nil || len(pushes) > 0, acceptPushes(ctx, v.Sources, v.Log, "", pushes)
}

// signatureIn decodes the signature header.
func signatureIn(header []string) ([]byte, error) {
	given, ok := strings.CutPrefix(strings.Join(header, ","), "sha256=")
	signature, err := hex.DecodeString(given)
	if !ok || err != nil || len(signature) != sha256.Size {
		return nil,
			refuse(http.StatusUnauthorized,
				"X-Hub-Signature-256 is required: give the webhook a secret")
	}
	return signature, nil
}

// verify compares the signature with the HMAC of the raw body under each secret. See GitHub's
// "Validating webhook deliveries".
func (v *Receiver) verify(signature, body []byte) error {
	secrets, err := v.Secrets()
	if err != nil || len(secrets) == 0 {
		v.Log.Error("rejecting webhook deliveries: failed to read the webhook's secret", "error",
			err)
		return refuse(http.StatusServiceUnavailable, "the webhook's secret is unavailable")
	}
	if !anyKey(secrets, func(key []byte) bool { return signs(key, body, signature) }) {
		return refuse(http.StatusUnauthorized, "the signature fits none of the secrets")
	}
	return nil
}

// anyKey reports whether one of the secrets proves a delivery. It tries each of them.
func anyKey(secrets []fleet.Secret, proves func(key []byte) bool) bool {
	good := false
	for _, s := range secrets {
		key := s.Value(SecretKey)
		if len(key) == 0 {
			continue // anybody can sign with an empty secret
		}
		good = proves(key) || good
	}
	return good
}

// signs reports whether a signature is the HMAC of the body under the key.
func signs(key, body, signature []byte) bool {
	mac := hmac.New(sha256.New, key)
	mac.Write(body)
	return hmac.Equal(mac.Sum(nil), signature)
}

// store stores the delivery, then wakes this replica's loop. The other replicas' loops get the
// notice that the store sends in the same transaction.
func (v *Receiver) store(ctx context.Context, d forge.Delivery, asks Asks) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	d.Push = asks.Push
	if asks.Pushed {
		d.Notice = mirror.NoticePushed(v.Holder)
	}
	fresh, err := v.Inbox.Accept(ctx, d, asks.Rechecks)
	if err != nil {
		v.Log.Warn("failed to store a webhook delivery; the Git host may deliver it again",
			"delivery", d.ID, "event", d.Event, "error", err)
		return "", refuse(http.StatusServiceUnavailable, "not stored; deliver it again")
	}
	if asks.Pushed {
		v.Pushed() // for a redelivery too: the first may have been stored without its answer
	}
	if !fresh {
		return "accepted before", nil
	}
	return accepted, nil
}
