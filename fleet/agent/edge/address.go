package edge

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"argosy.dev/argosy/fleet"
)

// ParseHub reads the hub's URL: https, a host, and maybe a path below which the hub is served.
// Everything else in it is refused.
func ParseHub(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		return nil, errors.New("the hub's URL is not of the form https://host")
	case u.Scheme == "http":
		return nil, errors.New("the hub's URL begins with http://; an agent speaks https:// alone")
	case u.Scheme != "https":
		return nil, errors.New("the hub's URL does not begin with https://")
	case u.User != nil:
		return nil,
			errors.New(
				"the hub's URL holds a user name; leave it out: an agent proves itself by its key")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(raw, "#"):
		return nil, errors.New("the hub's URL holds a query or a fragment; leave it out")
	case u.RawPath != "" || strings.Contains(u.Path, "//") || strings.Contains(u.Path, ".."):
		return nil, errors.New("the path of the hub's URL is not in its plain form")
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return u, nil
}

// ParseProxy reads the URL of a proxy. It may hold a user name and password, and is therefore never
// repeated in an error.
func ParseProxy(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, errors.New("the proxy's URL is not of the form http://host:port")
	}
	return u, nil
}

// roots are the system's certificate authorities and those of a bundle (PEM). Nil when there is no
// bundle: the system's.
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
