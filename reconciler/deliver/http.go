package deliver

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/notify"
)

const (
	maxAnswer     = 4 << 10 // bytes that are read of an answer
	shownAnswer   = 200     // characters that are kept of it
	shownEvents   = 20      // in a message for people
	webhookEvents = 100     // in a message for programs
	mostPause     = time.Hour
)

// hook posts to an incoming webhook whose URL is secret.
func (s *Sender) hook(ctx context.Context, r notify.Delivery, payload any) (string, error) {
	raw := strings.TrimSpace(string(r.Secret.Value("url")))
	if raw == "" {
		return "", fmt.Errorf("the secret %s has no key url", r.Channel.Secret().Name)
	}
	body, err := json.Marshal(payload)
	if err != nil {
		return "", err
	}
	return s.post(ctx, r, raw, body, http.Header{"Content-Type": {"application/json"}}, raw)
}

// webhook posts a CloudEvent with the headers of Standard Webhooks.
func (s *Sender) webhook(ctx context.Context, r notify.Delivery) (string, error) {
	key, err := signingKey(r.Secret.Value("signingKey"))
	if err != nil {
		return "", fmt.Errorf("the secret %s: %w", r.Channel.Secret().Name, err)
	}
	body, err := json.Marshal(cloudEvent(r))
	if err != nil {
		return "", err
	}
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	h := http.Header{
		"Content-Type":      {"application/cloudevents+json; charset=UTF-8"},
		"Webhook-Id":        {r.MessageID},
		"Webhook-Timestamp": {stamp},
		"Webhook-Signature": {"v1," + Sign(key, r.MessageID, stamp, body)},
	}
	token := strings.TrimSpace(string(r.Secret.Value("bearerToken")))
	if token != "" {
		h.Set("Authorization", "Bearer "+token)
	}
	return s.post(ctx, r, r.Channel.Webhook.URL, body, h, token, string(key))
}

// Sign returns the signature of Standard Webhooks: HMAC-SHA256 of "id.timestamp.body" in base64.
func Sign(key []byte, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// signingKey reads a key as Standard Webhooks write it, whsec_ and base64, or its bytes.
func signingKey(raw []byte) ([]byte, error) {
	text := strings.TrimSpace(string(raw))
	encoded, prefixed := strings.CutPrefix(text, "whsec_")
	key := []byte(text)
	if prefixed {
		var err error
		if key, err = base64.StdEncoding.DecodeString(encoded); err != nil {
			return nil, fmt.Errorf("signingKey begins with whsec_ and is not base64 after it")
		}
	}
	if len(key) < 24 {
		return nil, fmt.Errorf("signingKey has %d bytes; at least 24 are required: "+
			"openssl rand -base64 32", len(key))
	}
	return key, nil
}

func (s *Sender) post(ctx context.Context, r notify.Delivery, raw string, body []byte,
	h http.Header, secrets ...string) (string, error) {
	authority, err := receiver(r, raw)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, raw, bytes.NewReader(body))
	if err != nil {
		return "", &notify.Refused{Why: "the receiver's URL cannot be requested"}
	}
	req.Header = h
	req.Header.Set("User-Agent", "argosy")
	resp, err := s.client(r, authority).Do(req)
	if err != nil {
		return "", withoutURL(authority, err)
	}
	defer resp.Body.Close()
	begin, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil && resp.StatusCode/100 == 2 {
		begin = nil // the receiver has accepted the message
	}
	answer := fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	if text := oneLine(without(string(begin), secrets...), shownAnswer); text != "" {
		answer += ": " + text
	}
	return answer, verdict(resp, authority, answer)
}

