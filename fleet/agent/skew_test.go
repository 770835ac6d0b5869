package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet/mirror"
)

// keptTypes are the types of the messages that testdata keeps, by the name of the file.
func keptTypes() map[string]any {
	return map[string]any{"hello": &Hello{}, "rows": &Rows{}, "snapshot": &Snapshot{},
		"syncs": &[]Sync{}, "stops": &[]mirror.Stop{}, "ends": &[]mirror.StopEnd{},
		"instance": &Instance{}, "moves": &Moves{}, "shadow": &Shadow{},
		"tasks": &ComparisonTasks{}, "bye": &GoAway{}, "report": &Report{}}
}

// The messages of earlier protocols, written as their versions did, still decode without an unknown
// field, and encode to the same fields and values: a later version only adds fields. The files stay
// as they are; a new version of the protocol adds those of the version before.
func TestTheMessagesOfEarlierVersionsKeepTheirMeaning(t *testing.T) {
	for protocol, messages := range map[int]int{3: 9, 4: 12} {
		files, err := filepath.Glob(fmt.Sprintf("testdata/protocol-%d/*.json", protocol))
		if err != nil || len(files) != messages {
			t.Fatalf("%d files of protocol %d, %v", len(files), protocol, err)
		}
		types := keptTypes()
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".json")
			if err := keepsMeaning(file, name, types[name]); err != nil {
				t.Errorf("protocol %d: %s: %v", protocol, name, err)
			}
		}
	}
	if _, err := os.Stat(fmt.Sprintf("testdata/protocol-%d", Protocol-1)); err != nil {
		t.Errorf("no messages of the version before protocol %d are kept", Protocol)
	}
}

// keepsMeaning decodes a kept message and encodes it again.
func keepsMeaning(file, name string, into any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	again, err := json.Marshal(into)
	if err != nil {
		return err
	}
	var before, after any
	if err := json.Unmarshal(text, &before); err != nil {
		return err
	}
	if err := json.Unmarshal(again, &after); err != nil {
		return err
	}
	if lost := lostFields(name, before, after); len(lost) > 0 {
		return fmt.Errorf("lost or changed: %s", strings.Join(lost, ", "))
	}
	return nil
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
