package stack_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"argosy.dev/argosy/test/stack"
)

// A sandbox gives a process a root of its own, and its bind mounts are visible in it alone.
func TestAProcessSeesItsSandboxOnly(t *testing.T) {
	s, err := stack.NewSandbox()
	if err != nil {
		if os.Geteuid() == 0 {
			t.Fatal(err)
		}
		t.Logf("no sandbox: %v", err)
		return
	}
	t.Cleanup(s.Close)
	dir := t.TempDir()
	root, given := filepath.Join(dir, "root"), filepath.Join(dir, "given")
	for _, folder := range []string{given, filepath.Join(root, "usr"), filepath.Join(root, "given"),
		filepath.Join(root, "free")} {
		if err := os.MkdirAll(folder, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(folder, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range []string{"bin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+link, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(given, "word"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, b := range []struct {
		from, to string
		readOnly bool
	}{{"/usr", "usr", true}, {given, "given", true}, {given, "free", false}} {
		if err := s.Bind(b.from, filepath.Join(root, b.to), b.readOnly); err != nil {
			t.Fatal(err)
		}
	}
	log := filepath.Join(dir, "log")
	p, err := stack.StartProcess(stack.Command{Name: "sh", Path: "/bin/sh", Args: []string{
		"-c", "pwd; id -u; cat /given/word; ls /; echo x >/free/made; echo x >/given/made"},
		Root: root, Dir: "/given", User: &syscall.Credential{Uid: 65532, Gid: 65532}, Log: log,
		Behind: s.Firewall})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err == nil {
		t.Error("it wrote to what is read-only")
	}
	out, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(out)); len(got) < 9 ||
		strings.Join(got[:9], " ") != "/given 65532 hellobin free given lib lib64 usr /bin/sh:" {
		t.Errorf("it sees %q", out)
	}
	if _, err := os.Stat(filepath.Join(given, "made")); err != nil {
		t.Errorf("what it wrote where it may: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(root, "given")); err != nil || len(left) > 0 {
		t.Errorf("outside the sandbox its folder holds %v, %v", left, err)
	}
}
