package corpus_test

import (
	"strings"
	"testing"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/test/bench/corpus"
)

func TestCorpus(t *testing.T) {
	engines := []corpus.Engine{{Name: "a", Namespace: "argocd-a"},
		{Name: "b", Namespace: "argocd-b"}}
	for name, c := range map[string]corpus.Corpus{"folders": {Engines: engines},
		"flat": {Engines: engines, Flat: true}} {
		const n = 1100
		var files []configschema.File
		for path, content := range c.All(n, "v1.0.0") {
			if strings.Contains(path, "/deployments/") &&
				(len(content) < 600 || len(content) > 800) {
				t.Errorf("%s: %s has %d bytes, not 600 to 800", name, path, len(content))
			}
			files = append(files, configschema.File{Path: path, Blob: "0", Bytes: []byte(content)})
		}
		for _, p := range configschema.Check(files) {
			t.Errorf("%s: %s:%d: %s", name, p.Path, p.Line, p.Message)
		}
		at := map[string]int{}
		for i := range n {
			at[c.Wanted(i, "v1.0.0").Namespace]++
		}
		if at["argocd-a"] < n/3 || at["argocd-b"] < n/3 {
			t.Errorf("%s: the engines get %v", name, at)
		}
	}
}
