package e2e

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"argosy.dev/argosy/test/stack"
)

var urlOfCode = regexp.MustCompile(`^Open (\S+)$`)

// aPersonOnATerminal signs in by a code that she confirms at the issuer, sees what her group may,
// and signs out.
func aPersonOnATerminal(t *testing.T, w *forged) {
	const access = "fleet/access.yaml"
	_, err := w.config.Push(t.Context(), w.person["petra"], stack.Change{Message: "who may look",
		Write: map[string]string{access: "apiVersion: argosy.dev/v1alpha1\nkind: Access\n" +
			"metadata: {name: access}\nspec: {viewers: [\"group:engineering\"]}\n"}})
	check(t, err)
	home := t.TempDir()
	ana := func(arguments ...string) *exec.Cmd {
		c := exec.CommandContext(t.Context(), binary, arguments...)
		c.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+filepath.Join(home, "config"))
		return c
	}
	runs := func(arguments ...string) (string, int) {
		t.Helper()
		c := ana(arguments...)
		out, _ := c.CombinedOutput()
		return string(out), c.ProcessState.ExitCode()
	}

	login := ana("login", w.plane.URL)
	problems, err := login.StderrPipe()
	check(t, err)
	var out strings.Builder
	login.Stdout = &out
	check(t, login.Start())
	var hints []string
	for lines := bufio.NewScanner(problems); lines.Scan(); {
		hints = append(hints, lines.Text())
		if at := urlOfCode.FindStringSubmatch(lines.Text()); at != nil {
			last, err := w.issuer.SignIn(t.Context(), at[1], "ana@example.com", "a")
			if err != nil || last != "" {
				t.Errorf("the issuer sends to %q, %v", last, err)
			}
		}
	}
	if err := login.Wait(); err != nil || !strings.Contains(out.String(), "user:corp/ana") {
		t.Fatalf("login: %v\n%s%s", err, out.String(), strings.Join(hints, "\n"))
	}

	eventually(t, "her group may look", func() string {
		if text, code := runs("login", "--check"); code != 0 || !strings.Contains(text,
			"may read the whole platform") {
			return text
		}
		return ""
	})
	if text, code := runs("get", "applications"); code != 0 || !strings.Contains(text, "checkout") {
		t.Errorf("get applications: %d\n%s", code, text)
	}
	if text, code := runs("refresh", "acme/checkout@prod-eu", "--yes"); code == 0 ||
		!strings.Contains(text, "takes the role member") {
		t.Errorf("a viewer refreshes: %d\n%s", code, text)
	}
	if text, code := runs("session", "list"); code != 0 || !strings.Contains(text, "valid") {
		t.Errorf("session list: %d\n%s", code, text)
	}
	if text, code := runs("logout"); code != 0 {
		t.Errorf("logout: %d\n%s", code, text)
	}
	if text, code := runs("get", "applications"); code == 0 || !strings.Contains(text,
		"argosy login") {
		t.Errorf("after logout: %d\n%s", code, text)
	}
	_, err = w.config.Push(t.Context(), w.person["petra"], stack.Change{Message: "no longer",
		Remove: []string{access}})
	check(t, err)
}
