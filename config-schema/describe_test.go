package configschema

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"argosy.dev/argosy/fleet"
)

// specOf is the part of a declaration that its kind names.
func specOf(d *fleet.Declaration) any {
	v := reflect.ValueOf(d).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			return f.Interface()
		}
	}
	return nil
}

// variants are files of a kind that together write every field once: each takes another field of a
// group.
func variants(k *kind) []string {
	var out []string
	for take := range 48 {
		var b strings.Builder
		writeAll(&b, &k.document, "", take)
		if s := b.String(); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func writeAll(b *strings.Builder, v *value, indent string, take int) {
	for i := range v.fields {
		f := &v.fields[i]
		switch {
		// a chart has no path to override and no ref, and only Helm has values to merge
		case left(v, f.name, take) || f.name == "ref" && take%16 >= 12 ||
			(f.name == "path" && !f.required && !aPatch(v) || f.name == "of") && take%8 >= 4 ||
			f.shape == shapeMap && take%4 != 1:
		case f.shape == shapeObject && len(f.fields) == 0:
			fmt.Fprintf(b, "%s%s: %s\n", indent, f.name, f.example)
		case f.shape == shapeObject:
			fmt.Fprintf(b, "%s%s:\n", indent, f.name)
			writeAll(b, &f.value, indent+"  ", take)
		case f.shape == shapeList && f.item.shape == shapeObject:
			fmt.Fprintf(b, "%s%s:\n%s  -\n", indent, f.name, indent)
			writeAll(b, f.item, indent+"    ", take)
		default:
			fmt.Fprintf(b, "%s%s: %s\n", indent, f.name, f.example)
		}
	}
}

// aPatch reports whether the object is a patch of kustomize.
func aPatch(v *value) bool { return v.fields[0].name == "patch" }

// left reports whether a field gives way to another one of its group.
func left(v *value, name string, take int) bool {
	for _, g := range v.groups {
		chosen := take % len(g.names)
		switch {
		case aPatch(v):
			chosen = take / 16 % 2
		case slices.Contains(g.names, "slack"):
			chosen = take % 4
		case slices.Contains(g.names, "sources"):
			chosen = take % 16 / 8
		case g.names[0] == "ref": // of a Cluster, which has the other field
			chosen = 1
			if take/16 == 1 {
				chosen = 0
			}
		case len(g.names) == 2:
			chosen = take % 8 / 4
		case len(g.names) == 3:
			chosen = take / 16
		}
		for i, n := range g.names {
			if n == name && i != chosen {
				return true
			}
		}
	}
	return false
}

func pathOf(k *kind) string {
	return strings.NewReplacer("<tenant>", "acme", "<name>", exampleName(k.name)).Replace(k.place)
}

func TestEveryDescribedFieldArrivesInItsStructField(t *testing.T) {
	for _, k := range kindOrder {
		if k == kindSet {
			continue // the struct has no template; sets_test.go covers it
		}
		arrived := map[string]bool{}
		for i, text := range variants(k) {
			doc := Decode(File{Path: pathOf(k), Bytes: []byte(text)})
			for _, p := range doc.Problems {
				if p.Code != codeExclusive { // a chart meets kustomize
					t.Errorf("%s, variant %d: %s\n%s", k.name, i, p, text)
				}
			}
			if doc.Declaration == nil {
				continue
			}
			// The same bytes by another way: YAML to JSON to the struct by its tags.
			var want struct {
				Spec json.RawMessage `json:"spec"`
			}
			if err := yaml.Unmarshal([]byte(text), &want); err != nil {
				t.Fatal(err)
			}
			spec := specOf(doc.Declaration)
			other := reflect.New(reflect.TypeOf(spec).Elem())
			d := json.NewDecoder(strings.NewReader(string(want.Spec)))
			d.DisallowUnknownFields()
			if err := d.Decode(other.Interface()); err != nil {
				t.Fatalf("%s: %v", k.name, err)
			}
			if !reflect.DeepEqual(spec, other.Interface()) {
				t.Errorf("%s, variant %d: Decode gives\n%+v\nand encoding/json\n%+v", k.name, i,
					spec, other.Interface())
			}
			mark(arrived, reflect.ValueOf(spec).Elem(), k.name)
		}
		var missing []string
		unset(arrived, k.document.fieldNamed("spec"), string(k.name), &missing)
		if len(missing) > 0 {
			t.Errorf("no variant of %s sets %s", k.name, strings.Join(missing, ", "))
		}
	}
}

// mark notes the paths that hold a value.
func mark(arrived map[string]bool, v reflect.Value, at fleet.Kind) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			mark(arrived, v.Elem(), at)
		}
	case reflect.Slice:
		for i := range v.Len() {
			mark(arrived, v.Index(i), at)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); !f.IsZero() {
				name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
				path := at + fleet.Kind("."+name)
				arrived[string(path)] = true
				mark(arrived, f, path)
			}
		}
	}
}

