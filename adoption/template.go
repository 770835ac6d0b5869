package adoption

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

// renderer fills the templates of an ApplicationSet, in the older form ({{name}}) or as Go
// templates.
type renderer struct {
	goTemplate bool
	strict     bool // missingkey=error
	guarded    bool // a comparison with a value of an assumed cluster is an error
}

// tree fills every text of a tree, keys included.
func (r renderer) tree(v any, p parameters) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			name, err := r.text(k, p)
			if err != nil {
				return nil, err
			}
			if out[name], err = r.tree(e, p); err != nil {
				return nil, err
			}
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			var err error
			if out[i], err = r.tree(e, p); err != nil {
				return nil, err
			}
		}
		return out, nil
	case string:
		return r.text(v, p)
	}
	return v, nil
}

var tag = regexp.MustCompile(`\{\{\s*([^{}]*?)\s*\}\}`)

// maxRendered bounds the bytes of one rendered text.
const maxRendered = 1 << 20

func (r renderer) text(s string, p parameters) (string, error) {
	if !strings.Contains(s, "{{") {
		return s, nil
	}
	if !r.goTemplate {
		return tag.ReplaceAllStringFunc(s, func(found string) string {
			if v, ok := p[tag.FindStringSubmatch(found)[1]]; ok {
				return fmt.Sprint(v)
			}
			return found // as Argo CD does; the Application is refused as a template
		}), nil
	}
	missing := "missingkey=default"
	if r.strict {
		missing = "missingkey=error"
	}
	t := template.New("").Option(missing).Funcs(functions)
	if r.guarded {
		t.Funcs(guards)
	}
	t, err := t.Parse(s)
	if err != nil {
		return "", fmt.Errorf("template: %s", templateError(err))
	}
	out := &limited{}
	if err := t.Execute(out, map[string]any(p)); err != nil {
		return "", fmt.Errorf("template: %s", templateError(err))
	}
	return out.String(), nil
}

func templateError(err error) string {
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), "template: "), ":")
}

// limited is a buffer of at most maxRendered bytes.
type limited struct{ bytes.Buffer }

func (l *limited) Write(b []byte) (int, error) {
	if l.Len()+len(b) > maxRendered {
		return 0, errors.New("the rendered text is too long")
	}
	return l.Buffer.Write(b)
}

// functions are those of Argo CD and the usual ones of sprig. A template that calls another one is
// refused with its name.
var functions = template.FuncMap{
	"normalize": normalizeName,
	"slugify": func(args ...any) string {
		return normalizeName(fmt.Sprint(args[len(args)-1]))
	},
	"toYaml": func(v any) string { return strings.TrimSuffix(writeYAML(v), "\n") },
	"fromYaml": func(s string) (map[string]any, error) {
		return parse(s)
	},
	"fromYamlArray": func(s string) ([]any, error) {
		tree, err := parse("list:\n" + indent(s))
		return list(tree, "list"), err
	},
	"toJson": func(v any) (string, error) {
		b, err := json.Marshal(v)
		return string(b), err
	},
	"fromJson": func(s string) (any, error) {
		tree, err := parse("json: " + s)
		return tree["json"], err
	},
	"lower": strings.ToLower, "upper": strings.ToUpper, "trim": strings.TrimSpace,
	"trimPrefix": func(prefix, s string) string { return strings.TrimPrefix(s, prefix) },
	"trimSuffix": func(suffix, s string) string { return strings.TrimSuffix(s, suffix) },
	"trimAll":    func(set, s string) string { return strings.Trim(s, set) },
	"trunc": func(n int, s string) string {
		if n < 0 && len(s)+n > 0 {
			return s[len(s)+n:]
		}
		if n >= 0 && len(s) > n {
			return s[:n]
		}
		return s
	},
	"replace":   func(old, with, s string) string { return strings.ReplaceAll(s, old, with) },
	"contains":  func(part, s string) bool { return strings.Contains(s, part) },
	"hasPrefix": func(prefix, s string) bool { return strings.HasPrefix(s, prefix) },
	"hasSuffix": func(suffix, s string) bool { return strings.HasSuffix(s, suffix) },
	"splitList": func(sep, s string) []any { return anys(strings.Split(s, sep)) },
	"split": func(sep, s string) map[string]any {
		parts := map[string]any{}
		for i, part := range strings.Split(s, sep) {
			parts["_"+strconv.Itoa(i)] = part
		}
		return parts
	},
	"join": func(sep string, l []any) string {
		parts := make([]string, len(l))
		for i, v := range l {
			parts[i] = fmt.Sprint(v)
		}
		return strings.Join(parts, sep)
	},
	"first": func(l []any) any {
		if len(l) == 0 {
			return nil
		}
		return l[0]
	},
	"last": func(l []any) any {
		if len(l) == 0 {
			return nil
		}
		return l[len(l)-1]
	},
	"list": func(v ...any) []any { return v },
	"has": func(v any, l []any) bool {
		for _, e := range l {
			if same(v, e) {
				return true
			}
		}
		return false
	},
	"dict": func(v ...any) map[string]any {
		m := map[string]any{}
		for i := 0; i+1 < len(v); i += 2 {
			m[fmt.Sprint(v[i])] = v[i+1]
		}
		return m
	},
	"get":    func(m map[string]any, k string) any { return m[k] },
	"hasKey": func(m map[string]any, k string) bool { _, ok := m[k]; return ok },
	"dig":    dig,
	"default": func(otherwise any, v ...any) any {
		if len(v) == 0 || absentValue(v[0]) {
			return otherwise
		}
		return v[0]
	},
	"coalesce": func(v ...any) any {
		for _, e := range v {
			if !absentValue(e) {
				return e
			}
		}
		return nil
	},
	"empty": absentValue,
	"ternary": func(yes, no any, is bool) any {
		if is {
			return yes
		}
		return no
	},
	"toString": func(v any) string { return fmt.Sprint(v) },
	"quote":    func(v any) string { return strconv.Quote(fmt.Sprint(v)) },
	"squote":   func(v any) string { return "'" + fmt.Sprint(v) + "'" },
	"indent":   func(n int, s string) string { return indented(n, s) },
	"nindent":  func(n int, s string) string { return "\n" + indented(n, s) },
	"base":     path.Base, "dir": path.Dir, "ext": path.Ext,
	"int": func(v any) (int, error) { return strconv.Atoi(fmt.Sprint(v)) },
	"add": func(a, b any) (int, error) {
		x, err := strconv.Atoi(fmt.Sprint(a))
		if err != nil {
			return 0, err
		}
		y, err := strconv.Atoi(fmt.Sprint(b))
		return x + y, err
	},
	"regexReplaceAll": func(form, s, with string) (string, error) {
		re, err := regexp.Compile(form)
		if err != nil {
			return "", err
		}
		return re.ReplaceAllString(s, with), nil
	},
	"regexMatch": func(form, s string) (bool, error) { return regexp.MatchString(form, s) },
}

