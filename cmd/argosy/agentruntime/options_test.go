package agentruntime

import (
	"encoding/json"
	"testing"

	"argosy.dev/argosy/fleet/agent"
)

// The hub's hello decides whether the agent writes to a shared engine with weak isolation. An
// earlier hub does not send the tenants.
func TestAnAgentBlocksLikeAPushEngineOnceItKnowsTheTenantsOfItsEngine(t *testing.T) {
	for text, want := range map[string]struct {
		advise bool
		of     int
	}{
		`{"engine":"eu-1"}`:                                  {advise: true},
		`{"engine":"eu-1","dedicatedTo":[]}`:                 {},
		`{"engine":"eu-1","dedicatedTo":["acme"]}`:           {of: 1},
		`{"engine":"eu-1","dedicatedTo":["acme","initech"]}`: {of: 2},
	} {
		var hello agent.Hello
		if err := json.Unmarshal([]byte(text), &hello); err != nil {
			t.Fatal(err)
		}
		a := &Agent{}
		spec := a.spec(hello)
		if o := a.options(spec, nil); o.Advise != want.advise || !o.NoParams ||
			len(spec.DedicatedTo) != want.of {
			t.Errorf("%s: %+v, %v", text, o, spec.DedicatedTo)
		}
	}
}
