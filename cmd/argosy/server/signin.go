package server

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"argosy.dev/argosy/api"
	"argosy.dev/argosy/cmd/argosy/settings"
	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/reconciler/gitrepo"
	"argosy.dev/argosy/signin"
)

// openSignIn returns the providers of the settings; nil without any.
func openSignIn(s settings.Settings) (*signin.Providers, error) {
	if s.SignIn == nil {
		return nil, nil
	}
	var configs []signin.Config
	for n, i := range s.SignIn.Issuers {
		c := signin.Config{Kind: signin.Kind(i.Type), Name: i.Name, Title: i.Title, URL: i.URL,
			ClientID: i.ClientID, Scopes: i.Scopes, Username: i.UsernameClaim,
			Groups: i.GroupsClaim, GroupPrefix: i.GroupPrefix, API: i.API(s.Forge),
			Connector: i.Connector}
		if i.SecretFile != "" {
			c.Secret = func() (string, error) {
				content, err := os.ReadFile(i.SecretFile)
				return trim(content), err
			}
		}
		if c.GroupPrefix == "" {
			for _, other := range s.SignIn.Issuers {
				if other.GroupPrefix != "" {
					c.Reserved = append(c.Reserved, other.GroupPrefix)
				}
			}
		}
		if i.CAFile != "" {
			var roots *x509.CertPool
			roots, err := rootsIn(fmt.Sprintf("signIn.issuers[%d].caFile", n), i.CAFile)
			if err != nil {
				return nil, err
			}
			c.Roots = roots
		}
		configs = append(configs, c)
	}
	return signin.New(configs), nil
}

// signsIn adds sign-in to the API's configuration.
func (v *Server) signsIn(c *api.Config) error {
	providers, err := openSignIn(v.settings)
	if err != nil || providers == nil {
		return err
	}
	s := v.settings.SignIn
	c.SignIn = providers
	c.Limits = api.SessionLimits{Idle: time.Duration(s.Idle), Absolute: time.Duration(s.Absolute),
		Refresh: time.Duration(s.Refresh)}
	return nil
}

// usesEvery is how often the last uses of tokens and sessions are stored.
const usesEvery = 30 * time.Second

// keepUses stores when tokens and sessions were used last.
func (v *Server) keepUses(ctx context.Context) {
	tick := time.NewTicker(usesEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), usesEvery/3)
		if err := v.store.FlushUses(last); err != nil {
			v.log.Warn("failed to store when tokens and sessions were used", "error", err)
		}
		cancel()
	}
}

// examineIssuers asks each identity provider what a sign-in needs.
func examineIssuers(ctx context.Context, s settings.Settings) []Check {
	providers, err := openSignIn(s)
	if err != nil {
		return []Check{{Subject: "sign-in", Err: err}}
	}
	if providers == nil {
		return nil
	}
	var checks []Check
	for _, f := range providers.Check(ctx, func(name string) string {
		return api.RedirectURL(s.Listen.Public, name)
	}) {
		c := Check{Subject: "issuer " + f.Provider, Detail: f.OK, Warning: true}
		if f.Problem != "" {
			c.Err = fmt.Errorf("%s; %s", f.Problem, f.Fix)
		}
		checks = append(checks, c)
	}
	return checks
}

// lineOf returns the line of a field in a file of the config repo; 0 if the file is not there.
func (v *Server) lineOf(ctx context.Context, blob, field string) int {
	text, err := v.mirror.Blob(ctx, gitrepo.Hash(blob))
	if err != nil {
		return 0
	}
	line, _ := configschema.Locate(text, field)
	return line
}
