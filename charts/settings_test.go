package charts

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"argosy.dev/argosy/cmd/argosy/settings"
)

// loaded returns argosy.yaml as the binary reads it from the chart's ConfigMap.
func loaded(t *testing.T, all []object, name string) settings.Settings {
	t.Helper()
	file := filepath.Join(t.TempDir(), "argosy.yaml")
	if err := os.WriteFile(file, []byte(find(t, all, "ConfigMap", name).at("data", "argosy.yaml")),
		0o600); err != nil {
		t.Fatal(err)
	}
	s, err := settings.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// unreachable maps the settings that no value sets to the reason.
var unreachable = map[string]string{
	"database.url":      "its password would be in a ConfigMap",
	"database.embedded": "the image has no PostgreSQL",
}

func TestTheBinaryReadsTheChartsSettingsAndEverySettingIsReachable(t *testing.T) {
	reached := map[string]bool{}
	for _, name := range []string{"min", "full", "ssh", "trial"} {
		all := objects(t, "argosy", "hub", ci("argosy", name)...)
		s := loaded(t, all, "release-argosy")
		walk("", reflect.ValueOf(s), reached)
		mounted(t, name, all, s)
	}
	for path, there := range reached {
		if _, known := unreachable[path]; !there && !known {
			t.Errorf("no value leads to the setting %s", path)
		}
	}
}

// walk records which settings are set.
func walk(path string, v reflect.Value, reached map[string]bool) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v = reflect.Zero(v.Type().Elem())
		} else {
			v = v.Elem()
		}
	}
	if v.Kind() != reflect.Struct {
		reached[path] = reached[path] || !v.IsZero()
		return
	}
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		walk(strings.TrimPrefix(path+"."+name, "."), v.Field(i), reached)
	}
}

// mounted compares every path below /etc/argosy with the container's mounts.
func mounted(t *testing.T, name string, all []object, s settings.Settings) {
	t.Helper()
	pod := find(t, all, "Deployment", "release-argosy").pod()
	files := map[string]bool{}
	for _, m := range pod.list("containers")[0].list("volumeMounts") {
		for _, v := range pod.list("volumes") {
			if v.at("name") != m.at("name") {
				continue
			}
			keys := append(object{"v": v.get("secret")}.list("v", "items"),
				object{"v": v.get("configMap")}.list("v", "items")...)
			for _, k := range keys {
				files[m.at("mountPath")+"/"+k.at("path")] = true
			}
			if len(keys) == 0 && v.at("secret", "secretName") == "age-tenants" {
				files[m.at("mountPath")] = true // a folder with one file per tenant
			}
			if v.at("secret", "secretName") == "argosy-tls" {
				files[m.at("mountPath")+"/tls.crt"], files[m.at("mountPath")+"/tls.key"] = true,
					true
			}
		}
	}
	used := 0
	var each func(v reflect.Value)
	each = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				each(v.Elem())
			}
		case reflect.Struct:
			for i := range v.NumField() {
				each(v.Field(i))
			}
		case reflect.Slice:
			for i := range v.Len() {
				each(v.Index(i))
			}
		case reflect.String:
			if path := v.String(); strings.HasPrefix(path, "/etc/argosy/") {
				used++
				if !files[path] {
					t.Errorf("%s: %s is not mounted; there are %v", name, path, files)
				}
			}
		}
	}
	each(reflect.ValueOf(s))
	if used != len(files) {
		t.Errorf("%s: %d files are mounted and %d used: %v", name, len(files), used, files)
	}
}

func TestTheJobMigratesWithTheSameSettings(t *testing.T) {
	all := objects(t, "argosy", "hub", ci("argosy", "full")...)
	one, two := find(t, all, "ConfigMap", "release-argosy"),
		find(t, all, "ConfigMap", "release-argosy-migrate")
	if text(t, one.get("data")) != text(t, two.get("data")) {
		t.Error("the Job has other settings")
	}
	job := find(t, all, "Job", "release-argosy-migrate")
	if got := text(t,
		job.pod().list("containers")[0].get(
			"args")); got != `["migrate","-f","/etc/argosy/argosy.yaml"]` {
		t.Errorf("it runs %s", got)
	}
	if job.pod().get("automountServiceAccountToken") != false {
		t.Error("it has a token of the cluster")
	}
}

func TestTheMigrationsValueSelectsTheMigrator(t *testing.T) {
	for value, starts := range map[string]bool{"startup": true, "job": true, "external": false} {
		all := objects(t, "argosy", "hub", append(ci("argosy", "min"), "--set",
			"database.migrations="+value)...)
		if got := loaded(t, all, "release-argosy").Database.Migrate; got != starts {
			t.Errorf("%s: a start migrates: %v", value, got)
		}
		jobs := 0
		for _, o := range all {
			if o.at("kind") == "Job" {
				jobs++
			}
		}
		if (jobs == 1) != (value == "job") {
			t.Errorf("%s: %d Jobs", value, jobs)
		}
	}
}

func TestHelmTestRunsTheDoctorAsThePodsOfTheControlPlaneRun(t *testing.T) {
	all := objects(t, "argosy", "hub", ci("argosy", "full")...)
	doctor, serves := find(t, all, "Pod", "release-argosy-doctor"),
		find(t, all, "Deployment", "release-argosy").pod()
	if doctor.at("metadata", "annotations", "helm.sh/hook") != "test" {
		t.Error("helm test does not run it")
	}
	pod := doctor.pod()
	if got := text(t,
		pod.list("containers")[0].get("args")); got != `["doctor","-f","/etc/argosy/argosy.yaml"]` {
		t.Errorf("it runs %s", got)
	}
	for _, field := range []string{"serviceAccountName", "automountServiceAccountToken",
		"securityContext", "volumes"} {
		if text(t, pod.get(field)) != text(t, serves.get(field)) {
			t.Errorf("its %s are %s", field, text(t, pod.get(field)))
		}
	}
}
