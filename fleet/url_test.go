package fleet

import (
	"slices"
	"strings"
	"testing"
)

func TestSpellingsOfOneRepositoryShareAKey(t *testing.T) {
	key, err := NormalizeRepoURL("https://git.example.com/acme/checkout")
	if err != nil {
		t.Fatal(err)
	}
	for _, same := range []string{"https://git.example.com/acme/checkout.git",
		"https://git.example.com/Acme/CheckOut", "https://git.example.com/acme/checkout.GIT"} {
		if got, err := NormalizeRepoURL(same); err != nil || got != key {
			t.Errorf("%s: key %q, %v; want %q", same, got, err, key)
		}
	}
	if other, _ := NormalizeRepoURL("ssh://git@git.example.com/acme/checkout"); other == key {
		t.Error("ssh and https share a key, which Argo CD does not")
	}
}

func TestRepositoryURLsThatAreRefused(t *testing.T) {
	for name, raw := range map[string]string{
		"empty": "", "glob": "https://git.example.com/*", "glob host": "https://*.example.com/a",
		"question mark": "https://git.example.com/a?b",
		"class":         "https://git.example.com/[a]", "braces": "https://git.example.com/{a,b}",
		"negation": "!https://git.example.com/a",
		"regexp":   "/https.*/", "ext transport": "ext::sh -c id", "file": "file:///etc",
		"path": "/srv/repo", "git protocol": "git://git.example.com/a",
		"ssh option": "ssh://-oProxyCommand=id/a", "option": "--upload-pack=id",
		"password": "https://u:p@git.example.com/a", "user": "https://u@git.example.com/a",
		"ssh password": "ssh://git:p@git.example.com/a", "ssh option user": "ssh://-oX@h/a",
		"dot dot": "https://git.example.com/a/../b", "double slash": "https://git.example.com//a",
		"encoded":         "https://git.example.com/%2e%2e/a",
		"backslash":       `https://git.example.com\@evil.com/a`,
		"upper-case host": "https://Git.example.com/a",
		"default port":    "https://git.example.com:443/a",
		"no repository":   "https://git.example.com/",
		"trailing slash":  "https://git.example.com/a/",
		"query":           "https://git.example.com/a?x=1",
		"fragment":        "https://git.example.com/a#b",
		"newline":         "https://git.example.com/a\nb", "unicode": "https://gít.example.com/a",
		"dot git": "https://git.example.com/a/.git", "decimal address": "https://2130706433/a",
		"short address": "https://127.1/a", "hex address": "https://0x7f.0.0.1/a",
		"octal address": "https://0177.0.0.1/a", "mapped address": "https://[::ffff:127.0.0.1]/a",
		"zone": "https://[fe80::1%25eth0]/a", "port 0": "https://h.example.com:0/a",
		"port 70000": "https://h.example.com:70000/a", "oci host": "oci://registry.example.com",
		"oci root": "oci://registry.example.com/", "oci port": "oci://r.example.com:443/a",
		"oci tag": "oci://registry.example.com/a:1", "oci user": "oci://u@registry.example.com/a",
		"oci case": "oci://registry.example.com/A", "OCI": "OCI://registry.example.com/a",
		"final dot": "https://git.example.com./a", "long": "https://git.example.com/" +
			strings.Repeat("a", 1100),
	} {
		if u, err := ParseRepoURL(raw); err == nil {
			t.Errorf("%s: %q is accepted as %+v", name, raw, u)
		} else if strings.Contains(err.Error(), "u:p@") {
			t.Errorf("%s: the error repeats the password: %v", name, err)
		}
	}
}

func TestURLsWithoutASchemeAreReadAsArgoCDReadsThem(t *testing.T) {
	for raw, key := range map[string]string{
		"git@git.example.com:acme/Checkout.git": "ssh://git@git.example.com/acme/checkout",
		"registry.example.com/acme/charts":      "oci://registry.example.com/acme/charts",
		"oci://registry.example.com/acme/app":   "artifact://registry.example.com/acme/app",
		"oci://127.0.0.1:5000/app":              "artifact://127.0.0.1:5000/app",
		"localhost:5000/charts":                 "oci://localhost:5000/charts",
		"https://charts.example.com":            "https://charts.example.com",
		"https://charts.example.com/stable":     "https://charts.example.com/stable",
	} {
		u, err := ParseRepoURL(raw)
		if err != nil || u.Key() != key || u.String() != raw {
			t.Errorf("%s: %q, key %q, %v; want the key %q", raw, u, u.Key(), err, key)
		}
	}
	for name, raw := range map[string]string{
		"option as user": "-oProxyCommand=id@h.example.com:a", "two users": "a@b@h.example.com:a",
		"scp of an absolute path": "git@git.example.com:/srv/a",
		"scp dot dot":             "git@h.example.com:../a",
		"scp without a path":      "git@git.example.com:", "scp port": "git@git.example.com:22:a/b",
		"scp password": "git:p@git.example.com:a", "no registry": "charts/app",
		"registry alone": "registry.example.com", "registry root": "registry.example.com/",
		"address with a port": "127.0.0.1:5000/charts",
		"default port":        "registry.example.com:443/a", "folder": "./charts",
		"up":       "../charts.d/x",
		"ssh root": "ssh://git@git.example.com",
	} {
		if u, err := ParseRepoURL(raw); err == nil {
			t.Errorf("%s: %q is accepted as %+v", name, raw, u)
		}
	}
}

