package edge

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// explain rewrites a connection error for the person who can fix it. It returns errors that are not
// about TLS, names or the network unchanged.
func explain(host string, err error) error {
	var refused *tls.CertificateVerificationError
	if errors.As(err, &refused) && len(refused.UnverifiedCertificates) > 0 {
		return fmt.Errorf("%s; %s", certificateProblem(host, refused.UnverifiedCertificates[0],
			refused.Err), nothingSent)
	}
	var record tls.RecordHeaderError
	if errors.As(err, &record) {
		return fmt.Errorf(
			"%s does not speak TLS on this port; is it the port of plain http, or a proxy that "+
				"has to be named with --proxy?", host)
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return fmt.Errorf(
			"failed to resolve %s: %s; ask the operators of the cluster's DNS, or set a "+
				"proxy with --proxy", plain(dns.Name), dnsReason(dns))
	}
	return err
}

const nothingSent = "nothing was sent"

// certificateProblem describes a certificate and why it is not trusted.
func certificateProblem(host string, cert *x509.Certificate, err error) string {
	var name x509.HostnameError
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &name):
		return fmt.Sprintf(
			"the certificate of %s is for %s: the URL is wrong, or another server "+
				"responds in its place", host, names(cert))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return expiry(host, cert)
	case errors.As(err, &unknown):
		return fmt.Sprintf(
			"the certificate of %s is issued by %q, which is not trusted here; is there a "+
				"TLS-inspecting proxy? give its CA with --ca-file", host, issuer(cert))
	}
	return fmt.Sprintf("the certificate of %s (issued by %q) is invalid: %s", host, issuer(cert),
		plain(err.Error()))
}

func expiry(host string, cert *x509.Certificate) string {
	now := time.Now()
	if now.Before(cert.NotBefore) {
		return fmt.Sprintf(
			"the certificate of %s is valid from %s on, but the local time is %s: is the clock "+
				"of this "+
				"machine wrong?", host, stamp(cert.NotBefore), stamp(now))
	}
	return fmt.Sprintf(
		"the certificate of %s expired on %s (the local time is %s): the hub's operators must "+
			"renew it", host, stamp(cert.NotAfter), stamp(now))
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// names lists some of a certificate's names, printable.
func names(cert *x509.Certificate) string {
	all := append([]string{}, cert.DNSNames...)
	for _, ip := range cert.IPAddresses {
		all = append(all, ip.String())
	}
	if len(all) == 0 {
		return "no host"
	}
	more := ""
	if len(all) > 4 {
		more, all = fmt.Sprintf(" and %d more", len(all)-4), all[:4]
	}
	return plain(strings.Join(all, ", ")) + more
}

// issuer returns the name of a certificate's issuer.
func issuer(cert *x509.Certificate) string {
	if name := cert.Issuer.CommonName; name != "" {
		return plain(name)
	}
	return plain(cert.Issuer.String())
}

func dnsReason(err *net.DNSError) string {
	switch {
	case err.IsTimeout:
		return "the resolver does not answer"
	case err.IsNotFound:
		return "the name does not exist"
	}
	return plain(err.Err)
}

// plain turns untrusted text into a short line of printable ASCII for logs.
func plain(s string) string {
	const most = 200
	var b strings.Builder
	for _, r := range s {
		if b.Len() >= most {
			b.WriteString("...")
			break
		}
		if r < ' ' || r > '~' {
			r = '?'
		}
		b.WriteRune(r)
	}
	return b.String()
}
