package shadow

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet/mirror"
)

const (
	web    = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","labels":{"a.b/c":"1"}},"spec":{"replicas":1,"containers":[{"image":"x"}]}}`
	config = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"n"},"data":{"k":"v"}}`
	secret = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"hunter2"}},"data":{"password":"aHVudGVyMg==","user":"YW5u"},"stringData":{"token":"hunter2"}}`
)

func compareAll(t *testing.T, before, after []string) Difference {
	t.Helper()
	d, err := Compare(before, after)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestTheOrderOfResourcesAndFieldsIsNoDifference(t *testing.T) {
	t.Parallel()
	other := `{"kind":"ConfigMap","data":{"k":"v"},"metadata":{"namespace":"n","name":"c"},"apiVersion":"v1"}`
	if d := compareAll(t, []string{web, config, web}, []string{web, web, other}); d.Hash != "" ||
		len(d.Resources) > 0 {
		t.Errorf("%+v", d)
	}
	if d := compareAll(t, []string{web, web}, []string{web}); len(d.Resources) != 1 ||
		d.Resources[0].Change != mirror.ResourceRemoved {
		t.Errorf("one of two resources of a name is removed: %+v", d)
	}
}

func TestADifferenceNamesResourcesAndFields(t *testing.T) {
	t.Parallel()
	after := strings.NewReplacer(`"replicas":1`, `"replicas":2,"paused":true`, `"x"`, `"y"`,
		`,"labels":{"a.b/c":"1"}`, `,"labels":{"a.b/c":"2"}`).Replace(web)
	d := compareAll(t, []string{web, config}, []string{after,
		strings.Replace(config, "ConfigMap", "Other", 1)})
	want := []mirror.ResourceDifference{
		{Kind: "ConfigMap", Namespace: "n", Name: "c", Change: mirror.ResourceRemoved},
		{Kind: "Other", Namespace: "n", Name: "c", Change: mirror.ResourceAdded},
		{Group: "apps", Kind: "Deployment", Name: "web", Change: mirror.ResourceChanged,
			Fields: []mirror.FieldDifference{
				{Path: `metadata.labels["a.b/c"]`, Before: "1", After: "2"},
				{Path: "spec.containers[0].image", Before: "x", After: "y"},
				{Path: "spec.paused", After: "true"},
				{Path: "spec.replicas", Before: "1", After: "2"},
			}},
	}
	if !reflect.DeepEqual(d.Resources, want) {
		t.Errorf("%+v", d.Resources)
	}
	same := compareAll(t, []string{config, web}, []string{strings.Replace(config, "ConfigMap",
		"Other", 1), after})
	less := compareAll(t, []string{web}, []string{after})
	if len(d.Hash) != 64 || d.Hash != same.Hash || d.Hash == less.Hash {
		t.Errorf("hashes %s, %s, %s", d.Hash, same.Hash, less.Hash)
	}
}

func TestNoContentOfASecretLeaves(t *testing.T) {
	t.Parallel()
	for name, after := range map[string][]string{
		"changed": {strings.NewReplacer("aHVudGVyMg==", "c2VjcmV0", `"hunter2"}`,
			`"other"}`).Replace(secret)},
		"removed":   nil,
		"key added": {strings.Replace(secret, `"user"`, `"more":"aHVudGVyMg==","user"`, 1)},
		"no map":    {strings.Replace(secret, `{"token":"hunter2"}`, `"hunter2"`, 1)},
	} {
		for _, sides := range [][2][]string{{{secret}, after}, {after, {secret}}} {
			d := compareAll(t, sides[0], sides[1])
			text, err := json.Marshal(d)
			if err != nil || d.Hash == "" {
				t.Errorf("%s: %s, %v", name, text, err)
			}
			for _, content := range []string{"hunter2", "aHVudGVyMg", "c2VjcmV0", "YW5u"} {
				if strings.Contains(string(text), content) {
					t.Errorf("%s shows %s: %s", name, content, text)
				}
			}
		}
	}
	d := compareAll(t, []string{secret}, []string{strings.Replace(secret, "aHVudGVyMg==",
		"c2VjcmV0", 1)})
	want := []mirror.FieldDifference{{Path: "data.password", Before: hidden, After: another}}
	if len(d.Resources) != 1 || !reflect.DeepEqual(d.Resources[0].Fields, want) {
		t.Errorf("%+v", d)
	}
	guess := compareAll(t, []string{secret}, []string{strings.Replace(secret, "aHVudGVyMg==",
		"Z3Vlc3M=", 1)})
	if guess.Hash != d.Hash {
		t.Error("the hash depends on the content of a Secret, which it lets others guess")
	}
}

func TestADifferenceHasABoundedSize(t *testing.T) {
	t.Parallel()
	var before, after []string
	fields := strings.Repeat("é", 1000)
	for i := range 100 {
		data := map[string]string{}
		for j := range 100 {
			data[fmt.Sprint(j)] = fields
		}
		for _, value := range []string{fields, "z" + fields} {
			data["0"] = value
			for j := range 100 {
				data[fmt.Sprint(j)] = value
			}
			o, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
				"metadata": map[string]any{"name": fmt.Sprint(i)}, "data": data})
			if err != nil {
				t.Fatal(err)
			}
			if value == fields {
				before = append(before, string(o))
			} else {
				after = append(after, string(o))
			}
		}
	}
	d := compareAll(t, before, after)
	text, err := json.Marshal(d)
	if err != nil || len(text) > 512<<10 || d.MoreResources != 80 ||
		d.Resources[0].MoreFields != 80 {
		t.Errorf("%d bytes, %d more, %v", len(text), d.MoreResources, err)
	}
	last := after[99]
	after[99] = strings.Replace(last, `"99":"z`, `"99":"y`, 1)
	if other := compareAll(t, before, after); other.Hash == d.Hash {
		t.Error("the hash leaves out what is not kept")
	}
}

func TestAFailureIsTheSameAtTheNextAttempt(t *testing.T) {
	t.Parallel()
	a := FailureHash("helm template /tmp/a1b2-c3/x failed at line 12: no value")
	if a != FailureHash("helm template /tmp/9999-ff/x failed at line 13: no value") ||
		a == FailureHash("helm template /tmp/a1b2-c3/x failed at line 12: no chart") {
		t.Error("failures have wrong hashes")
	}
}

func FuzzCompareNeverPanics(f *testing.F) {
	f.Add(web, secret)
	f.Add(`{"kind":1,"metadata":[]}`, `{"kind":"Secret","apiVersion":"v1","data":[1]}`)
	f.Fuzz(func(t *testing.T, a, b string) {
		one, err := Compare([]string{a}, []string{b})
		two, err2 := Compare([]string{b}, []string{a})
		if err == nil && err2 == nil && (one.Hash == "") != (two.Hash == "") {
			t.Errorf("%q and %q differ in one direction", a, b)
		}
	})
}
