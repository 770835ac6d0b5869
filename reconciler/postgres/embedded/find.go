//go:build unix

package embedded

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// oldest is the first major version that has what the store needs.
const oldest = 15

type installation struct {
	bin   string
	major int
}

// find is the bin folder of the PostgreSQL to run for dir: of the major version that dir was made
// with, else the newest. It searches $ARGOSY_POSTGRES_BIN alone if that is set, else the usual
// places and PATH.
func find(dir string) (string, error) {
	found := installations()
	if made, err := os.ReadFile(filepath.Join(dir, "data", "PG_VERSION")); err == nil {
		major, _ := strconv.Atoi(strings.TrimSpace(string(made)))
		for _, i := range found {
			if i.major == major {
				return i.bin, nil
			}
		}
		return "",
			fmt.Errorf(
				"it was made by PostgreSQL %d, and this machine has %s: install PostgreSQL %d, "+
					"or name its folder in "+
					"ARGOSY_POSTGRES_BIN; or move the folder away, and the mirror is rebuilt "+
					"from Git",
				major, listed(found), major)
	}
	if len(found) == 0 {
		return "",
			fmt.Errorf(
				"no PostgreSQL %d or later was found in /usr/lib/postgresql, /usr/local, /opt "+
					"and PATH: install it "+
					"(apt install postgresql), name its folder in ARGOSY_POSTGRES_BIN, or give "+
					"database.url", oldest)
	}
	return found[0].bin, nil
}

// installations returns the usable installations, the newest first.
func installations() []installation {
	var folders []string
	if named := os.Getenv("ARGOSY_POSTGRES_BIN"); named != "" {
		folders = []string{named}
	} else {
		for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin",
			"/usr/local/pgsql/bin", "/opt/homebrew/opt/postgresql*/bin",
			"/usr/local/opt/postgresql*/bin"} {
			more, _ := filepath.Glob(pattern)
			folders = append(folders, more...)
		}
		if path, err := exec.LookPath("postgres"); err == nil {
			folders = append(folders, filepath.Dir(path))
		}
	}
	var found []installation
	for _, bin := range folders {
		if major := majorOf(bin); major >= oldest {
			found = append(found, installation{bin, major})
		}
	}
	slices.SortStableFunc(found, func(a, b installation) int { return b.major - a.major })
	return found
}

var versionWord = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// majorOf is 0 when the folder has no server or no initdb that runs.
func majorOf(bin string) int {
	if _, err := os.Stat(filepath.Join(bin, "initdb")); err != nil {
		return 0
	}
	out, err := exec.CommandContext(context.Background(), filepath.Join(bin, "postgres"),
		"--version").Output()
	if err != nil {
		return 0
	}
	m := versionWord.FindSubmatch(out)
	if m == nil {
		return 0
	}
	major, _ := strconv.Atoi(string(m[1]))
	return major
}

func listed(found []installation) string {
	if len(found) == 0 {
		return "none"
	}
	var words []string
	for _, i := range found {
		words = append(words, strconv.Itoa(i.major))
	}
	return "PostgreSQL " + strings.Join(slices.Compact(words), ", ")
}
