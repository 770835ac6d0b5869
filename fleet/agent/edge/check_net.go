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

// route is the route to the hub: direct, or through a proxy.
type route struct {
	base      *url.URL
	proxy     *url.URL // nil: direct
	transport *http.Transport
}

// endpoint returns the host and address that a connection dials.
func (w route) endpoint() (host, address string) {
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

// hub verifies the route to the hub, from the name to a stream.
func (c *Checks) checkHub(ctx context.Context, report func(Result)) {
	var w route
	if !runCheck(ctx, "url", report, func(context.Context) Result { return c.settings(&w) }) {
		return
	}
	defer w.transport.CloseIdleConnections()
	for _, one := range []struct {
		name  string
		check func(context.Context) Result
	}{{"proxy", w.checkProxy}, {"dns", w.checkDNS}, {"tcp", w.checkTCP}, {"tls", w.checkTLS},
		{"http", w.checkHTTP}} {
		if !runCheck(ctx, one.name, report, one.check) {
			return
		}
	}
	runCheck(ctx, "clock", report, w.checkClock)
	runCheck(ctx, "stream", report, w.checkStream)
}

func (c *Checks) settings(w *route) Result {
	var err error
	if w.base, err = ParseHub(c.Settings.Hub); err != nil {
		return fail("use the URL from the hub's operators, e.g. https://argosy.example.com",
			"%s", err)
	}
	if w.transport, err = c.Settings.newTransport(); err != nil {
		return fail("pass a file of PEM certificates with --ca-file", "%s", err)
	}
	w.transport.ResponseHeaderTimeout = checkTimeout
	if w.proxy, err = w.transport.Proxy(&http.Request{URL: w.base}); err != nil {
		return fail("correct HTTPS_PROXY in the environment, or set the proxy with --proxy",
			"the proxy of the environment is not a URL")
	}
	return ok("%s", w.base.Host)
}

func (w route) checkProxy(context.Context) Result {
	if w.proxy == nil {
		return ok("none: the hub is reached directly")
	}
	// only the host: the URL may contain a user name and password
	return ok("through %s", plain(w.proxy.Host))
}

func (w route) checkDNS(ctx context.Context) Result {
	host, _ := w.endpoint()
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
			"ask the operators of the cluster's DNS, or set a proxy with --proxy",
			"%s: %s", plain(host), reason)
	}
	return ok("%s is %s", plain(host), plain(strings.Join(all, ", ")))
}

func (w route) checkTCP(ctx context.Context) Result {
	_, address := w.endpoint()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		next := "allow TCP to it in the cluster's firewall, or set a proxy with --proxy"
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return fail(next, "%s does not respond: a firewall may drop the connection",
				address)
		}
		return fail(next, "%s: %s", address, plain(err.Error()))
	}
	defer conn.Close()
	return ok("%s answers", address)
}

// checkTLS connects like the agent, through a proxy if there is one, and reports the certificate.
func (w route) checkTLS(ctx context.Context) Result {
	answer, err := w.get(ctx, "/readyz")
	if err != nil {
		err = explain(w.base.Host, err)
		return fail("see above; the agent cannot disable verification", "%s",
			plain(err.Error()))
	}
	defer answer.Body.Close()
	if answer.TLS == nil || len(answer.TLS.PeerCertificates) == 0 {
		return fail("use the hub's https:// URL", "the response did not arrive over TLS")
	}
	cert := answer.TLS.PeerCertificates[0]
	left := time.Until(cert.NotAfter)
	text := fmt.Sprintf("%s, issued by %q, until %s", tls.VersionName(answer.TLS.Version),
		issuer(cert), stamp(cert.NotAfter))
	if left < 7*24*time.Hour {
		return warn("ask the hub's operators to renew its certificate", "%s", text)
	}
	return ok("%s", text)
}

// get sends an unauthenticated GET.
func (w route) get(ctx context.Context, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base.String()+path, nil)
	if err != nil {
		return nil, err
	}
	// not a process: only a check
	agent.Session{Protocol: agent.Protocol, Instance: strings.Repeat("0", 32),
		Version: "check"}.Set(request.Header)
	client := &http.Client{Transport: w.transport, CheckRedirect: func(*http.Request,
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

// checkHTTP requests a snapshot without a proof. A hub rejects that with a problem document.
func (w route) checkHTTP(ctx context.Context) Result {
	answer, err := w.get(ctx, agent.PathSnapshot)
	if err != nil {
		return fail("try again; if it persists, ask the operators of the proxy or the hub", "%s",
			plain(explain(w.base.Host, err).Error()))
	}
	refusal := refusalOf(answer)
	var r *Refusal
	if !errors.As(refusal, &r) || r.Status != http.StatusUnauthorized {
		return fail("is this the hub's URL, and does the hub's version support agents?",
			"%s, but a hub requires a proof: %s", answer.Status, plain(refusal.Error()))
	}
	if answer.ProtoMajor < 2 {
		return warn(
			"nothing, if a proxy does not support HTTP/2; the agent then needs two connections",
			"the hub responds over %s", answer.Proto)
	}
	return ok("the hub responds over %s", answer.Proto)
}

// maxSkew is the clock skew above which TLS and other programs on this machine fail.
const maxSkew = 2 * time.Minute

func (w route) checkClock(ctx context.Context) Result {
	began := time.Now()
	answer, err := w.get(ctx, "/readyz")
	if err != nil {
		return warn("", "the hub's time is unknown: %s", plain(err.Error()))
	}
	answer.Body.Close()
	date, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return fail("let the proxy forward the Date header: the agent takes the time from it",
			"the response has no Date header")
	}
	skew := began.Add(time.Since(began) / 2).Sub(date).Round(time.Second)
	if skew > maxSkew || skew < -maxSkew {
		return warn(
			"the agent uses the hub's time anyway; correct this machine's clock, because "+
				"certificates are verified with it", "this machine's clock is %s off the hub's",
			skew)
	}
	return ok("within %s of the hub's", max(skew.Abs(), time.Second))
}

// checkStream reads the hub's probe. A buffering proxy delivers both messages at once.
func (w route) checkStream(ctx context.Context) Result {
	answer, err := w.get(ctx, agent.PathProbe)
	if err != nil {
		return warn("try again", "failed to open a stream: %s", plain(err.Error()))
	}
	defer answer.Body.Close()
	if kind, _, _ := strings.Cut(answer.Header.Get("Content-Type"),
		";"); answer.StatusCode != http.StatusOK || kind != "text/event-stream" {
		return warn("upgrade the hub to enable this check",
			"this hub has no probe for streams (%s)", answer.Status)
	}
	first, last, err := arrivals(answer.Body)
	switch {
	case err != nil:
		return fail("ask the operators of the proxy to disable buffering of text/event-stream",
			"a stream was interrupted: %s", plain(err.Error()))
	case last.Sub(first) < agent.ProbeGap/2:
		return fail(
			"ask the operators of the proxy to disable buffering of text/event-stream "+
				"(such as proxy_buffering off)",
			"a proxy buffers the stream until its end")
	}
	return ok("the stream is not buffered")
}

// arrivals returns when the first byte and the last one arrived.
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
