package configschema

import (
	"bytes"
	"encoding/base64"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"argosy.dev/argosy/fleet"
)

const secretFix = "revoke it, for Git keeps it; put the new one into a Secret and name that in credentialsRef"

// tokens are the forms of well-known secrets. The fixed text is looked for first, since it is
// hardly ever there.
var tokens = []struct {
	what  string
	fixed []string // one of them is in each
	form  *regexp.Regexp
}{
	{"a private key", []string{"PRIVATE KEY"}, regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY`)},
	{"an age identity", []string{"AGE-SECRET-KEY-"},
		regexp.MustCompile(`AGE-SECRET-KEY-(PQ-)?1[0-9A-Z]{20,}`)},
	{"a GitHub token", []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"},
		regexp.MustCompile(`\b(gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})`)},
	{"a GitLab token", []string{"glpat-"}, regexp.MustCompile(`\bglpat-[A-Za-z0-9_-]{16,}`)},
	{"a Slack token", []string{"xox"}, regexp.MustCompile(`\bxox[abeoprs]-[A-Za-z0-9-]{10,}`)},
	{"an AWS access key", []string{"AKIA", "ASIA"},
		regexp.MustCompile(`\b(AKIA|ASIA)[0-9A-Z]{16}\b`)},
	{"a Google API key", []string{"AIza"}, regexp.MustCompile(`\bAIza[0-9A-Za-z_-]{30,}`)},
	{"a Stripe key", []string{"k_live_"}, regexp.MustCompile(`\b[rs]k_live_[0-9A-Za-z]{16,}`)},
	{"a JSON web token", []string{"eyJ"},
		regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.`)},
	{"a URL with a password", []string{"@"},
		regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/@:"'<>{}]*:[^\s/@"'<>{}]+@`)},
}

// pemInBase64 is how "-----BEGIN" begins in base64.
var pemInBase64 = []byte("LS0tLS1CRUdJTi")

// secrets looks through the whole text, comments included, for what should have been encrypted
// (adversarial case 90: a committed token is told without being repeated).
func (d *decoder) secrets(text []byte) {
	for _, t := range tokens {
		if !slices.ContainsFunc(t.fixed, func(f string) bool {
			return bytes.Contains(text, []byte(f))
		}) {
			continue
		}
		for _, at := range t.form.FindAllIndex(text, maxProblems) {
			d.secretAt(text, at[0], t.what)
		}
	}
	for from := 0; ; {
		i := bytes.Index(text[from:], pemInBase64)
		if i < 0 {
			break
		}
		from += i
		n := base64Length(text[from:])
		if keyInBase64(text[from : from+n]) {
			d.secretAt(text, from, "a private key in base64")
		}
		from += n // the whole run was looked at: what begins within it is a part of it
	}
	d.passwords(text)
}

func (d *decoder) secretAt(text []byte, offset int, what string) {
	if len(d.problems) >= maxProblems { // a place costs a walk through the text
		d.untold++
		return
	}
	line := bytes.Count(text[:offset], []byte("\n")) + 1
	column := utf8.RuneCount(text[bytes.LastIndexByte(text[:offset], '\n')+1:offset]) + 1
	d.lineProblem(line, column, codePlaintextSecret, what+" stands here in clear", secretFix)
}

func base64Length(b []byte) int {
	n := 0
	for n < len(b) && (strings.IndexByte(alnum+"+/", b[n]) >= 0) {
		n++
	}
	return n
}

func keyInBase64(b []byte) bool {
	decoded := make([]byte, base64.RawStdEncoding.DecodedLen(len(b)))
	n, _ := base64.RawStdEncoding.Decode(decoded, b[:len(b)/4*4])
	return bytes.Contains(decoded[:n], []byte("PRIVATE KEY"))
}

