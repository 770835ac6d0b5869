package configschema

import (
	"bytes"
	"encoding/json"
	"maps"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"argosy.dev/argosy/fleet"
)

// seeds are every bad case, every template and the example repo.
func seeds(f *testing.F, add func(path string, text []byte)) {
	f.Helper()
	names, err := filepath.Glob("testdata/bad/*.txtar")
	if err != nil || len(names) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, name := range names {
		a, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		path, _, _ := strings.Cut(a.Files[0].Name, " (")
		add(path, a.Files[0].Data)
	}
	for _, k := range kindOrder {
		add(pathOf(k), New(k.name, "acme", exampleName(k.name)))
		for _, v := range variants(k) {
			add(pathOf(k), []byte(v))
		}
	}
	for _, file := range exampleFiles(f) {
		add(file.Path, file.Bytes)
	}
	add(deploymentPath, []byte(laughs()))
}

func FuzzDecode(f *testing.F) {
	paths := []string{"tenants/acme/credentials/git.sops.yaml"}
	for _, k := range kindOrder {
		paths = append(paths, pathOf(k))
	}
	seeds(f, func(path string, text []byte) {
		for i, p := range paths {
			if filepath.Dir(p) == filepath.Dir(path) {
				f.Add(byte(i), text)
			}
		}
	})
	combined := compiled(f, CombinedSchema())
	f.Fuzz(func(t *testing.T, which byte, text []byte) {
		path := paths[int(which)%len(paths)]
		doc := Decode(File{Path: path, Bytes: text})
		lines := bytes.Count(text, []byte("\n")) + 1
		for _, p := range doc.Problems {
			if p.Code == codeInternal {
				t.Fatal("the decoder panicked")
			}
			if Codes()[p.Code] == "" || p.Message == "" || p.Fix == "" || p.Path != path ||
				p.Key != doc.Key || p.Line > lines || p.Line < 0 || p.Line > 0 && p.Column < 1 {
				t.Errorf("problem is not whole: %+v", p)
			}
		}
		if doc.Declaration == nil {
			if _, ours, _ := Classify(path); ours && len(doc.Problems) == 0 {
				t.Error("neither a declaration nor a problem")
			}
			return
		}
		if len(doc.Problems) > 0 || doc.Declaration.Key != doc.Key {
			t.Errorf("a declaration with problems or another key: %+v", doc)
		}
		if doc.Key.Kind == fleet.KindSealedSecret {
			return
		}
		if err := judge(combined, text); err != nil {
			t.Errorf("the schema refuses what the decoder accepts: %v", err)
		}
		if doc.Key.Kind != fleet.KindPolicy { // nothing of a rule reaches Argo CD
			noPattern(t, reflect.ValueOf(specOf(doc.Declaration)))
		}
	})
}

// belowFolder is noPattern for files that may begin with "../".
func belowFolder(t *testing.T, files reflect.Value) {
	for i := range files.Len() {
		file := files.Index(i)
		if file.Kind() == reflect.Struct {
			file = file.FieldByName("Path")
		}
		text := file.String()
		for strings.HasPrefix(text, "../") {
			text = text[len("../"):]
		}
		noPattern(t, reflect.ValueOf(text))
	}
}

// noPattern fails on characters that Argo CD would read as a pattern in any text that reaches it as
// an identity.
func noPattern(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			noPattern(t, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			noPattern(t, v.Index(i))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[fleet.HelmParameter]() ||
			v.Type() == reflect.TypeFor[fleet.KustomizePatch]() {
			return
		}
		for i := range v.NumField() {
			switch v.Type().Field(i).Name {
			case "Values", "Include", "Exclude": // of the tenant's own files
			case "MaxConcurrent": // read by Argosy: 25%
			case "Schedule", "Reason": // of a freeze: cron; for people
			case "Query": // of a metric, for Prometheus alone
			case "Paths", "Unexpanded": // matched by Argosy; messages
			case "TargetRevision":
				if !fleet.IsVersionRange(v.Field(i).String()) {
					noPattern(t, v.Field(i))
				}
			case "ValueFiles", "Components", "FileParameters":
				belowFolder(t, v.Field(i))
			default:
				noPattern(t, v.Field(i))
			}
		}
	case reflect.String:
		if s := v.String(); strings.ContainsAny(s, "*?{}!\\%\x00\n") || strings.Contains(s, "..") {
			t.Errorf("%q came through", s)
		}
	}
}

