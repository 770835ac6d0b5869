package configschema

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
)

// shape is the written type of a value.
type shape int

// value describes a value of a declaration.
type value struct {
	shape  shape
	format *format  // of a text
	words  []string // of a text: the only values
	least  int64    // least integer, or number of entries
	// greatest integer, number of entries, or bytes of a text; 0: the package's cap
	most    int64
	empty   bool    // "" or [] is valid here, with a meaning of its own
	orMap   bool    // of a text: a map of any content is valid too
	item    *value  // of a list; of a map of text: its values, or nil for a label's
	key     *format // of a map of text: its keys, or nil for a label's
	unique  string  // of a list of objects: the field that is the entry's key
	repeats bool    // of a list of texts: an entry may be there twice
	fields  []field // of an object
	// of an object: fields of the struct that only other objects of the same struct have
	elsewhere []string
	groups    []group     // of an object
	pairs     [][2]string // of an object: the first field needs the second
	checks    []check     // of an object: rules over several fields
	// of an object: fields that people know from elsewhere, and why they are not here
	never map[string]word
	bound reflect.Type // of an object: the struct it decodes into, set by bind
}

// field is one field of an object.
type field struct {
	name     string
	doc      string // meaning, units and limits, for people
	example  string // as one writes it in YAML
	fallback string // default, for people
	required bool
	first    bool // not required, and still written by New: most first files need it
	raw      bool // without a field of the struct: a check of the object reads it
	value
	index int // of the struct's field, set by bind
}

// group is a set of fields of which at most one may be set, or exactly one.
type group struct {
	names   []string
	exactly bool
	when    string // which of them to write when, for people
}

// check is a rule over several fields. It gets the decoded struct and its node, and reports errors
// to the decoder.
type check func(d *decoder, into reflect.Value, at node)

// word is the answer to a field that does not exist here.
type word struct {
	code, message, fix string
}

// format is the form of a text. Check decides; Pattern is its nearest expression in JSON Schema and
// accepts at least what Check accepts.
type format struct {
	code    string
	what    string // "a DNS-1123 label: ...", for people
	pattern string
	check   func(string) error
	// whether the text may hold variables; check gets a sample then
	variables bool
}

// kind describes one kind of declaration.
type kind struct {
	name     fleet.Kind
	place    string // e.g. tenants/<tenant>/environments/<name>.yaml
	doc      string
	document value // apiVersion, kind, metadata and spec
	// allocates a document[S], hangs its spec into the declaration
	begin  func(*fleet.Declaration) reflect.Value
	labels func(reflect.Value) map[string]string
}

// document is the type that a file decodes into.
type document[S any] struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       S        `json:"spec"`
}

type metadata struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

const (
	shapeText shape = iota
	shapeInteger
	shapeBoolean
	shapeDuration
	shapeObject
	shapeList
	shapeLabels // a map of text to text
	shapeMap    // a map of any content: fleet.Values
)

// describe makes a kind's description whole: the envelope that all share around the spec, bound to
// the types of the domain.
func describe[S any](k kind, spec value, hang func(*fleet.Declaration, *S)) *kind {
	name := textOf(formatName)
	if !strings.Contains(k.place, "<name>") {
		name = wordOf(exampleName(k.name)) // the only one
	}
	k.document = value{shape: shapeObject, never: neverTop, fields: []field{
		{name: "apiVersion", doc: "Always `" + fleet.APIVersion + "`.", required: true,
			example: fleet.APIVersion,
			value:   value{words: []string{fleet.APIVersion}}},
		{name: "kind", doc: "Always `" + string(k.name) + "` in this folder.", required: true,
			example: string(k.name),
			value:   value{words: []string{string(k.name)}}},
		{name: "metadata", doc: "Identity of the declaration.", required: true, value: value{
			shape: shapeObject, never: neverMetadata, fields: []field{
				{name: "name", doc: "The file's name without `.yaml`.", required: true,
					example: exampleName(k.name), value: name},
				{
					name: "labels",
					doc: "Labels to select by. At most 32; keys and values as Kubernetes has " +
						"them, none of them blank.", example: "{team: payments}",
					value: value{shape: shapeLabels, most: maxLabels}},
			}}},
		{name: "spec", doc: "The desired state.", required: true, value: spec},
	}}
	k.begin = func(d *fleet.Declaration) reflect.Value {
		doc := new(document[S])
		hang(d, &doc.Spec)
		return reflect.ValueOf(doc).Elem()
	}
	k.labels = func(v reflect.Value) map[string]string {
		return v.Addr().Interface().(*document[S]).Metadata.Labels
	}
	bind(&k.document, reflect.TypeFor[document[S]](), string(k.name))
	return &k
}

