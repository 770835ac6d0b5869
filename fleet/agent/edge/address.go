package edge

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"argosy.dev/argosy/fleet"
)

// ParseHub parses the hub's URL: https, a host, and optionally the path below which the hub is
// served. It rejects everything else.
func ParseHub(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		return nil, errors.New("the hub's URL is not of the form https://host")
	case u.Scheme == "http":
		return nil, errors.New("the hub's URL begins with http://; an agent requires https://")
	case u.Scheme != "https":
		return nil, errors.New("the hub's URL does not begin with https://")
	case u.User != nil:
		return nil,
			errors.New(
				"the hub's URL contains a user name; remove it: an agent authenticates with its key")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(raw, "#"):
		return nil, errors.New("the hub's URL contains a query or a fragment; remove it")
	case u.RawPath != "" || strings.Contains(u.Path, "//") || strings.Contains(u.Path, ".."):
		return nil, errors.New("the path of the hub's URL is not normalized")
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return u, nil
}

// ParseProxy parses the URL of a proxy. The URL may contain a user name and password, so errors
// never quote it.
func ParseProxy(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, errors.New("the proxy's URL is not of the form http://host:port")
	}
	return u, nil
}

// roots returns the system's certificate authorities plus those of a PEM bundle; nil (the system's)
// without a bundle.
func roots(bundle []byte) (*x509.CertPool, error) {
	if len(bundle) == 0 {
		return nil, nil
	}
	if err := fleet.CheckCA(bundle); err != nil {
		return nil, fmt.Errorf("the CA file %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	pool.AppendCertsFromPEM(bundle)
	return pool, nil
}
