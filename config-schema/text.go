package configschema

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"argosy.dev/argosy/fleet"
)

// findings collects the problems of one file: up to maxProblems, and the number of the others.
type findings struct {
	problems []fleet.Problem
	omitted  int
}

// node is a value of the parsed file with its place in the text.
type node = *yaml.Node

type position struct{ line, column int }

const scalarNode = yaml.ScalarNode

// checkText checks the entry's type and size and the encoding of its text, before it is parsed.
func checkText(f File) (found findings) {
	switch {
	case f.Size < 0:
		found.add(0, 0, codeFileTooLarge,
			fmt.Sprintf("the file is too large to be read; at most %d bytes are", maxFile),
			"keep large values in the application's repository")
	case f.Size > 0:
		found.add(0, 0, codeFileTooLarge, fmt.Sprintf("the file has %d bytes; at most %d are read",
			f.Size, maxFile), "keep large values in the application's repository")
	case f.Irregular != "":
		found.add(0, 0, codeIrregular, "the entry is no regular file but a "+irregular(f)+
			"; it is never followed", "put the declaration itself here")
	case len(f.Bytes) > maxFile:
		found.add(0, 0, codeFileTooLarge, fmt.Sprintf("the file has %d bytes; at most %d are read",
			len(f.Bytes), maxFile), "keep large values in the application's repository")
	case bytes.HasPrefix(f.Bytes, []byte("version https://git-lfs.github.com/spec/")):
		found.add(0, 0, codeLFSPointer, "the file is a Git LFS pointer",
			"store it in Git itself: git lfs untrack, then add it again")
	case bytes.HasPrefix(f.Bytes, []byte("\xff\xfe")), bytes.HasPrefix(f.Bytes, []byte("\xfe\xff")):
		found.add(1, 1, codeEncoding, "the file is in UTF-16", "save it as UTF-8")
	case bytes.HasPrefix(f.Bytes, []byte("\xef\xbb\xbf")):
		found.add(1, 1, codeEncoding, "the file begins with a byte order mark",
			"save it as UTF-8 without BOM")
	default:
		return checkCharacters(f.Bytes)
	}
	return found
}

// irregular names the type of an irregular entry.
func irregular(f File) string {
	if f.Irregular == "symlink" || f.Irregular == "submodule" {
		return f.Irregular
	}
	return "special file (" + quoted(f.Irregular) + ")"
}

// checkCharacters refuses invisible characters and characters that change how the text reads
// (CVE-2021-42574), since people review these files. It reports each kind of mistake once.
func checkCharacters(b []byte) (found findings) {
	line, start := 1, 0
	report := func(i int, code, message, fix string) {
		if !slices.ContainsFunc(found.problems, func(p fleet.Problem) bool {
			return p.Message == message
		}) {
			found.add(line, utf8.RuneCount(b[start:i])+1, code, message, fix)
		}
	}
	for i := 0; i < len(b); {
		c := b[i]
		switch {
		case c == '\n':
			line, start = line+1, i+1
		case c >= ' ' && c < 0x7f || c == '\t':
		case c == '\r':
			if i+1 == len(b) || b[i+1] != '\n' {
				report(i, codeEncoding, "a line ends in CR alone", "end lines with LF")
			}
		case c == 0:
			report(i, codeEncoding, "the file holds a NUL byte", "save it as UTF-8 text")
		case c < utf8.RuneSelf:
			report(i, codeHiddenCharacter, fmt.Sprintf("control character U+%04X", c), "remove it")
		default:
			r, size := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && size == 1 {
				report(i, codeEncoding, "the file is not valid UTF-8", "save it as UTF-8")
			} else if hidden(r) && !inEmoji(string(b[max(0, i-utf8.UTFMax):i]), r,
				string(b[i+size:min(len(b), i+size+utf8.UTFMax)])) {
				report(i, codeHiddenCharacter,
					fmt.Sprintf("character U+%04X is not seen or changes how the text reads", r),
					"remove it")
			}
			i += size
			continue
		}
		i++
	}
	return found
}

