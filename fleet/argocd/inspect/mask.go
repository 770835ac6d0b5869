package inspect

import (
	"maps"
	"reflect"
	"strings"
)

// Values that replace secret ones. A reader sees which keys differ, and neither a value nor its
// length.
const (
	maskedValue   = "++++++++"
	differsValue  = "++++++++ (differs)"
	lastApplied   = "kubectl.kubernetes.io/last-applied-configuration"
	managedFields = "managedFields"
)

// secretFields are the fields of kinds, without their versions, whose values are secret. Argo CD
// masks those of a Secret before it writes them into its cache; this rule does not rely on that.
var secretFields = map[[2]string][][]string{
	{"", "Secret"}:                  {{"data"}, {"stringData"}},
	{"route.openshift.io", "Route"}: {{"spec", "tls", "key"}},
}

// plainAnnotations begin the names of annotations that a Secret is shown with: tools put secret
// values into others.
var plainAnnotations = []string{"argocd.argoproj.io/", "meta.helm.sh/", "helm.sh/",
	"kubernetes.io/service-account."}

// maskPair masks the secret values of the live and the desired state of one object, either of which
// may be nil, in place. It reports whether it has masked any. Nothing of the last applied
// configuration and of the managed fields stays: they repeat values.
func maskPair(group, kind string, live, desired map[string]any) bool {
	for _, o := range []map[string]any{live, desired} {
		meta, _ := o["metadata"].(map[string]any)
		delete(meta, managedFields)
		if a, ok := meta["annotations"].(map[string]any); ok {
			if delete(a, lastApplied); len(a) == 0 {
				delete(meta, "annotations")
			}
		}
	}
	fields := secretFields[[2]string{group, kind}]
	masked := false
	for _, path := range fields {
		masked = maskField(live, desired, path, nil) || masked
	}
	if len(fields) > 0 && kind == "Secret" {
		masked = maskField(live, desired, []string{"metadata", "annotations"},
			func(name string) bool {
				for _, plain := range plainAnnotations {
					if strings.HasPrefix(name, plain) {
						return true
					}
				}
				return false
			}) || masked
	}
	return masked
}

// maskField masks the value of a field, or each value below it if it is a map, except those of
// plain names.
func maskField(live, desired map[string]any, path []string, plain func(string) bool) bool {
	last := path[len(path)-1]
	a, b := below(live, path[:len(path)-1]), below(desired, path[:len(path)-1])
	x, inA := a[last]
	y, inB := b[last]
	if !inA && !inB {
		return false
	}
	xs, xMap := x.(map[string]any)
	ys, yMap := y.(map[string]any)
	if (inA && !xMap) || (inB && !yMap) { // of a value that is no map, nothing is shown
		differs := inA && inB && !reflect.DeepEqual(x, y)
		if inA {
			a[last] = maskedValue
		}
		if inB {
			b[last] = maskOf(differs)
		}
		return true
	}
	masked := false
	keys := maps.Clone(xs)
	if keys == nil {
		keys = map[string]any{}
	}
	maps.Copy(keys, ys)
	for key := range keys {
		if plain != nil && plain(key) {
			continue
		}
		v, inX := xs[key]
		w, inY := ys[key]
		differs := inX && inY && !reflect.DeepEqual(v, w)
		if inX {
			xs[key] = maskedValue
		}
		if inY {
			ys[key] = maskOf(differs)
		}
		masked = true
	}
	return masked
}

func maskOf(differs bool) string {
	if differs {
		return differsValue
	}
	return maskedValue
}

// below returns the map at a path; nil if there is none.
func below(o map[string]any, path []string) map[string]any {
	for _, name := range path {
		o, _ = o[name].(map[string]any)
	}
	return o
}
