package contexts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"argosy.dev/argosy/cmd/argosy/contexts"
)

func TestWhatIsSavedIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "config.yaml")
	empty, err := contexts.Load(path)
	if err != nil || len(empty.Contexts) != 0 {
		t.Fatalf("%+v %v", empty, err)
	}
	var f contexts.File
	f.Put(contexts.Context{Name: "a", Server: "https://a", Token: "argosy_a"})
	f.Put(contexts.Context{Name: "b", Server: "https://b", Token: "argosy_b"})
	f.Put(contexts.Context{Name: "a", Server: "https://a2", Token: "argosy_a2"})
	if err := contexts.Save(path, f); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]os.FileMode{
		path: 0o600, filepath.Dir(path): 0o700 | os.ModeDir} {
		if info, err := os.Stat(file); err != nil || info.Mode() != want {
			t.Errorf("%s: %v %v", file, info.Mode(), err)
		}
	}
	got, err := contexts.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if c, ok := got.Find(""); !ok || c.Server != "https://a2" || len(got.Contexts) != 2 {
		t.Errorf("%+v", got)
	}
	if c, ok := got.Find("b"); !ok || c.Token != "argosy_b" {
		t.Errorf("%+v", c)
	}
	if _, ok := got.Find("c"); ok {
		t.Error("c is found")
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("%v %v", left, err)
	}
}

func TestAFileThatOthersMayReadIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte("current: a\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := contexts.Load(path); err == nil || !strings.Contains(err.Error(), "0640") {
		t.Errorf("%v", err)
	}
}

func TestTheErrorOfABrokenFileOmitsItsContent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte("contexts: argosy_hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := contexts.Load(path); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v", err)
	}
}

func TestWhereTheFileIs(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"/x/argosy/config.yaml":         {"XDG_CONFIG_HOME": "/x", "HOME": "/h"},
		"/h/.config/argosy/config.yaml": {"XDG_CONFIG_HOME": "relative", "HOME": "/h"},
	} {
		got, err := contexts.Path(func(key string) string { return env[key] })
		if err != nil || got != name {
			t.Errorf("%s %v", got, err)
		}
	}
	if _, err := contexts.Path(func(string) string { return "" }); err == nil {
		t.Error("no home is no error")
	}
}
