package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestASchemaFollowsFromDefaultsAndComments(t *testing.T) {
	made, rows, err := describe([]byte(`# About the file.

# -- How many
# there are.
# @schema {"minimum": 1}
count: 2
section:
  # About the section.

  # -- A name.
  name: ""
  # -- Names.
  # @schema list names
  names: []
  # -- Pairs | of text.
  # @schema strings
  pairs: {}
`))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(made, &got); err != nil {
		t.Fatal(err)
	}
	want :=
		`{"$schema":"http://json-schema.org/draft-07/schema#","additionalProperties":false,"properties":{` +
			`"count":{"description":"How many there are.","minimum":1,"type":"integer"},` +
			`"section":{"additionalProperties":false,"properties":{"name":{"description":"A name.","type":"string"},` +
			`"names":{"description":"Names.","items":{"pattern":"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$","type":"string"},"type":"array"},` +
			`"pairs":{"additionalProperties":{"type":"string"},"description":"Pairs | of text.","type":"object"}},"type":"object"}},"title":"values.yaml","type":"object"}`
	if text, _ := json.Marshal(got); string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	text, err := page([]byte("name: x\ndescription: An x.\n"), []byte("Intro.\n"), rows)
	if err != nil || !strings.Contains(string(text), "| `count` | `2` | How many there are. |\n") ||
		!strings.Contains(string(text), "Pairs \\| of text.") {
		t.Errorf("the page is %s, %v", text, err)
	}
}

func TestAValueWithoutASchemaIsRejected(t *testing.T) {
	for name, c := range map[string]struct{ values, want string }{
		"no description":       {"key: 1\n", "line 1: key: has no description"},
		"an open object":       {"# -- Text.\nkey: {}\n", "accepts anything"},
		"an open list":         {"# -- Text.\nkey: []\n", "accepts anything"},
		"a default of no type": {"# -- Text.\nkey: null\n", "has no type"},
		"a word that is unknown": {"# -- Text.\n# @schema opne\nkey: {}\n",
			"none of the known words"},
	} {
		if _, _, err := describe([]byte(c.values)); err == nil || !strings.Contains(err.Error(),
			c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestADeletedSettingIsDetected(t *testing.T) {
	s := schema{"properties": schema{"listen": schema{"properties": schema{"ops": schema{}}}}}
	for path, gone := range map[string]bool{"listen.ops": false, "listen.opps": true,
		"lisen.ops": true} {
		if err := remove(s, strings.Split(path, ".")); (err != nil) != gone {
			t.Errorf("%s: %v", path, err)
		}
	}
}