// passwords finds "password: value" and its relatives, whatever text they stand in: a comment, a
// chart's values, an unknown field.
func (d *decoder) passwords(text []byte) {
	for i, c := range text {
		if c != ':' && c != '=' || i == 0 {
			continue
		}
		// the last letter of a secret's name, in lower case; quotes may follow it
		switch text[i-1] | 0x20 {
		case 'd', 'n', 't', 'y', 's', '"' | 0x20, '\'' | 0x20:
			if name := nameBefore(text, i); secretName(string(name)) && secretValue(text[i+1:]) {
				d.secretAt(text, i-len(name), "the value of "+plainName(string(name)))
			}
		}
	}
}

// nameBefore is the word that ends before i, without quotes.
func nameBefore(text []byte, i int) []byte {
	end := i
	if text[end-1] == '"' || text[end-1] == '\'' {
		end--
	}
	start := end
	for start > 0 && end-start < maxQuoted && strings.IndexByte(alnum+"_-.", text[start-1]) >= 0 {
		start--
	}
	return text[start:end]
}

// secretNames end the names of values that are secrets. "secret" alone is not among them:
// secretName, existingSecret name one.
var secretNames = []string{"password", "passwd", "passphrase", "pwd", "apikey", "secretkey",
	"privatekey", "clientsecret", "authtoken", "accesstoken",
	"bearertoken", "secrettoken", "apitoken", "refreshtoken", "secretaccesskey", "connectionstring"}

func secretName(name string) bool {
	if len(name) < 3 || len(name) > maxQuoted {
		return false
	}
	var buffer [maxQuoted]byte
	plain := buffer[:0] // the letters in lower case: db_Pass-word is dbpassword
	for i := range len(name) {
		if c := name[i]; c != '_' && c != '-' && c != '.' {
			plain = append(plain, c|0x20)
		}
	}
	if string(plain) == "token" || len(name) > 6 && strings.EqualFold(name[len(name)-6:],
		".token") {
		return true
	}
	for _, s := range secretNames {
		if len(plain) >= len(s) && string(plain[len(plain)-len(s):]) == s {
			return true
		}
	}
	return false
}

// secretValue reports whether what follows "name:" is a value in clear: not a blank, a number of no
// length, a boolean, a reference or prose.
func secretValue(after []byte) bool {
	// enough to judge by, and the cost of a line that never ends
	after = after[:min(len(after), maxText)]
	line, _, _ := bytes.Cut(after, []byte("\n"))
	v := strings.TrimLeft(string(line), " \t")
	if quote := v; quote != "" && (quote[0] == '"' || quote[0] == '\'') {
		inner, _, _ := strings.Cut(quote[1:], quote[:1])
		return inner != "" && !reference(inner)
	}
	v, _, _ = strings.Cut(v, " #")
	v = strings.TrimRight(v, " \t\r,}])")
	return v != "" && !strings.ContainsAny(v, " \t") && !reference(v)
}

// reference tells values that stand for a secret without being one.
func reference(v string) bool {
	switch strings.ToLower(v) {
	case "true", "false", "null", "~", "|", ">", "|-", ">-", "changeme", "redacted", "todo":
		return true
	}
	return len(v) < 3 || strings.ContainsAny(v[:1], "$<{[*%&!#") || strings.HasPrefix(v, "ENC[") ||
		strings.HasPrefix(v, "vault:") || strings.HasPrefix(v, "ref+") ||
		strings.Trim(v, "*x.") == ""
}

// noKeyInCAData finds a key behind the certificates, where no fixed text shows it.
func noKeyInCAData(d *decoder, into reflect.Value, at node) {
	if c := into.Addr().Interface().(*fleet.ClusterSpec); keyInBase64(
		[]byte(strings.TrimRight(c.CAData, "="))) {
		d.at("caData", func() {
			d.problem(child(at, "caData"), codePlaintextSecret,
				"caData holds a private key in clear", secretFix)
		})
	}
}

func parameterIsNoSecret(d *decoder, into reflect.Value, at node) {
	if p := into.Addr().Interface().(*fleet.HelmParameter); secretName(p.Name) && p.Value != "" &&
		!reference(p.Value) {
		d.at("value", func() {
			d.problem(child(at, "value"), codePlaintextSecret, "the value of "+plainName(p.Name)+
				" stands here in clear",
				"name a Secret of the cluster in the chart's values instead, and revoke this one")
		})
	}
}
