package client

import (
	"context"
	"net/http"
	"net/url"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/view"
)

// ChooseTenant chooses the tenant of requests that change something, for a person who has roles in
// several. A list names its tenant by the filter, an object by its own name.
func (c *Client) ChooseTenant(tenant string) { c.connection.tenant = tenant }

// Providers lists the identity providers that people sign in with. It takes no token.
func (l lists) Providers(ctx context.Context) ([]view.Provider, error) {
	page, err := one[wire.List[view.Provider]](ctx, l.conn, "sign-in")
	return page.Items, err
}

// BeginSignIn begins the sign-in of a command line. It takes no token.
func (d decisions) BeginSignIn(ctx context.Context, provider string) (code view.DeviceCode,
	err error) {
	err = d.conn.do(ctx, http.MethodPost, path("sign-in", "device"), nil,
		wire.SignInRequest{Provider: provider}, &code)
	return code, err
}

// FinishSignIn asks once whether the code is confirmed; without a session it is not yet.
func (d decisions) FinishSignIn(ctx context.Context, provider, code string) (out wire.SignedIn,
	err error) {
	err = d.conn.do(ctx, http.MethodPost, path("sign-in", "device", "session"), nil,
		wire.SignInPoll{Provider: provider, Code: code}, &out)
	return out, err
}

// Sessions lists the caller's own sessions, or everybody's.
func (l lists) Sessions(ctx context.Context, everybody bool) ([]view.Session, error) {
	items, q := []view.Session{}, url.Values{}
	if everybody {
		q.Set("all", "true")
	}
	for {
		var page wire.List[view.Session]
		if err := l.conn.do(ctx, http.MethodGet, path("sessions"), q, nil, &page); err != nil {
			return nil, err
		}
		items = append(items, page.Items...)
		if page.Next == "" {
			return items, nil
		}
		q.Set("after", page.Next)
	}
}

// RevokeSession ends a session at once.
func (d decisions) RevokeSession(ctx context.Context, id string) error {
	return d.conn.do(ctx, http.MethodDelete, path("sessions", id), nil, nil, nil)
}

// Can asks whether a person may do something; person "" is the caller.
func (l lists) Can(ctx context.Context, person, verb, thing string) (a wire.Answer, err error) {
	q := url.Values{"verb": {verb}, "thing": {thing}}
	if person != "" {
		q.Set("person", person)
	}
	err = l.conn.do(ctx, http.MethodGet, path("can"), q, nil, &a)
	return a, err
}
