// Package deliver sends messages to Slack, Teams, webhooks and e-mail addresses. It is the only
// importer of go-mail.
//
// Rules of this package:
//   - a receiver is a host that the platform allows, at an address that is public unless the
//     platform allows a private one. The address is checked when the connection is made, so that
//     no answer of a name server leads elsewhere, and no redirect is followed;
//   - one delivery takes at most Timeout, and reads at most 4 KiB of an answer;
//   - no error and no answer contains a credential, nor the URL of a Slack or Teams webhook.
package deliver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/reconciler/notify"
)

// Timeout limits one delivery.
const Timeout = 15 * time.Second

// Sender sends messages. The zero Sender trusts the certificate authorities of the system.
type Sender struct {
	Roots    *x509.CertPool
	Resolver *net.Resolver
	Timeout  time.Duration // of one delivery; default Timeout
}

// Send delivers a message and returns the receiver's answer in one short line.
func (s *Sender) Send(ctx context.Context, r notify.Delivery) (answer string, err error) {
	limit := s.Timeout
	if limit == 0 {
		limit = Timeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("the receiver did not answer within %s", limit))
	defer cancel()
	switch r.Channel.Kind() {
	case fleet.ChannelEmail:
		answer, err = s.mail(ctx, r)
	case fleet.ChannelSlack:
		answer, err = s.hook(ctx, r, slackPayload(r))
	case fleet.ChannelTeams:
		answer, err = s.hook(ctx, r, teamsPayload(r))
	default:
		answer, err = s.webhook(ctx, r)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return answer, err
}

// receiver returns the host of a URL that messages may go to.
func receiver(r notify.Delivery, raw string) (authority string, err error) {
	if authority, err = fleet.ChannelURL(raw); err != nil {
		return "", &notify.Refused{Why: "the receiver's URL: " + err.Error()}
	}
	if !r.Fleet.AllowsHost(authority) {
		return "", notAllowed(authority)
	}
	return authority, nil
}

// client makes one connection to one host, without a proxy: a proxy would choose the address.
func (s *Sender) client(r notify.Delivery, authority string) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            s.dialer(r.Fleet.AllowsPrivate(authority)).DialContext,
			TLSClientConfig:        &tls.Config{RootCAs: s.Roots, MinVersion: tls.VersionTLS12},
			DisableKeepAlives:      true,
			ForceAttemptHTTP2:      true,
			MaxResponseHeaderBytes: 16 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}

// Through carries requests to one host that messages may go to, under the rules of this package:
// for the API of a Git host.
func (s *Sender) Through(allowed *fleet.FleetNotifications, authority string) (http.RoundTripper,
	error) {
	if !allowed.AllowsHost(authority) {
		return nil, notAllowed(authority)
	}
	return &onlyHost{authority: authority,
		next: s.client(notify.Delivery{Fleet: allowed}, authority).Transport}, nil
}

// onlyHost refuses requests to other hosts.
type onlyHost struct {
	authority string
	next      http.RoundTripper
}

func (o *onlyHost) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" || strings.TrimSuffix(r.URL.Host, ":443") != o.authority {
		return nil, &notify.Refused{Why: "a request to another host than " + o.authority}
	}
	return o.next.RoundTrip(r)
}

func notAllowed(authority string) error {
	return &notify.Refused{Why: fmt.Sprintf("the Fleet allows no messages to %s: ask the platform "+
		"to add it to spec.notifications.allowedHosts", authority)}
}

// dialer connects to public addresses, and to others if private is set.
func (s *Sender) dialer(private bool) *net.Dialer {
	return &net.Dialer{
		Timeout: 10 * time.Second, Resolver: s.Resolver,
		Control: func(_, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address)
			if err != nil {
				return &notify.Refused{Why: "the receiver's address is not known"}
			}
			if !private && !Public(at.Addr()) {
				return &notify.Refused{Why: fmt.Sprintf(
					"the receiver has the address %s of a private network: "+
						"ask the platform to add the host to spec.notifications.privateHosts",
					at.Addr())}
			}
			return nil
		},
	}
}

// special are the networks besides those that package netip knows whose addresses are not public
// (IANA's registries of special-purpose addresses), or hold another address (NAT64, 6to4, Teredo).
var special = func() (all []netip.Prefix) {
	for _, s := range []string{"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24",
		"192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16",
		"fec0::/10", "3fff::/20", "5f00::/16"} {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}()

// Public reports whether an address is one of the public Internet.
func Public(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	if !ip.IsGlobalUnicast() || ip.IsPrivate() || ip.IsLoopback() || ip.IsLinkLocalUnicast() {
		return false
	}
	for _, p := range special {
		if p.Contains(ip) {
			return false
		}
	}
	return true
}

// withoutURL is an error of net/http without the URL of its request, which may be a credential.
func withoutURL(authority string, err error) error {
	var refused *notify.Refused
	if errors.As(err, &refused) {
		return refused
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var unknown *tls.CertificateVerificationError
	if errors.As(err, &unknown) {
		return fmt.Errorf("the certificate of %s is not valid: %w", authority, unknown.Err)
	}
	return fmt.Errorf("send to %s: %s", authority, oneLine(err.Error(), 300))
}

// without replaces secrets in text, for the answers of receivers that repeat what they get.
func without(text string, secrets ...string) string {
	for _, s := range secrets {
		if len(s) >= 4 {
			text = strings.ReplaceAll(text, s, "…")
		}
	}
	return text
}
