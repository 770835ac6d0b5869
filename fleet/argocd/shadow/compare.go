// Package shadow compares what two versions of Argo CD's repo-server render for an Application (ADR
// 0072).
//
//	Requests  what the application-controller asks a repo-server for, pure
//	Compare   two rendered lists of resources in, their differences out, pure
//	Render    asks a repo-server
package shadow

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"argosy.dev/argosy/fleet/mirror"
)

// Rendered is what one version renders for an Application: the resources as JSON, or why it does
// not render them.
type Rendered struct {
	Manifests []string
	Error     string
}

// Difference is the result of Compare, bounded in size.
type Difference struct {
	Hash          string // "" if both are the same
	Resources     []mirror.ResourceDifference
	MoreResources int
}

// Compare returns what differs between the resources of two versions, in any order. The
// hash covers all of it, but no content of a Secret: of a Secret it covers which keys differ.
func Compare(before, after []string) (Difference, error) {
	old, err := index(before)
	if err != nil {
		return Difference{}, err
	}
	now, err := index(after)
	if err != nil {
		return Difference{}, err
	}
	keys := maps.Clone(old)
	maps.Copy(keys, now)
	order := slices.SortedFunc(maps.Keys(keys), compareKeys)
	sum := sha256.New()
	var d Difference
	for _, k := range order {
		was, is := old[k], now[k]
		if k.secret() {
			was, is = mask(was, is)
		}
		r := mirror.ResourceDifference{Group: k.group, Kind: k.kind, Namespace: k.namespace,
			Name: k.name, Change: mirror.ResourceChanged}
		var fields []mirror.FieldDifference
		switch {
		case was == nil:
			r.Change = mirror.ResourceAdded
			fields = []mirror.FieldDifference{{After: text(is)}}
		case is == nil:
			r.Change = mirror.ResourceRemoved
			fields = []mirror.FieldDifference{{Before: text(was)}}
		default:
			if fields = compareValues(nil, "", was, is); len(fields) == 0 {
				continue
			}
		}
		r.Fields = fields
		whole, err := json.Marshal(r)
		if err != nil {
			return Difference{}, err
		}
		fmt.Fprintf(sum, "%d %s\n", len(whole), whole)
		if len(d.Resources) == mirror.MaxDifferentResources {
			d.MoreResources++
			continue
		}
		d.Resources = append(d.Resources, bound(r))
	}
	if len(d.Resources) > 0 {
		d.Hash = hex.EncodeToString(sum.Sum(nil))
	}
	return d, nil
}

// bound keeps the first fields of a difference and the begin of their values. Of a resource that
// one version alone renders, its name suffices.
func bound(r mirror.ResourceDifference) mirror.ResourceDifference {
	if r.Change != mirror.ResourceChanged {
		r.Fields = nil
		return r
	}
	if more := len(r.Fields) - mirror.MaxDifferentFields; more > 0 {
		r.Fields, r.MoreFields = r.Fields[:mirror.MaxDifferentFields], more
	}
	for i, f := range r.Fields {
		r.Fields[i] = mirror.FieldDifference{Path: clip(f.Path), Before: clip(f.Before),
			After: clip(f.After)}
	}
	return r
}

func clip(s string) string {
	if len(s) <= mirror.MaxDifferentValue {
		return s
	}
	s = s[:mirror.MaxDifferentValue]
	for !utf8.ValidString(s) && len(s) > 0 {
		s = s[:len(s)-1]
	}
	return s + "…"
}

// key identifies a resource. Two of one name differ by their number.
type key struct {
	group, kind, namespace, name string
	number                       int
}

func (k key) secret() bool { return k.group == "" && k.kind == "Secret" }

func compareKeys(a, b key) int {
	return cmp.Or(strings.Compare(a.group, b.group), strings.Compare(a.kind, b.kind),
		strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name),
		cmp.Compare(a.number, b.number))
}

func index(manifests []string) (map[key]map[string]any, error) {
	all := map[key]map[string]any{}
	for _, m := range manifests {
		var o map[string]any
		decoder := json.NewDecoder(strings.NewReader(m))
		decoder.UseNumber()
		if err := decoder.Decode(&o); err != nil {
			return nil, fmt.Errorf("a rendered resource is no JSON object: %w", err)
		}
		if len(o) == 0 {
			continue
		}
		k := keyOf(o)
		for all[k] != nil {
			k.number++
		}
		all[k] = o
	}
	return all, nil
}

