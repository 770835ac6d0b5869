package configschema

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"argosy.dev/argosy/fleet"
)

// compiled is a schema, checked against the meta-schema of draft-07.
func compiled(t testing.TB, content []byte) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft7)
	if err := c.AddResource("file:///schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("file:///schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// judge validates a file of YAML against a schema.
func judge(s *jsonschema.Schema, text []byte) error {
	j, err := yaml.YAMLToJSON(text)
	if err != nil {
		return err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(j))
	if err != nil {
		return err
	}
	return s.Validate(doc)
}

func TestPublishedFilesAreNotStale(t *testing.T) {
	files := SchemaFiles()
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("schema", name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("schema/%s is stale (%v): run go generate ./config-schema", name, err)
		}
	}
	entries, err := os.ReadDir("schema")
	if err != nil || len(entries) != len(files) {
		t.Errorf("schema/ holds %d files, %d are made (%v)", len(entries), len(files), err)
	}
	got, err := os.ReadFile("../docs/config-reference.md")
	if err != nil || !bytes.Equal(got, Reference()) {
		t.Errorf("docs/config-reference.md is stale (%v): run go generate ./config-schema", err)
	}
}

func TestSchemasAcceptWhatTheDecoderAccepts(t *testing.T) {
	combined := compiled(t, CombinedSchema())
	schemas := map[fleet.Kind]*jsonschema.Schema{}
	for k, s := range Schemas() {
		schemas[k] = compiled(t, s)
	}
	accept := func(k fleet.Kind, text []byte) {
		t.Helper()
		if err := judge(schemas[k], text); err != nil {
			t.Errorf("%s: %v\n%s", k, err, text)
		}
		if err := judge(combined, text); err != nil {
			t.Errorf("argosy.json: %v\n%s", err, text)
		}
	}
	for _, f := range exampleFiles(t) {
		if d := Decode(f).Declaration; d != nil {
			accept(d.Key.Kind, f.Bytes)
		}
	}
	for _, k := range kindOrder {
		accept(k.name, New(k.name, "acme", exampleName(k.name)))
		for _, v := range variants(k) {
			if Decode(File{Path: pathOf(k), Bytes: []byte(v)}).Declaration != nil {
				accept(k.name, []byte(v))
			}
		}
	}
}

// beyondSchema are the codes of rules that JSON Schema cannot express, or that do not concern the
// document's structure.
var beyondSchema = map[string]bool{
	codeDuplicateEntry: true, codeDuplicateKey: true, codeEmptyFile: true, codeEncoding: true,
	codeHiddenCharacter: true, codeIrregular: true, codeUnreadable: true,
	codeLFSPointer: true, codeMisplaced: true, codePlaintextSecret: true, codeSealed: true,
	codeSyntax: true, codeTooDeep: true, codeWrongExtension: true,
	codeWrongKind: true, codeWrongName: true, codeYAMLFeature: true, codeUnsupported: true,
	codeExclusive: true, codeInvalidName: true, codeInvalidLabel: true,
	codeInvalidPath: true, codeInvalidURL: true, codeInvalidValue: true, codeInvalidRevision: true,
	codeWrongType: true, codeExpression: true, codeUnknownRef: true,
	codeUnknownSource: true, codeUnknownVariable: true, codeUnknownChannel: true,
}

func TestEditorsGetErrorsFromTheSchema(t *testing.T) {
	combined := compiled(t, CombinedSchema())
	refused := 0
	eachCase(t, "bad", func(t *testing.T, _ string, a *txtar.Archive) {
		files, _ := caseFiles(t, a)
		reported := false
		for _, p := range Decode(files[0]).Problems {
			// a schema cannot bound a duration
			reported = reported || !beyondSchema[p.Code] && p.Field != "spec.guards.window" &&
				!strings.HasSuffix(strings.ToLower(p.Field), "duration")
		}
		if files[0].Irregular != "" || len(Decode(files[0]).Problems) == 0 {
			return
		}
		err := judge(combined, files[0].Bytes)
		if reported && err == nil {
			t.Error("the schema accepts what the decoder refuses for its structure")
		}
		if err != nil {
			refused++
		}
	})
	if refused < 90 {
		t.Errorf("the schema refuses only %d of the bad files", refused)
	}
}

func TestEveryExampleFitsItsOwnSchema(t *testing.T) {
	examples := 0
	var look func(s map[string]any)
	look = func(s map[string]any) {
		if ex, ok := s["examples"].([]any); ok {
			content, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			one := compiled(t, content)
			for _, e := range ex {
				examples++
				j, err := json.Marshal(e)
				if err != nil {
					t.Fatal(err)
				}
				if err := judge(one, j); err != nil {
					t.Error(err)
				}
			}
		}
		for _, v := range s {
			switch v := v.(type) {
			case map[string]any:
				look(v)
			case []any:
				for _, e := range v {
					if m, ok := e.(map[string]any); ok {
						look(m)
					}
				}
			}
		}
	}
	var all map[string]any
	if err := json.Unmarshal(CombinedSchema(), &all); err != nil {
		t.Fatal(err)
	}
	look(all)
	if examples < 50 {
		t.Errorf("only %d examples were found", examples)
	}
}
