package webhook

import (
	"context"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/netip"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/webhook/sources"
)

// ErrNoSecret means that a sender has no secret to sign deliveries with, or does not exist.
var ErrNoSecret = errors.New("no secret")

// SourceConfig configures a SourceReceiver.
type SourceConfig struct {
	// Secrets returns the secrets of a tenant, or with "" of the platform, of which one signs a
	// delivery; ErrNoSecret if there are none.
	Secrets func(ctx context.Context, tenant fleet.TenantName) ([]fleet.Secret, error)
	// Accept stores a push before the delivery is answered.
	Accept  func(context.Context, mirror.SourcePush) error
	Proxies []netip.Prefix // whose X-Forwarded-For names the sender's address
	Log     *slog.Logger
}

// SourceReceiver answers deliveries of pushes to the repositories of Applications: of Git hosts and
// registries, signed with a secret of the platform, or of one tenant, whose Applications alone it
// then concerns. It answers 2xx only after the push was stored; 503 and 429 ask for another
// delivery.
type SourceReceiver struct {
	SourceConfig
	bodies  *bodies
	parsing chan struct{} // one delivery at a time: JSON may take many times its size in memory
}

// maxTenantBody limits a tenant's delivery, in bytes.
const maxTenantBody = 4 << 20

// NewSourceReceiver returns a SourceReceiver.
func NewSourceReceiver(c SourceConfig) *SourceReceiver {
	return &SourceReceiver{SourceConfig: c, bodies: newBodies(c.Proxies),
		parsing: make(chan struct{}, 1)}
}

// ServeHTTP handles one delivery; the tenant is the last segment of the path after "push".
func (v *SourceReceiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answerDelivery(w, func() (string, error) { return v.receive(w, r) })
}

func (v *SourceReceiver) receive(w http.ResponseWriter, r *http.Request) (string, error) {
	if err := acceptableFrom(r, "application/json",
		"application/vnd.docker.distribution.events.v1+json",
		"application/vnd.docker.distribution.events.v2+json"); err != nil {
		return "", err
	}
	if !signed(r.Header) {
		return "", refuse(http.StatusUnauthorized,
			"the delivery is not signed: give the webhook a secret")
	}
	body, leave, err := v.bodies.read(w, r)
	if err != nil {
		return "", err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(r.Context(), storeTime)
	defer cancel()
	tenant := fleet.TenantName(r.PathValue("tenant"))
	if err := v.verify(ctx, tenant, r.Header, body); err != nil {
		return "", err
	}
	if tenant != "" && len(body) > maxTenantBody {
		return "", refuse(http.StatusRequestEntityTooLarge, "a tenant's delivery has at most 4 MiB")
	}
	pushes, err := v.parse(ctx, r.Header, body)
	if err != nil {
		return "", err
	}
	if len(pushes) == 0 {
		return "no push of a branch, tag or image", nil
	}
	return accepted, acceptPushes(ctx, v.Accept, v.Log, tenant, pushes)
}

func (v *SourceReceiver) parse(ctx context.Context, h http.Header, body []byte) (
	[]mirror.SourcePush, error) {
	select {
	case v.parsing <- struct{}{}:
	case <-ctx.Done():
		return nil, refuse(http.StatusServiceUnavailable, "too many deliveries at once")
	}
	defer func() { <-v.parsing }()
	pushes, err := sources.Parse(h, body)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, err.Error())
	}
	return pushes, nil
}

// acceptPushes stores the pushes of one delivery.
func acceptPushes(ctx context.Context, accept func(context.Context, mirror.SourcePush) error,
	log *slog.Logger, tenant fleet.TenantName, pushes []mirror.SourcePush) error {
	for _, p := range pushes {
		p.Tenant = tenant
		switch err := accept(ctx, p); {
		case errors.Is(err, mirror.ErrTooManyPushes):
			return refuse(http.StatusTooManyRequests, "too many pushes wait; deliver it again")
		case err != nil:
			log.Warn("failed to store a push; the sender may deliver it again", "repositories",
				p.Repositories, "tenant", tenant, "error", err)
			return refuse(http.StatusServiceUnavailable, "not stored; deliver it again")
		}
	}
	return nil
}

const (
	headerSignature = "X-Hub-Signature-256" // GitHub, Gitea
	headerBitbucket = "X-Hub-Signature"     // with sha256=, unlike GitHub's of that name
	headerGitLab    = "X-Gitlab-Token"
	bearer          = "Bearer "
)

// signed reports whether a delivery has what proves its sender, before its body takes memory.
func signed(h http.Header) bool {
	for _, name := range []string{headerSignature, headerBitbucket, headerGitLab, "Authorization"} {
		if h.Get(name) != "" {
			return true
		}
	}
	return false
}

// verify expects an HMAC of the body, or the secret itself from senders that cannot sign.
func (v *SourceReceiver) verify(ctx context.Context, tenant fleet.TenantName, h http.Header,
	body []byte) error {
	secrets, err := v.Secrets(ctx, tenant)
	switch {
	case errors.Is(err, ErrNoSecret):
		// answered as a wrong one is: the answer does not show which tenants exist
	case err != nil:
		v.Log.Warn("failed to read the secret of a webhook", "tenant", tenant, "error", err)
		return refuse(http.StatusServiceUnavailable, "the webhook's secret is unavailable")
	}
	if !anyKey(secrets, func(key []byte) bool { return proves(h, body, key) }) {
		return refuse(http.StatusUnauthorized, "the signature or token fits none of the secrets")
	}
	return nil
}

func proves(h http.Header, body, key []byte) bool {
	for _, name := range []string{headerSignature, headerBitbucket} {
		if given, ok := strings.CutPrefix(h.Get(name), "sha256="); ok {
			signature, err := hex.DecodeString(given)
			return err == nil && signs(key, body, signature)
		}
	}
	token := h.Get(headerGitLab)
	if token == "" {
		token = strings.TrimPrefix(h.Get("Authorization"), bearer)
	}
	return token != "" && subtle.ConstantTimeCompare([]byte(token), key) == 1
}

// acceptableFrom refuses what no Git host or registry sends.
func acceptableFrom(r *http.Request, types ...string) error {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	wrong := true
	for _, t := range types {
		wrong = wrong && (err != nil || media != t)
	}
	switch {
	case r.Method != http.MethodPost:
		return refuse(http.StatusMethodNotAllowed, "deliveries are sent by POST")
	case wrong:
		return refuse(http.StatusUnsupportedMediaType,
			"set the webhook's content type to application/json")
	case r.Header.Get("Content-Encoding") != "":
		return refuse(http.StatusUnsupportedMediaType, "a delivery is not compressed")
	case r.ContentLength > maxBody:
		return refuse(http.StatusRequestEntityTooLarge, "a delivery has at most 25 MiB")
	}
	return nil
}

// answerDelivery writes the answer of a delivery, which the sender shows beside it.
func answerDelivery(w http.ResponseWriter, receive func() (string, error)) {
	text, err := receive()
	var no *refusal
	switch {
	case err == nil:
		w.WriteHeader(http.StatusAccepted)
	case errors.As(err, &no):
		text = no.text
		if no.status == http.StatusServiceUnavailable || no.status == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "10")
		}
		w.Header().Set("Connection", "close") // the rest of the body is not read
		w.WriteHeader(no.status)
	}
	_, _ = io.WriteString(w, text+"\n")
}
