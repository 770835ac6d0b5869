package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"argosy.dev/argosy/fleet/agent"
)

// way is the way to the hub: directly, or through a proxy.
type way struct {
	base  *url.URL
	proxy *url.URL // nil: directly
	keep  *http.Transport
}

// first is the host and port to which a connection is made.
func (w way) first() (host, address string) {
	u := w.base
	if w.proxy != nil {
		u = w.proxy
	}
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "http":
		port = "80"
	default:
		port = "443"
	}
	return u.Hostname(), net.JoinHostPort(u.Hostname(), port)
}

// hub checks the way to the hub, from the name to a stream.
func (c *Checks) hub(ctx context.Context, say func(Result)) {
	var w way
	if !step(ctx, "url", say, func(context.Context) Result { return c.settings(&w) }) {
		return
	}
	defer w.keep.CloseIdleConnections()
	for _, one := range []struct {
		name string
		look func(context.Context) Result
	}{{"proxy", w.checkProxy}, {"dns", w.checkDNS}, {"tcp", w.checkTCP}, {"tls", w.checkTLS},
		{"http", w.checkHTTP}} {
		if !step(ctx, one.name, say, one.look) {
			return
		}
	}
	step(ctx, "clock", say, w.checkClock)
	step(ctx, "stream", say, w.checkStream)
}

func (c *Checks) settings(w *way) Result {
	var err error
	if w.base, err = ParseHub(c.Settings.Hub); err != nil {
		return fail("give the URL as the hub's people name it, e.g. https://argosy.example.com",
			"%s", err)
	}
	if w.keep, err = c.Settings.newTransport(); err != nil {
		return fail("give a file of PEM certificates with --ca-file", "%s", err)
	}
	w.keep.ResponseHeaderTimeout = checkTime
	if w.proxy, err = w.keep.Proxy(&http.Request{URL: w.base}); err != nil {
		return fail("correct HTTPS_PROXY in the environment, or name the proxy with --proxy",
			"the proxy of the environment is no URL")
	}
	return ok("%s", w.base.Host)
}

func (w way) checkProxy(context.Context) Result {
	if w.proxy == nil {
		return ok("none: the hub is reached directly")
	}
	// the host alone: a user name and password may stand before it
	return ok("through %s", plain(w.proxy.Host))
}

func (w way) checkDNS(ctx context.Context) Result {
	host, _ := w.first()
	if _, err := netip.ParseAddr(host); err == nil {
		return ok("%s is an address", host)
	}
	all, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		var dns *net.DNSError
		reason := plain(err.Error())
		if errors.As(err, &dns) {
			reason = dnsReason(dns)
		}
		return fail(
			"ask whoever runs the cluster's DNS to resolve it, or name a proxy with --proxy",
			"%s: %s", plain(host), reason)
	}
	return ok("%s is %s", plain(host), plain(strings.Join(all, ", ")))
}

func (w way) checkTCP(ctx context.Context) Result {
	_, address := w.first()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		next := "let the cluster's firewall pass TCP to it, or name a proxy with --proxy"
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return fail(next, "%s does not answer: something on the way drops the connection",
				address)
		}
		return fail(next, "%s: %s", address, plain(err.Error()))
	}
	defer conn.Close()
	return ok("%s answers", address)
}

// checkTLS makes a connection as the agent would, through the proxy if there is one, and says whose
// certificate it sees.
func (w way) checkTLS(ctx context.Context) Result {
	answer, err := w.ask(ctx, "/readyz")
	if err != nil {
		err = explain(w.base.Host, err)
		return fail("see above; the agent has no switch that turns verification off", "%s",
			plain(err.Error()))
	}
	defer answer.Body.Close()
	if answer.TLS == nil || len(answer.TLS.PeerCertificates) == 0 {
		return fail("give the hub's https:// URL", "the answer did not come over TLS")
	}
	cert := answer.TLS.PeerCertificates[0]
	left := time.Until(cert.NotAfter)
	said := fmt.Sprintf("%s, issued by %q, until %s", tls.VersionName(answer.TLS.Version),
		issuer(cert), stamp(cert.NotAfter))
	if left < 7*24*time.Hour {
		return warn("tell whoever runs the hub to renew its certificate", "%s", said)
	}
	return ok("%s", said)
}