// tokens are the forms of well-known secrets. A search for the fixed text comes first, since it is
// rarely there.
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
	{
		"an AWS access key", []string{"AKIA", "ASIA"},
		regexp.MustCompile(`\b(AKIA|ASIA)[0-9A-Z]{16}\b`)},
	{"a Google API key", []string{"AIza"}, regexp.MustCompile(`\bAIza[0-9A-Za-z_-]{30,}`)},
	{"a Stripe key", []string{"k_live_"}, regexp.MustCompile(`\b[rs]k_live_[0-9A-Za-z]{16,}`)},
	{
		"a JSON web token", []string{"eyJ"},
		regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.`)},
	{
		"a URL with a password", []string{"@"},
		regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/@:"'<>{}]*:[^\s/@"'<>{}]+@`)},
}

// pemInBase64 is how "-----BEGIN" begins in base64.
var pemInBase64 = []byte("LS0tLS1CRUdJTi")

// findSecrets scans the whole text, comments included, for secrets in plaintext. It reports a
// committed token without repeating it.
func findSecrets(text []byte) (found findings) {
	for _, t := range tokens {
		if !slices.ContainsFunc(t.fixed, func(f string) bool {
			return bytes.Contains(text, []byte(f))
		}) {
			continue
		}
		for _, at := range t.form.FindAllIndex(text, maxProblems) {
			found.addSecret(text, at[0], t.what)
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
			found.addSecret(text, from, "a private key in base64")
		}
		from += n // the whole run is scanned, including anything that begins within it
	}
	found.addPasswords(text)
	return found
}

func base64Length(b []byte) int {
	n := 0
	for n < len(b) && (strings.IndexByte(alnum+"+/", b[n]) >= 0) {
		n++
	}
	return n
}

