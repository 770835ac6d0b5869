package fleet

import (
	"encoding/json"
	"testing"
)

func compact(t *testing.T, v Values) string {
	t.Helper()
	if v == "" {
		return ""
	}
	var tree any
	if err := json.Unmarshal([]byte(v), &tree); err != nil {
		t.Fatalf("%q: %v", v, err)
	}
	b, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestValuesMergeAsHelmMergesFiles(t *testing.T) {
	for name, c := range map[string]struct{ below, above, want string }{
		"maps merge": {
			`{"a":{"b":1,"c":2}}`, `{"a":{"c":3,"d":4}}`, `{"a":{"b":1,"c":3,"d":4}}`},
		"a list replaces":        {`{"a":[1,2]}`, `{"a":[3]}`, `{"a":[3]}`},
		"a scalar replaces":      {`{"a":"x","b":true}`, `{"a":1}`, `{"a":1,"b":true}`},
		"a map replaces a list":  {`{"a":[1]}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`},
		"a scalar replaces maps": {`{"a":{"b":1}}`, `{"a":"x"}`, `{"a":"x"}`},
		"null replaces":          {`{"a":{"b":1},"c":1}`, `{"a":null}`, `{"a":null,"c":1}`},
		"nothing below":          {``, `{"a":null}`, `{"a":null}`},
		"nothing above":          {`{"a":1}`, ``, `{"a":1}`},
	} {
		got, err := Values(c.below).Merge(Values(c.above))
		if err != nil || compact(t, got) != c.want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	if _, err := Values("replicas: 1").Merge(`{"a":1}`); err == nil {
		t.Error("a text of YAML is merged")
	}
}

func TestValuesKeepTheirNumbersAndCharacters(t *testing.T) {
	for _, text := range []string{
		"{\n  \"a\": 12345678901234567890,\n  \"b\": 1.10,\n  \"c\": \"<&>😀\"\n}",
		"replicas: 2\n"} {
		stored, err := json.Marshal(Values(text))
		if err != nil {
			t.Fatal(err)
		}
		var read Values
		if err := json.Unmarshal(stored, &read); err != nil || string(read) != text {
			t.Errorf("%q is read as %q, %v", text, read, err)
		}
	}
	var read Values
	if err := json.Unmarshal([]byte(`{"b":{"z":1.10},"a":"<"}`), &read); err != nil ||
		read != "{\n  \"a\": \"<\",\n  \"b\": {\n    \"z\": 1.10\n  }\n}" || !read.IsMap() {
		t.Errorf("a map is read as %q, %v", read, err)
	}
}
