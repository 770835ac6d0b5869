package fleet

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

const maxURL = 1024 // bytes of a URL in a declaration

// plainURL refuses characters that no URL of a declaration contains, including every character that
// Argo CD reads as a pattern.
func plainURL(raw string) error {
	switch {
	case raw == "":
		return errors.New("a URL is required")
	case len(raw) > maxURL:
		return fmt.Errorf("the URL is %d bytes long; at most %d are allowed", len(raw), maxURL)
	case raw[0] == '-':
		return errors.New("a URL does not begin with '-'")
	}
	for i := range len(raw) {
		switch c := raw[i]; {
		case c <= ' ' || c >= 0x7f:
			return errors.New("a URL holds no blanks, control or non-ASCII characters")
		case strings.IndexByte("*{}!\\\"'`<>|^$;,()", c) >= 0:
			return fmt.Errorf("character %q is not allowed: a URL is exact and holds no pattern", c)
		case c == '?' || c == '#':
			return errors.New("a URL has no query or fragment")
		case c == '%':
			return errors.New("a URL holds no percent-encoding")
		}
	}
	return nil
}

// checkHostPort accepts only the canonical form of a host: canonical IPv4 address or lower-case DNS
// name, and no default port.
func checkHostPort(s, defaultPort string) error {
	if _, err := netip.ParseAddr(s); strings.ContainsAny(s, "[]") || err == nil &&
		strings.Contains(s, ":") {
		return errors.New(
			"the host is an IPv6 address, which Argo CD would read as a pattern; write a DNS " +
				"name that leads to it")
	}
	host, port, found := strings.Cut(s, ":")
	if found {
		if err := checkPort(port, defaultPort); err != nil {
			return err
		}
	}
	return checkHost(host)
}

func checkPort(port, defaultPort string) error {
	if port == "" || len(port) > 5 || port[0] == '0' || strings.Trim(port, "0123456789") != "" ||
		len(port) == 5 && port > "65535" {
		return errors.New("the port is no number from 1 to 65535")
	}
	if port == defaultPort {
		return fmt.Errorf("leave out :%s, which is the default", port)
	}
	return nil
}

func checkHost(host string) error {
	if host == "" || len(host) > 253 {
		return errors.New("the URL names no host")
	}
	if strings.ToLower(host) != host {
		return errors.New("write the host in lower case")
	}
	last := ""
	for label := range strings.SplitSeq(host, ".") {
		if len(label) > maxName || !isLabel(label) {
			return errors.New(
				"the host is no DNS name: labels of a-z, 0-9 and '-', no dot at the end")
		}
		last = label
	}
	// Resolvers read 127.1, 2130706433 and 0x7f.1 as addresses. A host that ends in a number is an
	// address and has one canonical form.
	if c := last[0]; c >= '0' && c <= '9' && (strings.Trim(last, "0123456789") == "" ||
		strings.HasPrefix(last, "0x")) {
		if ip, err := netip.ParseAddr(host); err != nil || !ip.Is4() {
			return errors.New("the host is no IPv4 address of four decimal numbers")
		}
	}
	return nil
}

// hostOf is the host without the port of a value that checkHostPort accepted.
func hostOf(authority string) string {
	host, _, _ := strings.Cut(authority, ":")
	return host
}