// addPasswords finds "password: value" and similar in any text: a comment, a chart's values, an
// unknown field.
func (f *findings) addPasswords(text []byte) {
	for i, c := range text {
		if c != ':' && c != '=' || i == 0 {
			continue
		}
		// the last letter of a secret's name, in lower case; quotes may follow it
		switch text[i-1] | 0x20 {
		case 'd', 'n', 't', 'y', 's', '"' | 0x20, '\'' | 0x20:
			if name := nameBefore(text, i); secretName(string(name)) && secretValue(text[i+1:]) {
				f.addSecret(text, i-len(name), "the value of "+plainName(string(name)))
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

// secretValue reports whether a plaintext value follows "name:": not a blank, a very short text, a
// boolean, a reference or prose.
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

const secretFix = "revoke it, for Git keeps it; put the new one into a Secret and name that in credentialsRef"

func (f *findings) addSecret(text []byte, offset int, what string) {
	if f.full() { // a position costs a walk through the text
		f.omitted++
		return
	}
	line := bytes.Count(text[:offset], []byte("\n")) + 1
	column := utf8.RuneCount(text[bytes.LastIndexByte(text[:offset], '\n')+1:offset]) + 1
	f.add(line, column, codePlaintextSecret, what+" is in plaintext", secretFix)
}

// yamlParser parses one text.
type yamlParser struct {
	findings
	lone     map[position]bool // positions of a "!" without a name: see loneTags
	inValues bool              // the text is a chart's values
}

// parse parses the one document of a text and refuses the features of YAML that hide its meaning.
// Without a root, the findings give the reason.
func parse(text []byte, inValues bool) (root node, found findings) {
	p := yamlParser{inValues: inValues}
	root = p.parse(text)
	return root, p.findings
}

func (p *yamlParser) parse(b []byte) node {
	if line := directive(b); line > 0 {
		p.add(line, 1, codeYAMLFeature, "directives (%YAML, %TAG) are not read", "remove the line")
		return nil
	}
	var doc, second yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(b))
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) || err == nil && emptyDocument(&doc) {
		if p.inValues {
			p.add(0, 0, codeEmptyFile, "the text holds no value",
				"write key: value, or remove the field")
		} else {
			p.add(0, 0, codeEmptyFile, "the file holds no declaration",
				"write the declaration, or remove the file")
		}
		return nil
	}
	if err == nil {
		err = dec.Decode(&second)
		if err == nil {
			message, fix := "the file holds several documents",
				"put each declaration into its own file"
			if p.inValues {
				message, fix = "the text holds several documents",
					"remove the line --- and write all values as one map"
			}
			p.add(max(second.Line, 1), 1, codeYAMLFeature, message, fix)
			return nil
		}
	}
	if !errors.Is(err, io.EOF) {
		p.syntax(b, err)
		return nil
	}
	root := doc.Content[0]
	p.lone = loneTags(b)
	if !p.plain(root, 1) {
		return nil
	}
	return root
}

// directive is the line of a %directive, or 0. A '%' can begin no line of a block's content, which
// is indented.
func directive(b []byte) int {
	if bytes.HasPrefix(b, []byte("%")) {
		return 1
	}
	if i := bytes.Index(b, []byte("\n%")); i >= 0 {
		return bytes.Count(b[:i], []byte("\n")) + 2
	}
	return 0
}

func emptyDocument(doc node) bool {
	return len(doc.Content) == 0 || doc.Content[0].Kind == yaml.ScalarNode &&
		doc.Content[0].Tag == "!!null" && doc.Content[0].Value == ""
}

// syntaxHelp maps the parser's messages to a message and a fix for people.
var syntaxHelp = []struct{ words, message, fix string }{
	{"mapping values are not allowed", "a ':' is not allowed here",
		"put the value in quotes, or fix the indentation"},
	{"cannot start any token", "a value begins with a tab or with a character that YAML reserves",
		"indent with blanks; put a value that begins with @, `, % or | in quotes"},
	{"tab character", "a tab is used for indentation", "indent with blanks"},
	{"could not find expected ':'", "a key has no ':'", "write key: value"},
	{"did not find expected key", "the indentation is wrong, or a quote or bracket is not closed",
		"indent the fields of one map alike; the mistake is in the block that begins here"},
	{"did not find expected '-' indicator", "the entries of a list are not indented alike",
		"put each '-' into the same column"},
	{"did not find expected ',' or", "a '[' or '{' is not closed, or a ',' is missing",
		"close it, or write the list over several lines"},
	{"unexpected end of stream", "a quote is not closed", "close it"},
	{"unknown anchor", "aliases (*name) are not read",
		"write the value itself; put a text that begins with '*' in quotes"},
	{"exceeded max depth", "maps and lists are nested too deep",
		"flatten the file; a declaration needs 8 levels"},
	{
		"unknown escape character",
		"a backslash in double quotes begins an escape that YAML does not know",
		"use single quotes"},
}

func (p *yamlParser) syntax(b []byte, err error) {
	text, line := strings.TrimPrefix(err.Error(), "yaml: "), 1
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		number, after, _ := strings.Cut(rest, ": ")
		if n, err := strconv.Atoi(number); err == nil {
			line, text = n, after
		}
	}
	if _, after, ok := strings.Cut(text, "unknown anchor '"); ok { // the parser gives no line
		name, _, _ := strings.Cut(after, "'")
		line = bytes.Count(b[:max(bytes.Index(b, []byte("*"+name)), 0)], []byte("\n")) + 1
	}
	line = min(max(line, 1), bytes.Count(b, []byte("\n"))+1)
	code, message, fix := codeSyntax, "the file is not valid YAML",
		"check this line and the one before it"
	if p.inValues {
		message = "the text is not valid YAML"
	}
	for _, h := range syntaxHelp {
		if strings.Contains(text, h.words) {
			message, fix = h.message, h.fix
			break
		}
	}
	switch {
	case strings.Contains(text, "unknown anchor"):
		code = codeYAMLFeature
	case strings.Contains(text, "exceeded max depth"):
		code, fix = codeTooDeep, p.flatten()
	}
	p.add(line, 1, code, message, fix)
}

// loneTags returns the positions of each "!" without a name. It is nil for nearly every file.
func loneTags(text []byte) map[position]bool {
	if !bytes.Contains(text, []byte("!")) {
		return nil
	}
	places, line := map[position]bool{}, 1
	for l := range bytes.Lines(text) {
		column, before := 1, ' '
		for i, r := range string(l) {
			if r == '!' && strings.ContainsRune(" \t[{,", before) &&
				(i+1 == len(l) || strings.IndexByte(" \t\r\n[]{},", l[i+1]) >= 0) {
				places[position{line, column}] = true
			}
			before = r
			column++
		}
		line++
	}
	return places
}

// plain reports whether the tree holds only maps with text keys, lists and untagged scalars, and is
// not too deep. It is checked on the tree, where an alias is one node whatever it would expand to.
func (p *yamlParser) plain(n node, depth int) bool {
	if depth > maxDepth {
		p.add(n.Line, n.Column, codeTooDeep, "maps and lists are nested deeper than "+
			strconv.Itoa(maxDepth), p.flatten())
		return false
	}
	if feature := p.featureOf(n); feature != "" {
		p.add(n.Line, n.Column, codeYAMLFeature, feature+" are not read", "write the value itself")
		return false
	}
	ok := true
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			if c.Kind != yaml.ScalarNode {
				p.add(c.Line, c.Column, codeYAMLFeature, "maps and lists as keys are not read",
					"write a plain word as the key")
				ok = false
				continue
			}
			if c.Tag == "!!merge" {
				p.add(c.Line, c.Column, codeYAMLFeature, "merge keys are not read",
					"write the fields themselves")
				ok = false
				continue
			}
		}
		ok = p.plain(c, depth+1) && ok
	}
	return ok
}

