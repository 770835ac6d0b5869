package configschema

import (
	"os"
	"strings"
	"testing"
)

// The examples of docs/deployments.md begin with the path of their file.
func TestTheExamplesOfTheDocumentationDecode(t *testing.T) {
	page, err := os.ReadFile("../docs/deployments.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, block := range strings.Split(string(page), "```yaml\n# ")[1:] {
		text, _, _ := strings.Cut(block, "```")
		path, text, _ := strings.Cut(text, "\n")
		for _, p := range Decode(File{Path: path, Bytes: []byte(text)}).Problems {
			t.Error(p)
		}
		found++
	}
	if found == 0 {
		t.Error("the page has no example")
	}
}
