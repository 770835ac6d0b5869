package agent

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet/mirror"
)

// The messages of protocol 3, written as its version did, still decode without an unknown field,
// and encode to the same fields and values: a later version only adds fields. The files stay as
// they are; a new version of the protocol adds those of the version before.
func TestTheMessagesOfTheVersionBeforeKeepTheirMeaning(t *testing.T) {
	types := map[string]any{"hello": &Hello{}, "rows": &Rows{}, "snapshot": &Snapshot{},
		"syncs": &[]Sync{}, "stops": &[]mirror.Stop{}, "ends": &[]mirror.StopEnd{},
		"instance": &Instance{}, "bye": &GoAway{}, "report": &Report{}}
	files, err := filepath.Glob("testdata/protocol-3/*.json")
	if err != nil || len(files) != len(types) {
		t.Fatalf("%d files for %d messages, %v", len(files), len(types), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		if err := dec.Decode(types[name]); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		again, err := json.Marshal(types[name])
		if err != nil {
			t.Fatal(err)
		}
		var before, after any
		if err := json.Unmarshal(text, &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(again, &after); err != nil {
			t.Fatal(err)
		}
		if lost := lostFields(name, before, after); len(lost) > 0 {
			t.Errorf("lost or changed: %s", strings.Join(lost, ", "))
		}
	}
}

// lostFields names what after lacks of before. Empty values count as absent.
func lostFields(path string, before, after any) (lost []string) {
	switch b := before.(type) {
	case map[string]any:
		a, _ := after.(map[string]any)
		for name, v := range b {
			lost = append(lost, lostFields(path+"."+name, v, a[name])...)
		}
	case []any:
		a, _ := after.([]any)
		for i, v := range b {
			var other any
			if i < len(a) {
				other = a[i]
			}
			lost = append(lost, lostFields(path, v, other)...)
		}
	default:
		if b != after && b != "" && b != false {
			lost = append(lost, path)
		}
	}
	return lost
}
