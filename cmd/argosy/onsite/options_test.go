package onsite

import (
	"encoding/json"
	"testing"

	"argosy.dev/argosy/fleet/agent"
)

// What a hub says decides whether a shared engine that keeps its tenants badly apart is written to.
// An earlier hub says nothing.
func TestAnAgentBlocksLikeAPushEngineOnceItIsToldWhoSharesTheEngine(t *testing.T) {
	for said, want := range map[string]struct {
		advise bool
		of     int
	}{
		`{"engine":"eu-1"}`:                                  {advise: true},
		`{"engine":"eu-1","dedicatedTo":[]}`:                 {},
		`{"engine":"eu-1","dedicatedTo":["acme"]}`:           {of: 1},
		`{"engine":"eu-1","dedicatedTo":["acme","initech"]}`: {of: 2},
	} {
		var hello agent.Hello
		if err := json.Unmarshal([]byte(said), &hello); err != nil {
			t.Fatal(err)
		}
		a := &Agent{}
		spec := a.spec(hello)
		if o := a.options(spec, nil); o.Advise != want.advise || !o.NoParams ||
			len(spec.DedicatedTo) != want.of {
			t.Errorf("%s: %+v, %v", said, o, spec.DedicatedTo)
		}
	}
}