func keyOf(o map[string]any) key {
	var k key
	version, _ := o["apiVersion"].(string)
	if group, _, ok := strings.Cut(version, "/"); ok {
		k.group = group
	}
	k.kind, _ = o["kind"].(string)
	meta, _ := o["metadata"].(map[string]any)
	k.namespace, _ = meta["namespace"].(string)
	if k.name, _ = meta["name"].(string); k.name == "" {
		k.name, _ = meta["generateName"].(string)
	}
	return k
}

// The content of a Secret's field, instead of the content.
const (
	hidden  = "(hidden)"
	another = "(hidden, another content)"
)

// appliedConfiguration has the content of the whole object.
const appliedConfiguration = "kubectl.kubernetes.io/last-applied-configuration"

// mask returns two versions of a Secret without the content of their data. A content that differs
// is marked as such.
func mask(before, after map[string]any) (map[string]any, map[string]any) {
	return masked(before, after, hidden), masked(after, before, another)
}

func masked(o, other map[string]any, differs string) map[string]any {
	if o == nil {
		return nil
	}
	o = maps.Clone(o)
	for _, field := range []string{"data", "stringData"} {
		if o[field] == nil {
			continue
		}
		data, _ := o[field].(map[string]any)
		otherData, _ := other[field].(map[string]any)
		out := map[string]any{}
		for k, value := range data {
			out[k] = hidden
			if v, ok := otherData[k]; ok && text(v) != text(value) {
				out[k] = differs
			}
		}
		o[field] = out
	}
	return hideApplied(o)
}

// hideApplied hides the annotation that repeats the object.
func hideApplied(o map[string]any) map[string]any {
	meta, _ := o["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	if annotations[appliedConfiguration] == nil {
		return o
	}
	meta, annotations = maps.Clone(meta), maps.Clone(annotations)
	annotations[appliedConfiguration] = hidden
	meta["annotations"] = annotations
	o["metadata"] = meta
	return o
}

// compareValues appends the fields below a path that differ.
func compareValues(all []mirror.FieldDifference, path string, before,
	after any) []mirror.FieldDifference {
	switch was := before.(type) {
	case map[string]any:
		is, ok := after.(map[string]any)
		if !ok {
			break
		}
		names := maps.Clone(was)
		maps.Copy(names, is)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			old, had := was[name]
			now, has := is[name]
			in := below(path, name)
			switch {
			case !had:
				all = append(all, mirror.FieldDifference{Path: in, After: text(now)})
			case !has:
				all = append(all, mirror.FieldDifference{Path: in, Before: text(old)})
			default:
				all = compareValues(all, in, old, now)
			}
		}
		return all
	case []any:
		is, ok := after.([]any)
		if !ok || len(was) != len(is) {
			break
		}
		for i := range was {
			all = compareValues(all, path+"["+strconv.Itoa(i)+"]", was[i], is[i])
		}
		return all
	}
	if b, a := text(before), text(after); b != a {
		all = append(all, mirror.FieldDifference{Path: path, Before: b, After: a})
	}
	return all
}

func below(path, name string) string {
	if strings.ContainsAny(name, "./[] ") {
		return path + "[" + strconv.Quote(name) + "]"
	}
	return strings.TrimPrefix(path+"."+name, ".")
}

// text returns a string as it is, and everything else as JSON.
func text(value any) string {
	if s, ok := value.(string); ok {
		return s
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return "?" // decoded JSON always encodes
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// changing are the parts of an error that differ between two attempts: paths of temporary files,
// addresses, times, commits.
var changing = regexp.MustCompile(`/tmp/[^\s:'"]*|[0-9a-fA-F]{7,}|[0-9]+`)

// FailureHash identifies the failure of one version to render an Application.
func FailureHash(why string) string {
	sum := sha256.Sum256([]byte("error " + changing.ReplaceAllString(why, "#")))
	return hex.EncodeToString(sum[:])
}