func (p *yamlParser) flatten() string {
	if p.inValues {
		return "flatten the values; they may have " + strconv.Itoa(maxDepth) + " levels"
	}
	return "flatten the file; a declaration needs 8 levels"
}

// featureOf returns the YAML feature of a node that declarations do not allow, or "". The tree does
// not show a "!" without a name, which is a tag: it is found by the node's position, since no
// untagged value begins with "!".
func (p *yamlParser) featureOf(n node) string {
	switch {
	case n.Kind == yaml.AliasNode:
		return "aliases (*name)"
	case n.Anchor != "":
		return "anchors (&name)"
	case n.Style&yaml.TaggedStyle != 0, p.lone[position{n.Line, n.Column}]:
		return "tags (!name)"
	}
	return ""
}

// sealedFile is a `*.sops.yaml` that is being checked.
type sealedFile struct {
	findings
	path string
}

// checkSealed checks a `*.sops.yaml`: every value is encrypted, for age recipients alone. It never
// decrypts the content and never repeats it.
func checkSealed(root node, path string) findings {
	s := sealedFile{path: path}
	s.check(root)
	return s.findings
}

func (s *sealedFile) check(root node) {
	meta := child(root, "sops")
	if meta == nil || meta.Kind != yaml.MappingNode {
		s.add(root.Line, root.Column, codePlaintextSecret,
			"the file is not encrypted: it has no sops metadata", "revoke its content, then "+
				s.encryptWith("--recipient <recipient> < values"))
		return
	}
	if s.repeatsKeys(root) || s.repeatsKeys(meta) {
		return
	}
	if len(root.Content) == 2 {
		s.add(root.Line, root.Column, codeSealed, "the file holds no value",
			s.encryptWith("--recipient <recipient> < values"))
		s.checkRecipients(meta)
		return
	}
	s.checkBinding(root)
	for i := 0; i+1 < len(root.Content); i += 2 {
		if key := root.Content[i]; key.Value != "sops" && key.Value != fleet.EncryptedForKey {
			s.checkEncrypted(root.Content[i+1])
		}
	}
	s.checkRecipients(meta)
}

