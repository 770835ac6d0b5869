package signin

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/access"
	"argosy.dev/argosy/fleet/view"
)

// anyNonce accepts an ID token of a refresh or of a device, which have no nonce of ours.
const anyNonce = "*"

// prove returns the person whom the provider's tokens prove.
func (p *Providers) prove(ctx context.Context, one *provider, f *found, token *oauth2.Token,
	nonce string) (view.Proven, error) {
	if one.Kind == GitHub {
		return one.proveByAPI(ctx, token)
	}
	raw, _ := token.Extra("id_token").(string)
	claims, err := one.verify(ctx, f.provider, raw, token.AccessToken, nonce, p.now())
	if err != nil {
		return view.Proven{}, err
	}
	if _, ok := claims[one.Groups]; !ok && one.Groups != "" && f.provider.UserInfoEndpoint() != "" {
		if err := one.addUserInfo(ctx, f.provider, token, claims); err != nil {
			return view.Proven{}, err
		}
	}
	person, err := one.person(claims)
	if err == nil && one.API != "" {
		person.Account, person.Teams, err = one.account(ctx, token.AccessToken)
	}
	return view.Proven{Person: person, Refresh: []byte(token.RefreshToken)}, err
}

// claims are those of an ID token, undecoded.
type claims map[string]json.RawMessage

func (c claims) text(name string) string {
	var s string
	if json.Unmarshal(c[name], &s) != nil {
		return ""
	}
	return s
}

// verify checks an ID token, and returns its claims.
func (p *provider) verify(ctx context.Context, issuer *oidc.Provider, raw, accessToken,
	nonce string, now time.Time) (claims, error) {
	if raw == "" {
		return nil, &view.SignInRefused{Why: "the identity provider sent no ID token",
			Next: "add openid to the scopes of the provider in the settings"}
	}
	verifier := issuer.Verifier(&oidc.Config{ClientID: p.ClientID,
		SupportedSigningAlgs: algorithms,
		Now:                  func() time.Time { return now.Add(-skew) }})
	token, err := verifier.Verify(p.within(ctx), raw)
	var late *oidc.TokenExpiredError
	switch {
	case errors.As(err, &late):
		return nil, &view.SignInRefused{Why: "the ID token expired at " +
			late.Expiry.UTC().Format(time.RFC3339),
			Next: "begin again; if it happens each time, compare the clocks of the provider and of " +
				"the control plane (`argosy doctor`)"}
	case err != nil && strings.Contains(err.Error(), "fetching keys"):
		return nil, fmt.Errorf("%s: %w: %w", p.Name, view.ErrProviderDown, err)
	case err != nil:
		return nil, &view.SignInRefused{Why: "the ID token is not valid: " + short(err.Error()),
			Next: "begin again on the sign-in page"}
	}
	var all claims
	if err := token.Claims(&all); err != nil {
		return nil, &view.SignInRefused{Why: "the ID token holds no claims",
			Next: "begin again on the sign-in page"}
	}
	return all, p.checkClaims(token, all, accessToken, nonce, now)
}

// checkClaims checks what go-oidc leaves to its caller.
func (p *provider) checkClaims(token *oidc.IDToken, all claims, accessToken, nonce string,
	now time.Time) error {
	azp := all.text("azp")
	why := ""
	switch {
	case token.Subject == "":
		why = "it names no person (sub)"
	case azp != "" && azp != p.ClientID, azp == "" && len(token.Audience) > 1:
		why = "it was issued for another client (azp)"
	case nonce != anyNonce && subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(nonce)) != 1:
		why = "it belongs to another sign-in (nonce)"
	case token.IssuedAt.After(now.Add(skew)):
		why = "it was issued in the future: the clocks of the provider and of the control plane " +
			"differ by more than a minute"
	case token.AccessTokenHash != "" && accessToken != "" &&
		token.VerifyAccessToken(accessToken) != nil:
		why = "it does not belong to the access token (at_hash)"
	}
	if why == "" {
		return nil
	}
	return &view.SignInRefused{Why: "the ID token is not valid: " + why,
		Next: "begin again on the sign-in page"}
}

