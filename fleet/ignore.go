package fleet

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// IgnoreDifference names fields of resources whose difference from the source Argo CD ignores. It
// concerns the comparison of its own Application only.
type IgnoreDifference struct {
	// Group and Kind are exact, or AnyKind. Group "" is the core group.
	Group string `json:"group,omitempty"`
	Kind  string `json:"kind"`
	// Name and Namespace are exact; empty: any.
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`

	JSONPointers      []string `json:"jsonPointers,omitempty"`      // RFC 6901
	JQPathExpressions []string `json:"jqPathExpressions,omitempty"` // checked by fleet/jq
	// names of field managers whose fields are ignored; exact
	ManagedFieldsManagers []string `json:"managedFieldsManagers,omitempty"`
}

// AnyKind is the group or the kind of an IgnoreDifference for all of them: the only pattern that
// reaches Argo CD, which reads both as globs.
const AnyKind = "*"

// Info is a line of information about an Application.
type Info struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Link is a link from an Application to a page about it.
type Link struct {
	Title string `json:"title,omitempty"`
	URL   string `json:"url"`
}

// Limits of a deployment's fields for people, and of its history.
const (
	MaxRevisionHistory = 100
	MaxLinks           = 10
	MaxInfo            = 20
)

// CheckJSONPointer accepts a JSON pointer (RFC 6901) to a part of a resource.
func CheckJSONPointer(p string) error {
	switch {
	case p == "":
		return errors.New("the pointer is empty; it would ignore the whole resource")
	case !strings.HasPrefix(p, "/"):
		return errors.New("a JSON pointer begins with /")
	}
	for rest := p; ; {
		_, after, found := strings.Cut(rest, "~")
		if !found {
			return nil
		}
		if after == "" || after[0] != '0' && after[0] != '1' {
			return errors.New("in a JSON pointer ~ is written ~0, and / inside a key ~1")
		}
		rest = after
	}
}

// CheckIgnoredGroup accepts an exact API group or AnyKind.
func CheckIgnoredGroup(s string) error {
	if s == "" || s == AnyKind {
		return nil
	}
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" ||
		s != strings.Trim(s, ".-") || len(s) > 253 {
		return fmt.Errorf("%q is neither an API group nor %q", s, AnyKind)
	}
	return nil
}

// CheckIgnoredKind accepts an exact kind or AnyKind.
func CheckIgnoredKind(s string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if s == AnyKind {
		return nil
	}
	if s == "" || len(s) > 63 || strings.Trim(s, letters+"0123456789") != "" ||
		!strings.Contains(letters, s[:1]) {
		return fmt.Errorf("%q is neither a kind nor %q", s, AnyKind)
	}
	return nil
}

// CheckResourceName accepts the exact name of a resource of any kind, as the API server does, and
// refuses pattern characters: Argo CD compares names exactly.
func CheckResourceName(s string) error {
	switch {
	case s == "" || s == "." || s == ".." || len(s) > 253:
		return errors.New("a name has 1 to 253 characters")
	case strings.ContainsAny(s, "*?[]{}!\\/% \t\r\n"):
		return errors.New("a name is exact; patterns, '/', '%' and blanks are not allowed")
	}
	return nil
}

// Check returns an error if a field is refused. Jq checks a jq path expression.
func (i IgnoreDifference) Check(jq func(string) error) error {
	if err := errors.Join(CheckIgnoredGroup(i.Group), CheckIgnoredKind(i.Kind)); err != nil {
		return err
	}
	for _, name := range []string{i.Name, i.Namespace} {
		if name == "" {
			continue
		}
		if err := CheckResourceName(name); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
	if len(i.JSONPointers)+len(i.JQPathExpressions)+len(i.ManagedFieldsManagers) == 0 {
		return errors.New("it names no field")
	}
	for _, p := range i.JSONPointers {
		if err := CheckJSONPointer(p); err != nil {
			return fmt.Errorf("jsonPointers %q: %w", p, err)
		}
	}
	for _, e := range i.JQPathExpressions {
		if err := jq(e); err != nil {
			return fmt.Errorf("jqPathExpressions %q: %w", e, err)
		}
	}
	for _, m := range i.ManagedFieldsManagers {
		if err := CheckFieldManager(m); err != nil {
			return fmt.Errorf("managedFieldsManagers %q: %w", m, err)
		}
	}
	return nil
}

// CheckFieldManager accepts the name of a field manager, exactly.
func CheckFieldManager(s string) error {
	if s == "" || len(s) > 128 {
		return errors.New("a field manager has 1 to 128 characters")
	}
	if strings.ContainsAny(s, "*?") {
		return errors.New("a pattern matches no field manager: Argo CD compares their names exactly")
	}
	return nil
}

// CheckLinkURL accepts an http:// or https:// URL. Browsers run javascript: and data: URLs
// (CVE-2022-31035), and Argo CD's page splits the text of a link at "|".
func CheckLinkURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return errors.New("the text is no URL")
	case u.Scheme != "https" && u.Scheme != "http":
		return errors.New("only http:// and https:// URLs are allowed")
	case u.Host == "" || u.Opaque != "":
		return errors.New("the URL has no host")
	case u.User != nil:
		return errors.New("the URL holds a user")
	case strings.ContainsAny(s, "|<>\"'`\\ ") || strings.ContainsFunc(s, notPrintable):
		return errors.New("the URL holds a character that must be escaped as %XX")
	}
	return nil
}

// CheckLinkTitle accepts the title of a link.
func CheckLinkTitle(s string) error {
	if strings.ContainsAny(s, "|<>") || strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' || r == 0x7f
	}) {
		return errors.New("a title holds none of | < > and no control characters")
	}
	return nil
}

// CheckInfoValue refuses a value that a page could make an active link of.
func CheckInfoValue(s string) error {
	scheme, _, found := strings.Cut(strings.ToLower(strings.TrimSpace(s)), ":")
	if found {
		switch scheme {
		case "javascript", "data", "vbscript", "file", "blob":
			return fmt.Errorf("%s: URLs are not allowed", scheme)
		}
	}
	return nil
}

func notPrintable(r rune) bool { return r <= ' ' || r >= 0x7f }
