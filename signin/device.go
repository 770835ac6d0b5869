package signin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"argosy.dev/argosy/fleet/view"
)

const (
	deviceGrant   = "urn:ietf:params:oauth:grant-type:device_code"
	leastInterval = 1 // seconds between polls
	mostInterval  = 60
)

// BeginDevice begins a sign-in without a browser of ours (RFC 8628).
func (p *Providers) BeginDevice(ctx context.Context, name string) (view.DeviceCode, error) {
	one, c, _, err := p.device(ctx, name)
	if err != nil {
		return view.DeviceCode{}, err
	}
	var options []oauth2.AuthCodeOption
	if c.ClientSecret != "" {
		options = append(options, oauth2.SetAuthURLParam("client_secret", c.ClientSecret))
	}
	made, err := c.DeviceAuth(one.within(ctx), options...)
	if err != nil {
		return view.DeviceCode{}, one.refused(err)
	}
	code := view.DeviceCode{Code: made.DeviceCode, UserCode: short(made.UserCode),
		URL: webAddress(made.VerificationURI), Complete: webAddress(made.VerificationURIComplete),
		ExpiresAt: made.Expiry.UTC(),
		Interval:  min(max(int(made.Interval), leastInterval), mostInterval)}
	if made.Interval == 0 {
		code.Interval = 5 // RFC 8628, 3.2
	}
	if code.URL == "" || code.Code == "" {
		return code, fmt.Errorf("%s: %w: it names no address to confirm the code at", name,
			view.ErrProviderDown)
	}
	return code, nil
}

// webAddress returns an address that a browser may be started with, or "".
func webAddress(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil ||
		len(text) > 2000 {
		return ""
	}
	return u.String()
}

func (p *Providers) device(ctx context.Context, name string) (*provider, *oauth2.Config, *found,
	error) {
	one, err := p.named(name)
	if err != nil {
		return nil, nil, nil, err
	}
	f, err := one.discover(ctx, p.now())
	if err != nil {
		return nil, nil, nil, err
	}
	if f.endpoint.DeviceAuthURL == "" {
		return nil, nil, nil, &view.SignInRefused{
			Why: one.Title + " offers no sign-in for command lines (device flow)",
			Next: "sign in with another provider (--issuer), or ask the platform for a token and " +
				"use --token-stdin"}
	}
	c, err := one.oauth(f, "")
	return one, c, f, err
}

// FinishDevice asks once whether the person has confirmed the code: view.ErrPending or
// view.ErrSlowDown if not yet.
func (p *Providers) FinishDevice(ctx context.Context, name, code string) (view.Proven, error) {
	one, c, f, err := p.device(ctx, name)
	if err != nil {
		return view.Proven{}, err
	}
	form := url.Values{"grant_type": {deviceGrant}, "device_code": {code},
		"client_id": {c.ClientID}}
	if c.ClientSecret != "" {
		form.Set("client_secret", c.ClientSecret)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Endpoint.TokenURL,
		strings.NewReader(form.Encode()))
	if err != nil {
		return view.Proven{}, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	answer, err := one.client.Do(req)
	if err != nil {
		return view.Proven{}, fmt.Errorf("%s: %w: %w", name, view.ErrProviderDown, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return view.Proven{}, fmt.Errorf("%s: %w: %w", name, view.ErrProviderDown, err)
	}
	token, err := deviceToken(text, p.now())
	if err != nil {
		return view.Proven{}, fmt.Errorf("%s: %w", name, err)
	}
	return p.prove(ctx, one, f, token, anyNonce)
}

// deviceToken reads the answer to a poll.
func deviceToken(text []byte, now time.Time) (*oauth2.Token, error) {
	var a struct {
		Access  string `json:"access_token"`
		Refresh string `json:"refresh_token"`
		ID      string `json:"id_token"`
		Error   string `json:"error"`
	}
	if json.Unmarshal(text, &a) != nil {
		return nil, fmt.Errorf("%w: its answer is no JSON", view.ErrProviderDown)
	}
	switch {
	case a.Error == "authorization_pending":
		return nil, view.ErrPending
	case a.Error == "slow_down":
		return nil, view.ErrSlowDown
	case a.Error != "" || a.Access == "":
		return nil, &view.SignInRefused{
			Why: "the identity provider refused this sign-in: " +
				short(first(a.Error, "no token")),
			Next: "run `argosy login` again, and confirm the code before it expires"}
	}
	token := &oauth2.Token{AccessToken: a.Access, RefreshToken: a.Refresh,
		Expiry: now.Add(time.Hour)}
	return token.WithExtra(map[string]any{"id_token": a.ID}), nil
}