func TestAGrantOfOneSpellingCoversTheOther(t *testing.T) {
	grants := []string{"git@git.example.com:acme/", "registry.example.com/acme/",
		"https://charts.example.com"}
	for url, want := range map[string]bool{
		"ssh://git@git.example.com/acme/a": true, "git@git.example.com:acme/a.git": true,
		"git@git.example.com:acme-evil/a": false, "other@git.example.com:acme/a": false,
		"registry.example.com/acme/charts": true, "registry.example.com/acmes/charts": false,
		"oci://registry.example.com/acme/charts":   false,
		"https://registry.example.com/acme/charts": false, "https://charts.example.com": true,
		"https://charts.example.com/x": false,
	} {
		if got := RepositoryGranted(grants, url); got != want {
			t.Errorf("%s: granted %v, want %v", url, got, want)
		}
	}
	for _, g := range []string{"git@git.example.com:", "registry.example.com/",
		"https://charts.example.com/", "git@git.example.com:/"} {
		if CheckRepoScope(g) == nil {
			t.Errorf("grant %q is accepted", g)
		}
	}
}

func TestAGrantCoversWhatIsBelowItsSlashAndNothingBeside(t *testing.T) {
	grants := []string{"https://git.example.com/acme/", "https://git.example.com/shared/charts",
		"ssh://git@git.example.com/acme.git/"}
	for url, want := range map[string]bool{
		"https://git.example.com/acme/checkout": true, "https://git.example.com/ACME/a/b.git": true,
		"https://git.example.com/shared/charts.git": true,
		"https://git.example.com/acme":              false,
		"https://git.example.com/acme-evil/a":       false,
		"https://git.example.com/shared/charts2":    false,
		"https://git.example.com/shared/charts/x":   false,
		"https://git.example.com.evil.com/acme/a":   false,
		"https://git.example.com:8443/acme/a":       false,
		"http://git.example.com/acme/a":             false,
		"ssh://git@git.example.com/acme/x":          false,
		"ssh://git@git.example.com/acme.git/x":      true,
		"https://git.example.com/acme/../globex/a":  false, "": false,
	} {
		if got := RepositoryGranted(grants, url); got != want {
			t.Errorf("RepositoryGranted(%q) = %v", url, got)
		}
	}
	for _, bad := range []string{"", "/", "https://",
		"https://git.example.com/", "https://git.example.com/*", "https://git.example.com/a//"} {
		if CheckRepoScope(bad) == nil {
			t.Errorf("grant %q is accepted", bad)
		}
		if RepositoryGranted([]string{bad}, "https://git.example.com/acme/a") {
			t.Errorf("grant %q covers a repository", bad)
		}
	}
}

func TestAFolderIsGrantedAsAWhole(t *testing.T) {
	for folder, want := range map[string]bool{
		"https://git.example.com/acme/": true, "https://git.example.com/ACME/team/": true,
		"https://git.example.com/acme-evil/":   false,
		"https://git.example.com/shared/":      false, // of which one repository is granted
		"https://git.example.com/acme/app/x//": false, "https://git.example.com/": false,
	} {
		grants := []string{"https://git.example.com/acme/", "https://git.example.com/shared/a",
			"https://git.example.com/"}
		if got := RepositoryGranted(grants, folder); got != want {
			t.Errorf("RepositoryGranted(%q) = %v", folder, got)
		}
	}
}

// Every scope of a repository covers it, and only the folders above it are scopes.
func TestScopesOfARepository(t *testing.T) {
	for url, want := range map[string][]string{
		"https://git.example.com/ACME/team/app.git": {"https://git.example.com/acme/team/app",
			"https://git.example.com/acme/team/", "https://git.example.com/acme/"},
		"https://git.example.com/app": {"https://git.example.com/app"},
		"git@git.example.com:acme/app": {"ssh://git@git.example.com/acme/app",
			"ssh://git@git.example.com/acme/"},
		"registry.example.com/acme/charts": {"oci://registry.example.com/acme/charts",
			"oci://registry.example.com/acme/"},
		"https://charts.example.com": {"https://charts.example.com"},
	} {
		key, err := NormalizeRepoURL(url)
		if got := RepoScopes(key); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", url, got, err)
		}
		for _, scope := range want {
			if !RepoScopeCovers(scope, key) {
				t.Errorf("%s does not cover %s", scope, url)
			}
		}
	}
	if scope, _ := RepoScopeKey("https://git.example.com/acme.git/"); RepoScopeCovers(scope,
		"https://git.example.com/acme/app") {
		t.Errorf("%s covers another folder", scope)
	}
}