func unset(arrived map[string]bool, f *field, at string, missing *[]string) {
	v := &f.value
	if v.shape == shapeList {
		v = v.item
	}
	for i := range v.fields {
		g := &v.fields[i]
		path := at + "." + g.name
		if !arrived[path] && g.example != "false" && g.example != "0" {
			*missing = append(*missing, path)
		}
		unset(arrived, g, path, missing)
	}
}

func TestADescriptionThatDoesNotFitItsTypeStopsTheProgram(t *testing.T) {
	type spec struct {
		Name  string `json:"name"`
		Count int    `json:"count"`
	}
	for name, v := range map[string]value{
		"a field is not described": object(field{name: "name", value: textOf(formatName)}),
		"a described field is not there": object(field{name: "name", value: textOf(formatName)},
			field{name: "number", value: integer(0, 1)}),
		"a type differs": object(field{name: "name", value: textOf(formatName)},
			field{name: "count", value: boolean()}),
		"a list is no list": object(
			field{name: "name", value: listOf(textOf(formatName))},
			field{name: "count", value: integer(0, 1)}),
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: the binding accepts it", name)
				}
			}()
			bind(&v, reflect.TypeFor[spec](), "spec")
		}()
	}
}

func TestEveryFieldHasAMeaningAndAnExample(t *testing.T) {
	var look func(v *value, at string)
	look = func(v *value, at string) {
		if v.shape == shapeList {
			look(v.item, at+"[]")
		}
		if v.shape == shapeText && v.format == nil && v.words == nil {
			t.Errorf("%s: a text without a form", at)
		}
		for i := range v.fields {
			f := &v.fields[i]
			if f.doc == "" {
				t.Errorf("%s.%s has no text", at, f.name)
			}
			if f.example == "" && f.shape != shapeObject &&
				(f.shape != shapeList || f.item.shape != shapeObject) {
				t.Errorf("%s.%s has no example", at, f.name)
			}
			look(&f.value, at+"."+f.name)
		}
	}
	for _, k := range kindOrder {
		look(&k.document, string(k.name))
	}
}

func TestATemplateDecodesAsItIs(t *testing.T) {
	for _, k := range kindOrder {
		for _, name := range []string{exampleName(k.name), "123", "no", "1e3"} {
			if !strings.Contains(k.place, "<name>") {
				name = exampleName(k.name)
			}
			path := strings.NewReplacer("<tenant>", "acme", "<name>", name).Replace(k.place)
			doc := Decode(File{Path: path, Bytes: New(k.name, "acme", name)})
			for _, p := range doc.Problems {
				t.Errorf("%s: %s", k.name, p)
			}
		}
	}
	if New("Rollout", "acme", "x") != nil {
		t.Error("there is a template of a kind that is not supported")
	}
}

func TestATemplatesCommentsCanBeTakenAwayLineByLine(t *testing.T) {
	for _, k := range kindOrder {
		lines := strings.Split(string(New(k.name, "acme", exampleName(k.name))), "\n")
		for i, l := range lines {
			if bare, off := commentedOut(l); !off || !strings.HasPrefix(bare, " ") {
				continue
			}
			text := strings.Join(uncommented(lines, i), "\n")
			for _, p := range Decode(File{Path: pathOf(k), Bytes: []byte(text)}).Problems {
				// The map above a single field may want its other fields, or have a field that
				// excludes this one.
				if p.Code != codeExclusive && p.Code != codeMissingField && p.Code != codeBlank &&
					p.Code != codeUnknownChannel {
					t.Errorf("%s without the comment of %q: %s", k.name, l, p)
				}
			}
		}
	}
}

// uncommented removes the comment mark of a line and of the lines of its parent maps.
func uncommented(lines []string, at int) []string {
	out := append([]string(nil), lines...)
	depth := func(l string) int { return len(l) - len(strings.TrimLeft(l, " ")) }
	need := 100
	for i := at; i >= 0; i-- {
		bare, off := commentedOut(lines[i])
		if !off {
			break
		}
		if d := depth(bare); i == at || d < need &&
			!strings.HasPrefix(strings.TrimLeft(bare, " "), "#") {
			out[i], need = bare, d
		}
	}
	return out
}

// commentedOut is a line without its comment mark.
func commentedOut(line string) (string, bool) {
	rest := strings.TrimLeft(line, " ")
	bare, off := strings.CutPrefix(rest, "# ")
	return line[:len(line)-len(rest)] + bare, off && len(rest) < len(line)
}

func TestATemplateIsAsFormatLeavesIt(t *testing.T) {
	for _, k := range kindOrder {
		given := map[string]string{"namespace": "checkout", "environments": "[eu, us]"}
		for _, text := range [][]byte{New(k.name, "acme", exampleName(k.name)),
			NewWith(k.name, "acme", exampleName(k.name), given)} {
			formatted, err := Format(text)
			if err != nil {
				t.Errorf("%s: %s", k.name, err)
			} else if string(formatted) != string(text) {
				t.Errorf("argosy fmt changes the template of a %s to\n%s", k.name, formatted)
			}
		}
	}
}