// ask sends a GET without any identity.
func (w way) ask(ctx context.Context, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base.String()+path, nil)
	if err != nil {
		return nil, err
	}
	// no process: one that only looks
	agent.Session{Protocol: agent.Protocol, Instance: strings.Repeat("0", 32),
		Version: "check"}.Set(request.Header)
	client := &http.Client{Transport: w.keep, CheckRedirect: func(*http.Request,
		[]*http.Request) error {
		return http.ErrUseLastResponse
	}}
	answer, err := client.Do(request)
	if err != nil {
		var outer *url.Error
		if errors.As(err, &outer) {
			err = outer.Err
		}
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, err
	}
	return answer, nil
}

// checkHTTP asks for a snapshot without any proof: a hub refuses that, in its own words.
func (w way) checkHTTP(ctx context.Context) Result {
	answer, err := w.ask(ctx, agent.PathSnapshot)
	if err != nil {
		return fail("try again; if it stays so, ask whoever runs the proxy or the hub", "%s",
			plain(explain(w.base.Host, err).Error()))
	}
	refusal := refusalOf(answer)
	var r *Refusal
	if !errors.As(refusal, &r) || r.Status != http.StatusUnauthorized {
		return fail("is this the hub's URL, and is the hub of a version that has agents?",
			"%s, where a hub asks for a proof: %s", answer.Status, plain(refusal.Error()))
	}
	if answer.ProtoMajor < 2 {
		return warn(
			"nothing, if a proxy on the way speaks no HTTP/2; the agent then needs two connections",
			"the hub answers, over %s", answer.Proto)
	}
	return ok("the hub answers, over %s", answer.Proto)
}

// maxSkew is from which on a wrong clock of this machine shows elsewhere: in TLS, and in whatever
// else runs here.
const maxSkew = 2 * time.Minute

func (w way) checkClock(ctx context.Context) Result {
	began := time.Now()
	answer, err := w.ask(ctx, "/readyz")
	if err != nil {
		return warn("", "the hub's time is not known: %s", plain(err.Error()))
	}
	answer.Body.Close()
	date, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return fail("let the proxy pass the header Date: the agent takes the time from it",
			"the answer has no Date")
	}
	skew := began.Add(time.Since(began) / 2).Sub(date).Round(time.Second)
	if skew > maxSkew || skew < -maxSkew {
		return warn(
			"the agent works by the hub's time all the same; set this machine's clock, for "+
				"certificates are judged by it", "this machine's clock is %s off the hub's", skew)
	}
	return ok("within %s of the hub's", max(skew.Abs(), time.Second))
}

// checkStream listens to the hub's probe: what gathers it on the way brings its two messages at
// once.
func (w way) checkStream(ctx context.Context) Result {
	answer, err := w.ask(ctx, agent.PathProbe)
	if err != nil {
		return warn("try again", "a stream was not opened: %s", plain(err.Error()))
	}
	defer answer.Body.Close()
	if kind, _, _ := strings.Cut(answer.Header.Get("Content-Type"),
		";"); answer.StatusCode != http.StatusOK || kind != "text/event-stream" {
		return warn("upgrade the hub to have this checked",
			"this hub has no probe for streams (%s)", answer.Status)
	}
	first, last, err := arrivals(answer.Body)
	switch {
	case err != nil:
		return fail("ask whoever runs the proxy to let text/event-stream pass as it comes",
			"a stream was cut: %s", plain(err.Error()))
	case last.Sub(first) < agent.ProbeGap/2:
		return fail(
			"ask whoever runs the proxy to let text/event-stream pass as it comes "+
				"(proxy_buffering off, or its like)",
			"a stream is gathered on its way and passed on at its end")
	}
	return ok("a stream passes as it comes")
}

// arrivals is when the first byte and the last came.
func arrivals(body io.Reader) (first, last time.Time, err error) {
	buffer := make([]byte, 512)
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			last = time.Now()
			if first.IsZero() {
				first = last
			}
		}
		if errors.Is(err, io.EOF) {
			if first.IsZero() {
				return first, last, io.ErrUnexpectedEOF
			}
			return first, last, nil
		}
		if err != nil {
			return first, last, err
		}
	}
}
