package signin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"golang.org/x/oauth2"
)

// Finding is what `argosy doctor` reports of one provider.
type Finding struct {
	Provider string
	OK       string // what works
	Problem  string // "": none
	Fix      string
}

// Check asks each provider what a sign-in needs: its discovery, its clock, and whether it knows the
// redirect URL. redirect returns that of a provider.
func (p *Providers) Check(ctx context.Context, redirect func(name string) string) []Finding {
	var found []Finding
	for _, one := range p.all {
		f := Finding{Provider: one.Name}
		f.OK, f.Problem, f.Fix = p.check(ctx, one, redirect(one.Name))
		found = append(found, f)
	}
	return found
}

func (p *Providers) check(ctx context.Context, one *provider, redirect string) (ok, problem,
	fix string) {
	f, err := one.discover(ctx, p.now())
	if err != nil {
		return "", err.Error(), "the issuer's URL must serve " + one.URL +
			"/.well-known/openid-configuration, and name itself exactly so as issuer"
	}
	c, err := one.oauth(f, redirect)
	if err != nil {
		return "", err.Error(), "correct clientSecretFile of the provider"
	}
	if f.provider != nil {
		var published struct {
			Algorithms []string `json:"id_token_signing_alg_values_supported"`
		}
		if f.provider.Claims(&published) == nil && len(published.Algorithms) > 0 &&
			!slices.ContainsFunc(published.Algorithms, func(a string) bool {
				return slices.Contains(algorithms, a)
			}) {
			return "", fmt.Sprintf("it signs ID tokens with %q only", published.Algorithms),
				"choose a signature with a public key, such as RS256 or ES256, at the provider"
		}
	}
	return p.checkRedirect(ctx, one, c, f)
}

// checkRedirect begins a sign-in, without a person, to see whether the provider accepts it.
func (p *Providers) checkRedirect(ctx context.Context, one *provider, c *oauth2.Config,
	f *found) (ok, problem, fix string) {
	begun := p.now()
	answer, err := one.follow(ctx, c.AuthCodeURL("doctor",
		oauth2.S256ChallengeOption(oauth2.GenerateVerifier())))
	if err != nil {
		return "", "its sign-in page does not answer: " + err.Error(),
			"the control plane has to reach the provider"
	}
	defer answer.Body.Close()
	if at, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		if off := at.Sub(begun).Abs(); off > skew+time.Second {
			return "", fmt.Sprintf("its clock differs from ours by %s", off.Round(time.Second)),
				"synchronize both clocks: ID tokens are valid within a minute"
		}
	}
	if answer.StatusCode >= http.StatusBadRequest {
		return "", fmt.Sprintf("it answers %s to a sign-in with the redirect URL %s",
				answer.Status, c.RedirectURL), "register exactly this redirect URL for the client " +
				one.ClientID + ", and allow the scopes of the settings"
	}
	ok = "redirect URL " + c.RedirectURL
	if f.endpoint.DeviceAuthURL == "" {
		ok += "; it has no device flow, so that `argosy login` needs another provider or a token"
	}
	return ok, "", ""
}

// follow requests a page of the provider, through its redirects to itself: some providers name a
// mistake on the second page only.
func (p *provider) follow(ctx context.Context, at string) (*http.Response, error) {
	const most = 5
	for hop := 0; ; hop++ {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
		if err != nil {
			return nil, err
		}
		answer, err := p.client.Do(req)
		if err != nil {
			return nil, err
		}
		next, err := answer.Location()
		if err != nil || hop == most || next.Host != req.URL.Host {
			return answer, nil
		}
		if err := answer.Body.Close(); err != nil {
			return nil, err
		}
		at = next.String()
	}
}
