package checkout_test

import (
	"os"
	"path/filepath"
	"testing"

	"argosy.dev/argosy/cmd/argosy/checkout"
	configschema "argosy.dev/argosy/config-schema"
)

// The report on a file that is too large has the file's size.
func TestAFileThatIsTooLargeIsReportedWithItsSize(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "tenants", "acme", "deployments", "big.yaml")
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int64]string{
		300 << 10: "the file has 307200 bytes; at most 262144 are read",
		1 << 20:   "the file has 1048576 bytes; at most 262144 are read",
		40 << 20:  "the file has 41943040 bytes; at most 262144 are read",
	} {
		if err := os.Truncate(name, size); err != nil {
			t.Fatal(err)
		}
		files, err := checkout.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		if problems := configschema.Check(files); len(problems) != 1 ||
			problems[0].Message != want {
			t.Errorf("%d bytes: %v", size, problems)
		}
	}
}