// verdict is what an answer means.
func verdict(resp *http.Response, authority, answer string) error {
	code := resp.StatusCode
	switch {
	case code/100 == 2:
		return nil
	case code/100 == 3:
		return &notify.Refused{Why: fmt.Sprintf(
			"%s answers with a redirect (%d), which is not followed: write "+
				"the URL that it leads to", authority, code)}
	case code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable:
		if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
			return &notify.Busy{Why: authority + " answers " + answer,
				After: min(time.Duration(min(n, 1<<20))*time.Second, mostPause)}
		}
	case code == http.StatusBadRequest || code == http.StatusUnauthorized ||
		code == http.StatusForbidden || code == http.StatusNotFound || code == http.StatusGone ||
		code == http.StatusMethodNotAllowed || code == http.StatusRequestEntityTooLarge:
		return &notify.Refused{Why: authority + " answers " + answer}
	}
	return fmt.Errorf("%s answers %s", authority, answer)
}

// event is a CloudEvent 1.0 in the structured mode of JSON.
type event struct {
	SpecVersion     string    `json:"specversion"`
	ID              string    `json:"id"`
	Source          string    `json:"source"`
	Type            string    `json:"type"`
	Time            time.Time `json:"time"`
	Subject         string    `json:"subject,omitempty"`
	DataContentType string    `json:"datacontenttype"`
	Data            eventData `json:"data"`
}

type eventData struct {
	Title  string      `json:"title"`
	Events []eventItem `json:"events"`
	More   int         `json:"more,omitempty"` // further events that are not listed
}

type eventItem struct {
	ID           string    `json:"id"`
	Trigger      string    `json:"trigger"`
	Over         bool      `json:"over,omitempty"`
	Title        string    `json:"title"`
	Tenant       string    `json:"tenant,omitempty"`
	Deployment   string    `json:"deployment,omitempty"`
	Environment  string    `json:"environment,omitempty"`
	Engine       string    `json:"engine,omitempty"`
	Applications int       `json:"applications,omitempty"`
	Message      string    `json:"message,omitempty"`
	Since        time.Time `json:"since"`
	At           time.Time `json:"at"`
	Commit       string    `json:"commit,omitempty"`
	Revision     string    `json:"revision,omitempty"`
	Link         string    `json:"link,omitempty"`
	Next         string    `json:"next,omitempty"`
}

// EventType is the type of the CloudEvents.
const EventType = "dev.argosy.notification.v1"

func cloudEvent(r notify.Delivery) event {
	e := event{SpecVersion: "1.0", ID: r.MessageID, Source: source(r), Type: EventType,
		Time: r.At.UTC(), DataContentType: "application/json",
		Data: eventData{Title: notify.Subject(r.Events), More: r.More}}
	for i, n := range r.Events {
		if i == webhookEvents {
			e.Data.More += len(r.Events) - i
			break
		}
		text := notify.Describe(n, r.Public)
		e.Data.Events = append(e.Data.Events, eventItem{ID: n.ID, Trigger: string(n.Trigger),
			Over: n.Over, Title: text.Title, Tenant: string(n.About),
			Deployment: string(n.Deployment), Environment: string(n.Environment),
			Engine: string(n.Engine), Applications: n.Applications,
			Message: notify.Sanitize(n.Message, 2000), Since: n.Since.UTC(), At: n.At.UTC(),
			Commit: notify.Sanitize(n.Commit, 64), Revision: string(n.Revision), Link: text.Link,
			Next: text.Next})
	}
	if len(r.Events) == 1 {
		e.Subject = subject(r.Events[0])
	}
	return e
}

// source identifies the installation: the address of its page.
func source(r notify.Delivery) string {
	if r.Public != "" {
		return r.Public
	}
	return "/argosy"
}

func subject(n mirror.Notification) string {
	switch {
	case n.Deployment != "" && n.Environment != "":
		return fmt.Sprintf("%s/%s@%s", n.About, n.Deployment, n.Environment)
	case n.Environment != "":
		return fmt.Sprintf("%s/%s", n.About, n.Environment)
	case n.Deployment != "":
		return fmt.Sprintf("%s/%s", n.About, n.Deployment)
	}
	return string(n.Engine)
}

func oneLine(s string, n int) string { return strings.TrimSpace(notify.Sanitize(s, n)) }