// exampleName is the name that examples of a kind carry.
func exampleName(k fleet.Kind) string {
	switch k {
	case fleet.KindFleet:
		return "fleet"
	case fleet.KindEngine:
		return "eu-1"
	case fleet.KindEnginePool:
		return "eu"
	case fleet.KindCluster:
		return "prod-1"
	case fleet.KindTenant:
		return "acme"
	case fleet.KindAccess:
		return fleet.AccessName
	case fleet.KindPolicy:
		return "no-head-in-prod"
	case fleet.KindManagedEnvironment:
		return "prod-eu"
	case fleet.KindTenantDefaults:
		return fleet.TenantDefaultsName
	case fleet.KindTenantNotifications:
		return fleet.TenantNotificationsName
	case fleet.KindGitOpsDeploymentSet:
		return "shop"
	case fleet.KindSyncRun:
		return "rollback-checkout"
	}
	return "checkout"
}

func textOf(f *format) value { return value{format: f} }

// bind ties a description to the type that it decodes into, field by field. A description that does
// not fit its type is a mistake in this package that no input can cause, and panics when the
// program starts.
func bind(v *value, t reflect.Type, at string) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if err := v.fits(t); err != nil {
		panic(fmt.Sprintf("configschema: %s: %v", at, err))
	}
	switch v.shape {
	case shapeList:
		bind(v.item, t.Elem(), at+"[]")
	case shapeObject:
		v.bound = t
		described := len(v.elsewhere)
		for _, f := range v.fields {
			if !f.raw {
				described++
			}
		}
		if t.NumField() != described {
			panic(
				fmt.Sprintf("configschema: %s: %d fields are described, %s has %d", at,
					len(v.fields), t, t.NumField()))
		}
		for i := range v.fields {
			f := &v.fields[i]
			if f.raw {
				continue
			}
			f.index = indexOf(t, f.name, at)
			bind(&f.value, t.Field(f.index).Type, at+"."+f.name)
		}
	}
}

func (v *value) fits(t reflect.Type) error {
	fits := false
	switch v.shape {
	case shapeText:
		fits = t.Kind() == reflect.String
	case shapeInteger:
		fits = t.Kind() == reflect.Int
	case shapeBoolean:
		fits = t.Kind() == reflect.Bool
	case shapeDuration:
		fits = t == reflect.TypeFor[fleet.Duration]() &&
			t.ConvertibleTo(reflect.TypeFor[time.Duration]())
	case shapeObject:
		fits = t.Kind() == reflect.Struct
	case shapeList:
		fits = t.Kind() == reflect.Slice
	case shapeLabels:
		fits = t == reflect.TypeFor[map[string]string]()
	case shapeMap:
		fits = t == reflect.TypeFor[fleet.Values]()
	}
	if !fits {
		return fmt.Errorf("type %s does not hold the described shape", t)
	}
	return nil
}

func indexOf(t reflect.Type, name, at string) int {
	for i := range t.NumField() {
		tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if tag == name {
			return i
		}
	}
	panic(fmt.Sprintf("configschema: %s: %s has no field %q", at, t, name))
}

func wordOf(words ...string) value { return value{words: words} }
func integer(least, most int64) value {
	return value{shape: shapeInteger, least: least, most: most}
}
func mapOf(key *format, item value) value {
	return value{shape: shapeLabels, key: key, item: &item}
}
func boolean() value                        { return value{shape: shapeBoolean} }
func object(fields ...field) value          { return value{shape: shapeObject, fields: fields} }
func listOf(item value) value               { return value{shape: shapeList, item: &item} }
func (v value) atMost(n int64) value        { v.most = n; return v }
func (v value) mayBeEmpty() value           { v.empty = true; return v }
func (v value) orAMap() value               { v.orMap = true; return v }
func (v value) by(name string) value        { v.unique = name; return v }
func (v value) mayRepeat() value            { v.repeats = true; return v }
func (v value) checked(c ...check) value    { v.checks = append(v.checks, c...); return v }
func (v value) not(w map[string]word) value { v.never = w; return v }

// without names fields of the struct that the object does not have.
func (v value) without(names ...string) value { v.elsewhere = names; return v }

// exactlyOneOf and atMostOneOf add a group to an object's fields.
func (v value) exactlyOneOf(names ...string) value {
	v.groups = append(v.groups, group{names: names, exactly: true})
	return v
}

func (v value) atMostOneOf(names ...string) value {
	v.groups = append(v.groups, group{names: names})
	return v
}

// needs makes one field required beside another one.
func (v value) needs(name, needed string) value {
	v.pairs = append(v.pairs, [2]string{name, needed})
	return v
}

// when adds advice to the last group: which of its fields to choose.
func (v value) when(words string) value {
	v.groups[len(v.groups)-1].when = ": " + words
	return v
}
