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

// explain says what is wrong with a connection in the words of who can mend it. What is not about
// TLS, names or the network comes back as it is.
func explain(host string, err error) error {
	var refused *tls.CertificateVerificationError
	if errors.As(err, &refused) && len(refused.UnverifiedCertificates) > 0 {
		return fmt.Errorf("%s; %s", certificateProblem(host, refused.UnverifiedCertificates[0],
			refused.Err), notTrusted)
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
			"the name %s is not resolved: %s; ask whoever runs the cluster's DNS, or name a "+
				"proxy with --proxy", plain(dns.Name), dnsReason(dns))
	}
	return err
}

const notTrusted = "nothing was sent"

// certificateProblem tells whose certificate it is, and why it is not taken for the hub's.
func certificateProblem(host string, cert *x509.Certificate, err error) string {
	var name x509.HostnameError
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &name):
		return fmt.Sprintf(
			"the certificate that %s shows is for %s: the URL is wrong, or something else "+
				"answers in its place", host, names(cert))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return expiry(host, cert)
	case errors.As(err, &unknown):
		return fmt.Sprintf(
			"the certificate of %s is issued by %q, which is not trusted here; is there a "+
				"TLS-inspecting proxy? give its CA with --ca-file", host, issuer(cert))
	}
	return fmt.Sprintf("the certificate of %s (issued by %q) does not hold: %s", host, issuer(cert),
		plain(err.Error()))
}

func expiry(host string, cert *x509.Certificate) string {
	now := time.Now()
	if now.Before(cert.NotBefore) {
		return fmt.Sprintf(
			"the certificate of %s is valid from %s on, and here it is %s: is the clock of this "+
				"machine wrong?", host, stamp(cert.NotBefore), stamp(now))
	}
	return fmt.Sprintf(
		"the certificate of %s has expired on %s (here it is %s): whoever runs the hub has to "+
			"renew it", host, stamp(cert.NotAfter), stamp(now))
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// names are those that a certificate is for: a few of them, printable.
func names(cert *x509.Certificate) string {
	all := append([]string{}, cert.DNSNames...)
	for _, ip := range cert.IPAddresses {
		all = append(all, ip.String())
	}
	if len(all) == 0 {
		return "no host at all"
	}
	more := ""
	if len(all) > 4 {
		more, all = fmt.Sprintf(" and %d more", len(all)-4), all[:4]
	}
	return plain(strings.Join(all, ", ")) + more
}

// issuer is who has signed a certificate, as it calls itself.
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
		return "the resolver knows no such name"
	}
	return plain(err.Err)
}

// plain makes a text that a stranger wrote fit for a line of a log: printable ASCII, and not long.
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
