package gitrepo

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
)

func TestSourcesThatAreRefused(t *testing.T) {
	for name, url := range map[string]string{
		"empty":                           "",
		"transport helper":                "ext::sh -c touch% /tmp/owned",
		"transport helper without space":  "ext::sh",
		"transport helper in a URL":       "ext::https://git.example.com/x",
		"git protocol":                    "git://git.example.com/x",
		"ftp":                             "ftp://git.example.com/x",
		"file":                            "file:///etc",
		"file with a host":                "file://host/etc",
		"path":                            "/etc",
		"relative path":                   "../x",
		"plain http":                      "http://git.example.com/x",
		"http in capitals":                "HTTP://git.example.com/x",
		"ssh option as host":              "ssh://-oProxyCommand=touch%20x/y",
		"ssh option as host, encoded":     "ssh://%2DoProxyCommand=x/y",
		"ssh option as user":              "ssh://-oProxyCommand=x@host/y",
		"ssh option as path":              "ssh://host/-x",
		"ssh without path":                "ssh://host",
		"ssh with empty path":             "ssh://host/",
		"ssh with a password":             "ssh://git:canary@host/x",
		"scp option as host":              "-oProxyCommand=x:y",
		"scp option as user":              "-x@host:y",
		"scp option as path":              "git@host:-x",
		"scp without path":                "git@host:",
		"scp with two slashes":            "git@host://x",
		"Windows path":                    `C:\Users\x`,
		"password":                        "https://user:canary@git.example.com/x",
		"password that has a slash":       "https://user:can/canary@git.example.com/x",
		"user":                            "https://canary@git.example.com/x",
		"query":                           "https://git.example.com/x?access_token=canary",
		"empty query":                     "https://git.example.com/x?",
		"fragment":                        "https://git.example.com/x#canary",
		"no host":                         "https:///x",
		"no path":                         "https://git.example.com",
		"no path but a slash":             "https://git.example.com//",
		"newline":                         "https://git.example.com/x\nHost: evil",
		"space":                           "https://git.example.com/ x",
		"NUL":                             "https://git.example.com/x\x00",
		"host of odd characters":          "https://git.exa`mple.com/x",
		"not a URL, with a password":      "https://user:canary@git.example.com:port/x",
		"not a URL, with a percent in it": "https://user:canary%zz@git.example.com/x",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(t.Context(), t.TempDir(), Source{URL: url})
			if !errors.Is(err, ErrRefused) {
				t.Fatalf("%q: %v", url, err)
			}
			noCanary(t, err.Error())
		})
	}
}

func TestSourcesThatAreAccepted(t *testing.T) {
	for url, want := range map[string]string{
		"https://git.example.com/acme/config":        "https://git.example.com/acme/config",
		"https://Git.Example.com/acme/Config.git/":   "https://git.example.com/acme/Config.git",
		"HTTPS://git.example.com:8443/x":             "https://git.example.com:8443/x",
		"https://[2001:db8::1]/x":                    "https://[2001:db8::1]/x",
		"ssh://git@git.example.com/acme/config.git":  "ssh://git@git.example.com:22/acme/config.git",
		"ssh://git.example.com:2222/acme/config.git": "ssh://git@git.example.com:2222/acme/config.git",
		"git@git.example.com:acme/config.git":        "ssh://git@git.example.com:22/acme/config.git",
		"git.example.com:acme/config.git":            "ssh://git@git.example.com:22/acme/config.git",
		"ssh://me@host/~me/config":                   "ssh://me@host:22/~me/config",
	} {
		loc, err := parseLocation(url, false, false)
		if err != nil || loc.display != want {
			t.Errorf("%s: %q %v", url, loc.display, err)
		}
	}
	loc, err := parseLocation("ssh://me@host/~me/config", false, false)
	if err != nil || loc.path != "~me/config" {
		t.Error(loc.path, err)
	}
	if loc, err = parseLocation("git@host:acme/config", false, false); err != nil ||
		loc.path != "acme/config" {
		t.Error(loc.path, err)
	}
}

func FuzzSource(f *testing.F) {
	for _, s := range []string{"https://u:secretpw@h/p?q=secretpw#secretpw", "git@h:p",
		"ext::secretpw", "ssh://u:secretpw@h/~p", "//secretpw@x", "a:b@c:d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		loc, err := parseLocation(raw, false, false)
		if err != nil {
			if !errors.Is(err, ErrRefused) {
				t.Fatal(err)
			}
			return
		}
		for _, part := range []string{loc.user, loc.address, loc.path, loc.display} {
			if strings.HasPrefix(part, "-") || strings.ContainsAny(part, "\x00\n\r \t") {
				t.Fatalf("%q gives %q", raw, part)
			}
		}
		if loc.scheme != "https" && loc.scheme != "ssh" {
			t.Fatalf("%q gives scheme %q", raw, loc.scheme)
		}
		if loc.url != nil && (loc.url.User != nil || loc.url.RawQuery != "" ||
			loc.url.Fragment != "") {
			t.Fatalf("%q keeps %v", raw, loc.url)
		}
	})
}

// TestNoTransportOfGoGitIsLinked checks that the binary does not contain go-git's transports, so no
// URL can reach them.
func TestNoTransportOfGoGitIsLinked(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !strings.Contains(string(out), "go-git/v5/plumbing/format/packfile") {
		t.Fatal("the list is not what this test takes it for")
	}
	for _, line := range strings.Fields(string(out)) {
		if strings.HasPrefix(line, "github.com/go-git/go-git/v5/plumbing/transport") ||
			line == "github.com/go-git/go-git/v5" {
			t.Errorf("%s is linked", line)
		}
	}
}