func (s *sealedFile) repeatsKeys(n node) bool {
	repeated := repeatedKeys(n)
	for _, r := range repeated {
		s.addAt(fieldPath([]step{{r.second.Value, -1}}), r.second.Line, r.second.Column,
			codeDuplicateKey, r.message(), "keep one of them")
	}
	return len(repeated) > 0
}

// repeatedKey is a key that a map has twice, or twice with different case: parsers differ on which
// of the two counts (kubernetes-sigs/yaml#15).
type repeatedKey struct{ first, second node }

func repeatedKeys(n node) (repeated []repeatedKey) {
	if len(n.Content) <= 64 { // a small map costs no allocation
		for i := 2; i+1 < len(n.Content); i += 2 {
			for j := 0; j < i; j += 2 {
				if a, b := n.Content[j], n.Content[i]; len(a.Value) == len(b.Value) &&
					strings.EqualFold(a.Value, b.Value) {
					repeated = append(repeated, repeatedKey{a, b})
					break
				}
			}
		}
		return repeated
	}
	first := make(map[string]node, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		folded := strings.ToLower(key.Value)
		if before, twice := first[folded]; twice {
			repeated = append(repeated, repeatedKey{before, key})
			continue
		}
		first[folded] = key
	}
	return repeated
}

func (r repeatedKey) message() string {
	how := "is repeated"
	if r.first.Value != r.second.Value {
		how = "is repeated with different case"
	}
	return fmt.Sprintf("key %s %s; first on line %d", quoted(r.second.Value), how, r.first.Line)
}

// otherKeys are sops' other key services. Each would have the control plane call out, or decrypt
// with a key that is not the platform's.
var otherKeys = []string{"kms", "pgp", "gcp_kms", "azure_kv", "hc_vault", "hckms", "key_groups",
	"shamir_threshold"}

func (s *sealedFile) checkRecipients(meta node) {
	for _, name := range otherKeys {
		if n := child(meta, name); n != nil && n.Tag != "!!null" &&
			(len(n.Content) > 0 || n.Kind == yaml.ScalarNode && n.Value != "" && n.Value != "0") {
			s.add(n.Line, n.Column, codeSealed, "the file is encrypted with "+name+
				"; only age is read", "encrypt it again with --age alone")
		}
	}
	recipients := child(meta, "age")
	if recipients == nil || recipients.Kind != yaml.SequenceNode || len(recipients.Content) == 0 {
		s.add(meta.Line, meta.Column, codeSealed, "the file has no age recipient",
			s.encryptWith("--recipient <recipient> < values"))
		return
	}
	for _, r := range recipients.Content {
		to, enc := child(r, "recipient"), child(r, "enc")
		if to == nil || !strings.HasPrefix(to.Value, "age1") || enc == nil ||
			!strings.HasPrefix(enc.Value, "-----BEGIN AGE ENCRYPTED FILE-----") {
			s.add(r.Line, r.Column, codeSealed,
				"an entry of sops.age has no recipient and encrypted key",
				"encrypt the file again with --age <recipient>")
		}
	}
	if mac := child(meta, "mac"); mac == nil ||
		!strings.HasPrefix(mac.Value, "ENC[AES256_GCM,data:") {
		s.add(meta.Line, meta.Column, codeSealed, "the file has no message authentication code",
			"encrypt it again; without the code anyone could have changed the file")
	}
}