// addUserInfo adds the claims of the userinfo endpoint that the ID token does not have.
func (p *provider) addUserInfo(ctx context.Context, issuer *oidc.Provider, token *oauth2.Token,
	all claims) error {
	info, err := issuer.UserInfo(p.within(ctx), oauth2.StaticTokenSource(token))
	if err != nil {
		return fmt.Errorf("%s: userinfo: %w: %w", p.Name, view.ErrProviderDown, err)
	}
	var more claims
	if info.Subject != all.text("sub") || info.Claims(&more) != nil {
		return &view.SignInRefused{Why: "the identity provider's userinfo is of another person",
			Next: "begin again on the sign-in page"}
	}
	for name, value := range more {
		if _, ok := all[name]; !ok {
			all[name] = value
		}
	}
	return nil
}

// person reads the claims.
func (p *provider) person(all claims) (access.Person, error) {
	person := access.Person{Issuer: p.Name, Subject: all.text("sub"), Name: all.text(p.Username)}
	if err := checkName(person.Name); err != nil {
		return person, &view.SignInRefused{
			Why: "the claim " + p.Username + " holds no usable username: " + err.Error(),
			Next: "the platform can choose another claim in the settings: signIn.issuers, " +
				"usernameClaim, such as email or sub"}
	}
	var err error
	if person.Groups, err = p.groups(all[p.Groups]); err != nil {
		return person, err
	}
	if p.Connector == "" {
		return person, nil
	}
	var by struct {
		Connector string `json:"connector_id"`
		User      string `json:"user_id"`
	}
	if json.Unmarshal(all["federated_claims"], &by) != nil || by.Connector != p.Connector {
		return person, nil // signed in by another connector of the same Dex
	}
	id, err := strconv.ParseInt(by.User, 10, 64)
	if _, invalid := fleet.ParseOwner("github:" + person.Name); err == nil && id > 0 &&
		invalid == nil && !strings.Contains(person.Name, "/") {
		person.Account = access.Account{Name: person.Name, ID: id}
	}
	return person, nil
}

// maxName is the longest username, in characters.
const maxName = 100

// checkName accepts usernames that cannot be mistaken for another one: no space, no invisible or
// bidirectional character, no letter that resembles an ASCII one.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("it is empty")
	case len(name) > maxName:
		return fmt.Errorf("it is longer than %d characters", maxName)
	}
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') &&
			!strings.ContainsRune("-_.@+|=", c) {
			return errors.New("letters, digits and - _ . @ + | = of ASCII are allowed")
		}
	}
	return nil
}

// groups reads the claim of groups: a list of texts, or one text. It omits groups that no entry of
// a file can name.
func (p *provider) groups(claim json.RawMessage) ([]string, error) {
	var list []string
	if len(claim) > 0 && json.Unmarshal(claim, &list) != nil {
		var one string
		if json.Unmarshal(claim, &one) != nil {
			return nil, &view.SignInRefused{
				Why:  "the claim " + p.Groups + " is no list of groups",
				Next: "the platform can choose another claim in the settings: groupsClaim"}
		}
		list = []string{one}
	}
	if len(list) > maxGroups {
		return nil, &view.SignInRefused{
			Why: fmt.Sprintf("the identity provider names %d groups, and %d are allowed", len(list),
				maxGroups),
			Next: "the platform can limit the claim at the provider to groups of Argosy"}
	}
	kept := []string{}
	for _, g := range list {
		if slices.ContainsFunc(p.Reserved, func(r string) bool { return strings.HasPrefix(g, r) }) {
			continue
		}
		if o, err := fleet.ParseOwner("group:" + p.GroupPrefix + g); err == nil && g != "" {
			kept = append(kept, o.Group)
		}
	}
	slices.Sort(kept)
	return slices.Compact(kept), nil
}
