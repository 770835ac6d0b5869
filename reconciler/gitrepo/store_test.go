package gitrepo

import (
	"os"
	"testing"
)

// leftovers counts files that a fetch should have cleaned up.
func leftovers(t testing.TB, m *Mirror) int {
	t.Helper()
	names, err := os.ReadDir(m.store.incomingDir())
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}