// checkBinding demands the key under which the file holds its own path, encrypted. Only decryption
// can verify the path.
func (s *sealedFile) checkBinding(root node) {
	fix := s.encryptWith(
		"--recipient <recipient> < values, or, to encrypt the values that it has again, " +
			"--identity <key file>")
	value := child(root, fleet.EncryptedForKey)
	switch {
	case value == nil:
		s.add(root.Line, root.Column, codeUnbound,
			"the file does not name its path: it has no key "+fleet.EncryptedForKey, fix)
	case !isCiphertext(value):
		s.add(value.Line, value.Column, codeUnbound, "the value of "+fleet.EncryptedForKey+
			" is not encrypted, so that anyone could have written it", fix)
	}
}

// encryptWith is the command that writes the file.
func (s *sealedFile) encryptWith(rest string) string {
	return "run: argosy encrypt " + quoted(s.path) + " " + rest
}

func isCiphertext(n node) bool {
	return n.Kind == yaml.ScalarNode && strings.HasPrefix(n.Value, "ENC[AES256_GCM,data:") &&
		strings.HasSuffix(n.Value, ",type:str]")
}

// checkEncrypted demands that each leaf is ciphertext. sops does not encrypt "" and null, which
// reveal nothing.
func (s *sealedFile) checkEncrypted(n node) {
	if n.Kind != yaml.ScalarNode {
		for i, c := range n.Content {
			if n.Kind == yaml.SequenceNode || i%2 == 1 {
				s.checkEncrypted(c)
			}
		}
		return
	}
	if n.Value != "" && n.Tag != "!!null" &&
		(!strings.HasPrefix(n.Value, "ENC[AES256_GCM,data:") || !strings.HasSuffix(n.Value, "]")) {
		s.add(n.Line, n.Column, codePlaintextSecret, "a value of an encrypted file is in plaintext",
			"revoke it, then encrypt the whole file, without unencrypted_suffix or encrypted_regex")
	}
}

// add adds an error at a position of the text. Line and column count from 1; 0 is the whole file.
func (f *findings) add(line, column int, code, message, fix string) {
	f.addAt("", line, column, code, message, fix)
}

// addAt adds an error of a field.
func (f *findings) addAt(field string, line, column int, code, message, fix string) {
	if f.full() {
		f.omitted++
		return
	}
	f.problems = append(f.problems, fleet.Problem{Field: field, Line: line, Column: column,
		Severity: fleet.SeverityError, Code: code, Message: message, Fix: fix})
}

func (f *findings) full() bool { return len(f.problems) >= maxProblems }
func (f *findings) any() bool  { return len(f.problems) > 0 }

// unseen reports whether a decoded text holds a character that it may not: an escape in double
// quotes can produce what checkCharacters refuses.
func unseen(s string) bool {
	for i, r := range s {
		switch {
		case r < ' ' && r != '\n' && r != '\t' || r == 0x7f:
			return true
		case r >= utf8.RuneSelf && hidden(r) && !inEmoji(s[:i], r, s[i+utf8.RuneLen(r):]):
			return true
		}
	}
	return false
}

// inEmoji reports whether a hidden character is a part of an emoji and visible by that: a variation
// selector after a pictograph or in a keycap, and a joiner between two pictographs.
func inEmoji(before string, r rune, after string) bool {
	was, _ := utf8.DecodeLastRuneInString(before)
	next, _ := utf8.DecodeRuneInString(after)
	switch r {
	case 0xfe0e, 0xfe0f:
		return pictograph(was) ||
			next == 0x20e3 && (was >= '0' && was <= '9' || was == '#' || was == '*')
	case 0x200d:
		return (pictograph(was) || was == 0xfe0f) && pictograph(next)
	}
	return false
}

func pictograph(r rune) bool {
	switch {
	case r >= 0x1f3fb && r <= 0x1f3ff: // skin tones
		return true
	case r >= 0x2194 && r <= 0x21aa, r == 0x203c, r == 0x2049: // arrows, exclamation marks
		return true
	}
	return unicode.Is(unicode.So, r) && r != utf8.RuneError
}

