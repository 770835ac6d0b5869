package metering

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"argosy.dev/argosy/fleet"
)

const getTimeout = 15 * time.Second

// Get reads the metrics of an address that the platform has declared. It sends no credential and
// follows no redirect, and refuses a name that resolves to a link-local or loopback address.
func Get(ctx context.Context, address string) (io.ReadCloser, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSHandshakeTimeout: getTimeout,
		MaxResponseHeaderBytes: 64 << 10,
		DialContext: (&net.Dialer{Timeout: getTimeout, Control: func(_, at string,
			_ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(at)
			if err == nil && !fleet.MayReach(u.Hostname(), to.Addr()) {
				err = fmt.Errorf("%s resolves to %s, which serves no metrics", u.Hostname(),
					to.Addr())
			}
			return err
		}}).DialContext}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request,
		[]*http.Request) error {
		return http.ErrUseLastResponse
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "argosy")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s/metrics answers %s", address, resp.Status)
	}
	return resp.Body, nil
}