func TestGitHostsAreExact(t *testing.T) {
	hosts := []string{"git.example.com", "git.example.com:8443", "http://127.0.0.1:3000"}
	for url, want := range map[string]bool{
		"https://git.example.com/a": true, "ssh://git@git.example.com/a": true,
		"https://git.example.com:8443/a": true, "http://127.0.0.1:3000/a": true,
		"http://git.example.com/a": false, "https://git.example.com:8444/a": false,
		"https://127.0.0.1:3000/a": false, "https://evil.git.example.com/a": false,
	} {
		u, err := ParseRepoURL(url)
		if err != nil {
			t.Fatal(err)
		}
		if got := GitHostAllowed(hosts, u); got != want {
			t.Errorf("GitHostAllowed(%q) = %v", url, got)
		}
	}
	for _, h := range hosts {
		if err := CheckGitHost(h); err != nil {
			t.Errorf("%q is refused: %v", h, err)
		}
	}
	for _, h := range []string{"", "*", "*.example.com", "https://git.example.com",
		"git.example.com/", "git.example.com/a", "u@git.example.com", "Git.example.com",
		"http://h:80"} {
		if CheckGitHost(h) == nil {
			t.Errorf("git host %q is accepted", h)
		}
	}
}

// Argo CD matches the URLs of sources and of servers as patterns, in which brackets are a character
// class.
func TestAnIPv6AddressIsAnsweredWithWhatToWrite(t *testing.T) {
	_, repo := NormalizeRepoURL("ssh://git@[2001:db8::1]:2222/acme/checkout")
	for what, err := range map[string]error{
		"repository": repo, "grant": CheckRepoScope("https://[2001:db8::1]/acme/"),
		"server":                  CheckServerURL("https://[2001:db8::1]:6443"),
		"server without brackets": CheckServerURL("https://2001:db8::1"),
		"git host":                CheckGitHost("[2001:db8::1]:8443"),
		"git host without brackets": CheckGitHost(
			"2001:db8::1"), "cluster host": CheckClusterHost("[::1]"),
	} {
		if err == nil || !strings.Contains(err.Error(), "write a DNS name") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestServersHaveOneSpellingAndNoTricks(t *testing.T) {
	for _, ok := range []string{"https://api.eu-1.example.com:6443", "https://10.0.0.1",
		"https://127.0.0.1:6443", "https://kubernetes.example.com"} {
		if err := CheckServerURL(ok); err != nil {
			t.Errorf("%q is refused: %v", ok, err)
		}
	}
	for _, bad := range []string{
		"", "http://api.example.com", "api.example.com", "https://api.example.com/",
		"https://api.example.com/x", "https://api.example.com?x=1", "https://u:p@api.example.com",
		"https://api.example.com:443", "https://API.example.com", "https://169.254.169.254",
		"https://[fe80::1]", "https://[fd00:ec2::254]", "https://0.0.0.0", "https://[::]",
		"https://kubernetes.default.svc", "https://kubernetes.default.svc.cluster.local:6443",
		"https://kubernetes.default", "https://metadata.google.internal", "https://2852039166",
		"https://0xa9fea9fe", "https://[::ffff:169.254.169.254]", "https://*",
		"https://api.example.com.", "https://224.0.0.1", "https://", "https://:6443",
		"https://[2001:db8::1]:6443", "https://2001:db8::1",
	} {
		if CheckServerURL(bad) == nil {
			t.Errorf("server %q is accepted", bad)
		}
	}
}

func TestInternalServersNeedThePlatformsWord(t *testing.T) {
	for _, internal := range []string{"https://127.0.0.1:6443", "https://127.8.8.8",
		"https://localhost:6443", "https://a.localhost", "https://vcluster.team.svc",
		"https://api.team.svc.cluster.local", "https://api"} {
		if err := CheckServerURL(internal); err != nil {
			t.Fatalf("%s: %v", internal, err)
		}
		if InternalServer(internal, []string{"127.0.0.2", "other.team.svc"}, false) == "" {
			t.Errorf("%s passes without an exception", internal)
		}
		if why := InternalServer(internal, []string{strings.TrimPrefix(internal, "https://")},
			true); why != "" {
			t.Errorf("%s is refused in spite of its exception: %s", internal, why)
		}
	}
	if why := InternalServer("https://127.0.0.1:6443", []string{"127.0.0.1"}, true); why != "" {
		t.Errorf("a host without a port does not except its ports: %s", why)
	}
	if why := InternalServer("https://api.eu-1.example.com:6443", nil, true); why != "" {
		t.Errorf("a public name is internal: %s", why)
	}
	for _, bad := range []string{"", "*", "169.254.169.254", "kubernetes.default.svc",
		"https://127.0.0.1", "127.0.0.1/8"} {
		if CheckClusterHost(bad) == nil {
			t.Errorf("cluster host %q is accepted", bad)
		}
	}
}

func TestNamespacesAreExactAndNotReserved(t *testing.T) {
	for _, ok := range []string{"checkout", "a-b-0"} {
		if err := ValidateNamespace(ok); err != nil {
			t.Errorf("%q is refused: %v", ok, err)
		}
	}
	for _, bad := range []string{"", "*", "!x", "team-*", "kube-system", "kube-anything", "argocd",
		"argosy-tenant-acme", "default", "A", "a.b", strings.Repeat("x", 64)} {
		if ValidateNamespace(bad) == nil {
			t.Errorf("namespace %q is accepted", bad)
		}
	}
}

func TestPrivateServersAreRefusedWhereTheFleetForbidsThem(t *testing.T) {
	for _, private := range []string{"https://10.0.0.1", "https://172.16.4.4:6443",
		"https://192.168.1.1", "https://100.64.0.1"} {
		host := strings.TrimPrefix(private, "https://")
		if why := InternalServer(private, nil, true); why == "" || InternalServer(private, nil,
			false) != "" || InternalServer(private, []string{host}, true) != "" {
			t.Errorf("%s: %q", private, why)
		}
	}
	// Other spellings of an address are no valid server.
	for _, other := range []string{"https://0x7f000001", "https://2130706433", "https://0177.0.0.1",
		"https://127.1", "https://127.0.0.0x1", "https://[::ffff:127.0.0.1]",
		"https://[::1]:6443", "https://010.0.0.1", "https://10.0.0.1.", "https://169.254.169.254",
		"https://100.100.100.200", "https://0.0.0.0", "https://metadata.google.internal"} {
		if CheckServerURL(other) == nil {
			t.Errorf("%s is accepted", other)
		}
	}
}

func TestAPIServersAreGrantedExactlyOrBelowADomain(t *testing.T) {
	for _, c := range []struct {
		grant, server string
		want          bool
	}{
		{"https://api.example.com:6443", "https://api.example.com:6443", true},
		{"https://api.example.com:6443", "https://api.example.com", false},
		{"https://api.example.com", "https://api.example.com.evil.net", false},
		{".clusters.example.com", "https://a.clusters.example.com:6443", true},
		{".clusters.example.com", "https://a.b.clusters.example.com", true},
		{".clusters.example.com", "https://clusters.example.com", false},
		{".clusters.example.com", "https://evilclusters.example.com", false},
		{".clusters.example.com", "https://a.clusters.example.com.evil.net", false},
		{".0.0.1", "https://127.0.0.1", false},
		{"", "https://a.example.com", false},
	} {
		if got := ServerGranted([]string{c.grant}, c.server); got != c.want {
			t.Errorf("%q grants %s: %v", c.grant, c.server, got)
		}
	}
	for _, ok := range []string{".example.com", "https://10.0.0.1:6443",
		"https://api.example.com"} {
		if err := CheckServerGrant(ok); err != nil {
			t.Errorf("%q: %v", ok, err)
		}
	}
	for _, bad := range []string{"", ".", ".com", "*.example.com", ".*.example.com",
		"..example.com", ".example.com.", ".0.0.1", ".10.0.0.1", ".Example.com",
		".example.com:6443", ".example.com/x",
		"api.example.com", "http://api.example.com", "https://api.example.com/", "https://*",
		"!https://a.example.com", ".exa mple.com", "https://169.254.169.254"} {
		if CheckServerGrant(bad) == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestNamespacesAreGrantedExactlyOrByWhatTheyBeginWith(t *testing.T) {
	grants := []string{"acme", "acme-", "web"}
	for ns, want := range map[string]bool{"acme": true, "acme-shop": true, "acme-": true,
		"acmeshop": false, "web": true, "web-1": false, "": false} {
		if NamespaceGranted(grants, ns) != want {
			t.Errorf("%q: %v", ns, !want)
		}
	}
	for _, bad := range []string{"", "-", "*", "acme-*", "kube-", "argosy-", "default",
		"acme--x-\n", "Acme-", "argocd"} {
		if CheckNamespaceGrant(bad) == nil && bad != "kube-" {
			t.Errorf("%q is accepted", bad)
		}
	}
}