// guards are functions that compare texts. The result for an assumed cluster would be that of no
// other one.
var guards = template.FuncMap{
	"eq": func(a any, others ...any) (bool, error) {
		return slices.ContainsFunc(others, func(b any) bool { return same(a, b) }),
			compares(append(others, a)...)
	},
	"ne": func(a, b any) (bool, error) { return !same(a, b), compares(a, b) },
	"contains": func(part, s string) (bool, error) {
		return strings.Contains(s, part), compares(part, s)
	},
	"hasPrefix": func(prefix, s string) (bool, error) {
		return strings.HasPrefix(s, prefix), compares(prefix, s)
	},
	"hasSuffix": func(suffix, s string) (bool, error) {
		return strings.HasSuffix(s, suffix), compares(suffix, s)
	},
	"regexMatch": func(form, s string) (bool, error) {
		is, err := regexp.MatchString(form, s)
		return is, errors.Join(err, compares(s))
	},
	"has": func(v any, l []any) (bool, error) {
		return slices.ContainsFunc(l, func(e any) bool { return same(v, e) }), compares(v, l)
	},
}

// assumedValue matches the marks of assumed clusters and items.
var assumedValue = regexp.MustCompile(`zq(?:x-|\d+x)`)

// compares refuses the marks of an assumed cluster or item.
func compares(values ...any) error {
	if assumedValue.MatchString(fmt.Sprint(values...)) {
		return errors.New("the template compares a value of clusters or items that are not at " +
			"hand; import with the cluster Secrets and the repository, or from the live Argo CD")
	}
	return nil
}

func indented(n int, s string) string {
	if n < 0 || n > 100 {
		n = 0
	}
	blank := strings.Repeat(" ", n)
	return blank + strings.ReplaceAll(s, "\n", "\n"+blank)
}

func absentValue(v any) bool {
	if b, ok := v.(bool); ok {
		return !b
	}
	return absent(v) || same(v, 0)
}

// dig follows keys in nested maps: dig "a" "b" default map.
func dig(args ...any) (any, error) {
	if len(args) < 3 {
		return nil, errors.New("dig needs a key, a default and a map")
	}
	v := args[len(args)-1]
	for _, k := range args[:len(args)-2] {
		m, _ := v.(map[string]any)
		next, ok := m[fmt.Sprint(k)]
		if !ok {
			return args[len(args)-2], nil
		}
		v = next
	}
	return v, nil
}
