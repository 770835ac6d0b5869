package charts

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// keep is for a release: it stores the values of folder ci as those of the charts' version, which
// never change afterwards.
var keep = flag.Bool("keep", false,
	"keep the values of ci, and what they lead to, in testdata/<version>")

// immutable are fields that an API server does not allow to change: an upgrade that changes them
// fails half way.
var immutable = map[string][]string{
	"Deployment": {"spec", "selector"}, "StatefulSet": {"spec", "selector"},
	"Job":         {"spec", "completionMode"},
	"RoleBinding": {"roleRef"}, "ClusterRoleBinding": {"roleRef"}, "PersistentVolumeClaim": {
		"spec", "storageClassName"},
}

// immutableIn returns those fields by object.
func immutableIn(t *testing.T, all []object) map[string]string {
	t.Helper()
	fields := map[string]string{}
	for _, o := range all {
		if path, there := immutable[o.at("kind")]; there {
			fields[o.String()+" in "+o.at("metadata", "namespace")] = text(t, o.get(path...))
		}
	}
	return fields
}

func chartVersion(t *testing.T, chart string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(chart, "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var about struct{ Version string }
	if err := yaml.Unmarshal(content, &about); err != nil {
		t.Fatal(err)
	}
	return about.Version
}

// keepValues stores a chart's current values, each with its immutable fields.
func keepValues(t *testing.T, chart string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(chart, "ci", "*-values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(chart, "testdata", chartVersion(t, chart))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		values, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fields, err := yaml.Marshal(immutableIn(t, objects(t, chart, "ns", "--values", file)))
		if err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string][]byte{filepath.Base(file): values,
			strings.Replace(filepath.Base(file), "-values.", "-settled.", 1): fields} {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestValuesOfEveryEarlierVersionStillWork(t *testing.T) {
	for _, chart := range []string{"argosy", "argosy-agent", "argosy-engine"} {
		if *keep {
			keepValues(t, chart)
		}
		files, err := filepath.Glob(filepath.Join(chart, "testdata", "*", "*-values.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no values of earlier versions: %v", chart, err)
		}
		for _, file := range files {
			t.Run(file, func(t *testing.T) { stillWork(t, chart, file) })
		}
	}
}

func stillWork(t *testing.T, chart, file string) {
	content, err := os.ReadFile(strings.Replace(file, "-values.", "-settled.", 1))
	if err != nil {
		t.Fatal(err)
	}
	was := map[string]string{}
	if err := yaml.Unmarshal(content, &was); err != nil {
		t.Fatal(err)
	}
	now := immutableIn(t, objects(t, chart, "ns", "--values", file))
	// a removed object may be recreated under another name
	maps.DeleteFunc(was, func(object, _ string) bool { _, there := now[object]; return !there })
	if len(was) == 0 {
		t.Error("nothing that an upgrade meets is there any more")
	}
	for object, field := range was {
		if now[object] != field {
			t.Errorf("%s had %s and has %s: no upgrade can change that", object, field, now[object])
		}
	}
}