func FuzzLocate(f *testing.F) {
	seeds(f, func(_ string, text []byte) { f.Add(text, "spec.destination.environments[1]") })
	f.Add([]byte("a: {b: [c]}"), `metadata.labels["a\"b"][9999999999999999999]`)
	f.Fuzz(func(t *testing.T, text []byte, field string) {
		line, column := Locate(text, field)
		if line < 1 || column < 1 || line > bytes.Count(text, []byte("\n"))+
			bytes.Count(text, []byte("\r"))+1 && isASCII(text) {
			t.Errorf("%q is at %d:%d", field, line, column)
		}
	})
}

func isASCII(b []byte) bool {
	return bytes.IndexFunc(b, func(r rune) bool { return r >= 0x80 }) < 0
}

// The fields of a file of a tenant's repository are those that an item of a list may have, but for
// the dots in their names, and come back from JSON.
func FuzzListFile(f *testing.F) {
	seeds(f, func(_ string, text []byte) { f.Add(text) })
	f.Add([]byte(`{"name": "web", "zones": ["a", {"b": 1}], "x": "${item.name}", "": 2}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		listed := ListFile("apps/web/config.yaml", text)
		if len(listed.Fields) > 0 && listed.Problem != "" || len(listed.Fields) > maxItemFields {
			t.Errorf("%+v", listed)
		}
		for name, v := range listed.Fields {
			if !fleet.IsItemPath(name) || len(v) > maxItemValue || strings.Contains(v, "${") ||
				strings.ContainsAny(v, "\r\n") {
				t.Errorf("%q: %q", name, v)
			}
			if got, err := fleet.ExpandItem("${item."+name+"}", listed.Fields); err != nil ||
				got != v {
				t.Errorf("%q is %q, %v; want %q", name, got, err, v)
			}
		}
		b, err := json.Marshal(listed)
		var back fleet.Listed
		if err != nil || json.Unmarshal(b, &back) != nil || back.Problem != listed.Problem ||
			!maps.Equal(back.Fields, listed.Fields) {
			t.Errorf("%+v came back as %+v", listed, back)
		}
	})
}

func FuzzFormat(f *testing.F) {
	seeds(f, func(_ string, text []byte) { f.Add(text) })
	f.Add([]byte(unformatted))
	f.Fuzz(func(t *testing.T, text []byte) {
		once, err := Format(text)
		if err != nil {
			return
		}
		if !maps.Equal(comments(text), comments(once)) {
			t.Errorf("%q loses a comment as %q", text, once)
		}
		twice, err := Format(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%q is formatted as %q and then as %q (%v)", text, once, twice, err)
		}
		before, after := Decode(File{Path: deploymentPath, Bytes: text}).Declaration,
			Decode(File{Path: deploymentPath, Bytes: once}).Declaration
		if !reflect.DeepEqual(before, after) {
			t.Errorf("%q means something else as %q", text, once)
		}
	})
}

func FuzzClassify(f *testing.F) {
	for _, p := range []string{"fleet/fleet.yaml", "tenants/acme/deployments/a.yaml",
		"tenants/acme/credentials/a.sops.yaml", "fleet/pools/x.yaml", "Tenants/x",
		"tenants//x/.yaml", "fleet/../x", "README.md"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, path string) {
		key, ours, problem := Classify(path)
		if !ours {
			if problem != nil || key != (fleet.Key{}) || strings.HasPrefix(path, "fleet/") ||
				strings.HasPrefix(path, "tenants/") {
				t.Errorf("%q is ignored: %v %v", path, key, problem)
			}
			return
		}
		if problem != nil {
			if key.Kind != fleet.KindFile || key.Name != fileName(path) ||
				len(key.Name) > maxFileName || problem.Fix == "" {
				t.Errorf("%q: %v %+v", path, key, problem)
			}
			return
		}
		if path != strings.ToLower(path) ||
			strings.ContainsFunc(path, func(r rune) bool { return r >= 0x80 }) {
			t.Errorf("%+q is accepted: a duplicate with different case might be too", path)
		}
		if back := pathOfKey(key); back != path {
			t.Errorf("%q gives %v, which is %q: two paths have one identity", path, key, back)
		}
	})
}

// pathOfKey returns the path of a declaration.
func pathOfKey(k fleet.Key) string {
	if k.Kind == fleet.KindSealedSecret {
		return "tenants/" + string(k.Tenant) + "/" + k.Name + sealedSuffix
	}
	return strings.NewReplacer("<tenant>", string(k.Tenant), "<name>", k.Name).Replace(
		kinds[k.Kind].place)
}
