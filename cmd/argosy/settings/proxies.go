package settings

import (
	"fmt"
	"net/netip"
)

// Proxies are the networks of trustedProxies.
func (l Listen) Proxies() ([]netip.Prefix, error) {
	var all []netip.Prefix
	for i, text := range l.TrustedProxies {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil,
				fmt.Errorf("listen.trustedProxies[%d] is %q; write a network such as 10.0.0.0/8", i,
					text)
		}
		all = append(all, p.Masked())
	}
	return all, nil
}