// hidden reports characters that only YAML takes for line breaks, that have no width, or that
// change the direction of the text.
func hidden(r rune) bool {
	switch {
	case r >= 0x80 && r <= 0xa0, r == 0xad, r == 0x034f, r == 0x061c, r == 0x115f, r == 0x1160,
		r == 0x17b4, r == 0x17b5, r == 0x180e, r == 0x3164, r == 0xffa0:
		return true
	case r >= 0x2000 && r <= 0x200f, r >= 0x2028 && r <= 0x202f, r >= 0x205f && r <= 0x206f,
		r == 0x3000, r == 0xfeff, r >= 0xfff9 && r <= 0xfffc:
		return true
	case r >= 0xe000 && r <= 0xf8ff, r >= 0xfe00 && r <= 0xfe0f, r >= 0xe0000, r == 0xfffe,
		r == 0xffff:
		return true // private use, variation selectors, tags
	}
	return false
}

// noKeyInCAData finds a key behind the certificates, where no fixed text shows it.
func noKeyInCAData(d *decoder, into reflect.Value, at node) {
	refuseKey(d, into.Addr().Interface().(*fleet.ClusterSpec).CAData, at)
}

// noKeyInCluster is noKeyInCAData for a Cluster.
func noKeyInCluster(d *decoder, into reflect.Value, at node) {
	refuseKey(d, into.Addr().Interface().(*fleet.PlatformClusterSpec).CAData, at)
}

func refuseKey(d *decoder, caData string, at node) {
	if keyInBase64([]byte(strings.TrimRight(caData, "="))) {
		d.at("caData", func() {
			d.problem(child(at, "caData"), codePlaintextSecret,
				"caData holds a private key in clear", secretFix)
		})
	}
}

func keyInBase64(b []byte) bool {
	decoded := make([]byte, base64.RawStdEncoding.DecodedLen(len(b)))
	n, _ := base64.RawStdEncoding.Decode(decoded, b[:len(b)/4*4])
	return bytes.Contains(decoded[:n], []byte("PRIVATE KEY"))
}

func parameterIsNoSecret(d *decoder, into reflect.Value, at node) {
	if p := into.Addr().Interface().(*fleet.HelmParameter); secretName(p.Name) && p.Value != "" &&
		!reference(p.Value) {
		d.at("value", func() {
			d.problem(child(at, "value"), codePlaintextSecret, "the value of "+plainName(p.Name)+
				" is in plaintext",
				"name a Secret of the cluster in the chart's values instead, and revoke this one")
		})
	}
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
	if string(plain) == "token" || len(name) > 6 &&
		strings.EqualFold(name[len(name)-6:], ".token") {
		return true
	}
	for _, s := range secretNames {
		if len(plain) >= len(s) && string(plain[len(plain)-len(s):]) == s {
			return true
		}
	}
	return false
}

// reference reports whether a value refers to a secret without being one.
func reference(v string) bool {
	switch strings.ToLower(v) {
	case "true", "false", "null", "~", "|", ">", "|-", ">-", "changeme", "redacted", "todo":
		return true
	}
	return len(v) < 3 || strings.ContainsAny(v[:1], "$<{[*%&!#") || strings.HasPrefix(v, "ENC[") ||
		strings.HasPrefix(v, "vault:") || strings.HasPrefix(v, "ref+") ||
		strings.Trim(v, "*x.") == ""
}

// report returns the problems in the order of the file.
func (f *findings) report(key fleet.Key, path string) []fleet.Problem {
	problems := f.problems
	slices.SortStableFunc(problems, func(a, b fleet.Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Field, b.Field), cmp.Compare(a.Code, b.Code))
	})
	problems = slices.Compact(problems)
	if f.omitted > 0 {
		problems = append(
			problems, fleet.Problem{Severity: fleet.SeverityError, Code: codeTooManyProblems,
				Message: fmt.Sprintf("%d more problems of this file are not shown", f.omitted),
				Fix:     "fix the problems above first"})
	}
	for i := range problems {
		problems[i].Key, problems[i].Path = key, path
	}
	return problems
}
