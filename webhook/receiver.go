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
	"slices"
	"strings"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/peer"
)

const (
	maxBody     = 25 << 20         // bytes; GitHub sends no larger body
	smallBody   = 1 << 20          // bytes; up to smallBodies of them are read in parallel
	bodyTime    = 20 * time.Second // to read the largest body
	minBodyTime = 3 * time.Second  // to read an empty body; each byte adds to it
	bodyRate    = 1 << 20          // bytes per second that a sender must reach
	storeTime   = 8 * time.Second  // GitHub closes the connection after 10 s
	smallBodies = 64
	largeBodies = 2
	// before another body from the same address may take the place of one being read
	admissionTime = time.Second
)

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
	Moved   func(ctx context.Context, ref string, urls []string)
	Proxies []netip.Prefix // whose X-Forwarded-For names the sender's address
	Log     *slog.Logger
}

// Receiver answers POST /webhook/github. It verifies the signature before it parses anything, and
// stores no more of a delivery than the request for a reconcile or a review job. It answers 2xx
// only after the commit; 503 if the delivery could not be stored, so that the Git host shows it as
// failed and can deliver it again.
type Receiver struct {
	ReceiverConfig
	small, large admission // bound the memory that unauthenticated senders can use
}

// NewReceiver returns a Receiver.
func NewReceiver(c ReceiverConfig) *Receiver {
	return &Receiver{ReceiverConfig: c, small: admission{size: smallBodies}, large: admission{
		size: largeBodies}}
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
		w.Header().Set("Connection", "close") // the rest of the body is not read
		w.WriteHeader(no.status)
	}
	_, _ = io.WriteString(w, text+"\n") // the Git host shows it next to the delivery
}

// nothing answers a signed delivery that requests nothing: Git hosts send events unknown to this
// version.
const nothing = "nothing to review"

func (v *Receiver) receive(w http.ResponseWriter, r *http.Request) (string, error) {
	if err := acceptable(r); err != nil {
		return "", err
	}
	delivery := forge.Delivery{
		ID: r.Header.Get("X-GitHub-Delivery"), Event: r.Header.Get("X-GitHub-Event")}
	signature, err := signatureIn(r.Header.Values("X-Hub-Signature-256"))
	if err != nil {
		return "", err // before the body takes memory
	}
	body, leave, err := v.read(w, r)
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
	if asks.Moved != nil && v.Moved != nil {
		ctx, cancel := context.WithTimeout(r.Context(), storeTime)
		defer cancel()
		v.Moved(ctx, asks.Moved.Ref, asks.Moved.URLs)
	}
	switch {
	case asks.Pushed || len(asks.Rechecks) > 0:
	case asks.Moved != nil:
		return "accepted", nil
	default:
		return nothing, nil
	}
	return v.store(r.Context(), delivery, asks)
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
	case r.ContentLength > maxBody:
		return refuse(http.StatusRequestEntityTooLarge, "a delivery has at most 25 MiB")
	}
	return nil
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

// read reads the body into memory: small bodies in parallel, large ones a few at a time. leave
// frees their slots.
func (v *Receiver) read(w http.ResponseWriter, r *http.Request) (body []byte, leave func(),
	err error) {
	control := http.NewResponseController(w)
	// This deadline ends a body that trickles in. A ResponseWriter without one keeps the server's
	// deadline of the connection.
	_ = control.SetReadDeadline(time.Now().Add(timeFor(r.ContentLength)))
	cut := func() { _ = control.SetReadDeadline(time.Unix(1, 0)) }
	address, full := peer.Address(r, v.Proxies),
		refuse(http.StatusServiceUnavailable, "too many deliveries at once")
	small, ok := v.small.enter(address, time.Now(), cut)
	if !ok {
		return nil, nil, full
	}
	leave, complete := small.leave, small.complete
	body, err = io.ReadAll(io.LimitReader(r.Body, smallBody+1))
	if err == nil && len(body) > smallBody {
		more, ok := v.large.enter(address, time.Now(), cut)
		if !ok {
			small.leave()
			return nil, nil, full
		}
		leave = func() { more.leave(); small.leave() }
		complete = func() bool { return more.complete() && small.complete() }
		var rest []byte
		rest, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody-int64(len(body))))
		body = append(body, rest...)
	}
	if !complete() {
		leave()
		return nil, nil, full // another body took its place
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

// timeFor returns the time allowed for a body of size bytes; a negative size is unknown.
func timeFor(size int64) time.Duration {
	if size < 0 {
		return bodyTime
	}
	return min(minBodyTime+time.Duration(size)*time.Second/bodyRate, bodyTime)
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
	good := false
	for _, s := range secrets {
		key := s.Value(SecretKey)
		if len(key) == 0 {
			continue // anybody can sign with an empty secret
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
	return "accepted", nil
}

// admission is a semaphore for bodies in memory. Its slots are taken before a signature proves the
// sender. If all are taken, it cancels the oldest body still being read from the address with the
// most slots: a Git host's body arrives within milliseconds, a slow sender's does not.
type admission struct {
	size int

	mu    sync.Mutex
	taken []*slot // oldest first
}

// slot is the place of one body.
type slot struct {
	of      *admission
	address string
	since   time.Time
	cancel  func() // ends the read; nil once the body is complete
}

// enter takes a slot; false if none is free. cancel ends the read of the body: it is called at most
// once, and never after complete or leave.
func (a *admission) enter(address string, now time.Time, cancel func()) (*slot, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.taken) >= a.size && !a.evict(address, now) {
		return nil, false
	}
	s := &slot{of: a, address: address, since: now, cancel: cancel}
	a.taken = append(a.taken, s)
	return s, true
}

// evict cancels the read of one body. An address with more slots than the newcomer's loses one at
// once; among addresses with as many slots, such as those behind one proxy, a body has
// admissionTime.
func (a *admission) evict(address string, now time.Time) bool {
	of := map[string]int{}
	for _, s := range a.taken {
		of[s.address]++
	}
	var victim *slot
	for _, s := range a.taken {
		if s.cancel != nil && (of[s.address] > of[address] || now.Sub(s.since) >= admissionTime) &&
			(victim == nil || of[s.address] > of[victim.address]) {
			victim = s
		}
	}
	if victim == nil {
		return false
	}
	cancel := victim.cancel
	a.drop(victim)
	cancel()
	return true
}

// complete ends the chance of being evicted; false if the slot was evicted before.
func (s *slot) complete() bool {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.cancel = nil
	return slices.Contains(s.of.taken, s)
}

func (s *slot) leave() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.drop(s)
}

func (a *admission) drop(gone *slot) {
	gone.cancel = nil
	a.taken = slices.DeleteFunc(a.taken, func(s *slot) bool { return s == gone })
}
