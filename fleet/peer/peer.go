// Package peer determines the address that sends a request.
package peer

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Address is the client's address: the peer, or, if that is a trusted proxy, the last address in
// X-Forwarded-For that is not one. An IPv6 client is identified by its network of 64 bits.
func Address(r *http.Request, proxies []netip.Prefix) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	at, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	trusted := func(at netip.Addr) bool {
		return slices.ContainsFunc(proxies, func(p netip.Prefix) bool {
			return p.Contains(at.Unmap())
		})
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		if !trusted(at) {
			break
		}
		next, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil {
			break
		}
		at = next
	}
	at = at.Unmap().WithZone("")
	if at.Is6() {
		if network, err := at.Prefix(64); err == nil {
			return network.String()
		}
	}
	return at.String()
}
