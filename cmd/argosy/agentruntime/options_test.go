package agentruntime

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/edge"
	"argosy.dev/argosy/fleet/engine"
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

// An Argo CD behind an agent has the size that is declared for its engine.
func TestAnAgentGivesItsArgoCDTheDeclaredSize(t *testing.T) {
	var hello agent.Hello
	if err := json.Unmarshal([]byte(`{"engine":"eu-1","argocd":{"namespace":"argocd",`+
		`"installationID":"eu-1","managed":true,"size":{"shards":3}}}`), &hello); err != nil {
		t.Fatal(err)
	}
	if size := (&Agent{}).spec(hello).ArgoCD.Size; size.ShardCount() != 3 {
		t.Errorf("%v", size)
	}
}

// fit is an engine without findings.
type fit struct{ engine.Engine }

func (fit) Preflight(context.Context) (engine.Report, error) { return engine.Report{}, nil }

// Neither side opens a namespace alone: the declaration names it, and the settings of the agent
// allow it.
func TestAnAgentWorksInNamespacesThatAreDeclaredAndAllowed(t *testing.T) {
	apps := fleet.ApplicationNamespace{Namespace: "apps", Tenant: "acme"}
	more := fleet.ApplicationNamespace{Namespace: "more", Tenant: "acme"}
	for name, c := range map[string]struct {
		allowed        []string
		declared, want []fleet.ApplicationNamespace
		refused        string
	}{
		"neither":        {},
		"declared alone": {declared: []fleet.ApplicationNamespace{apps}, refused: "apps"},
		"allowed alone":  {allowed: []string{"apps"}},
		"an earlier hub": {allowed: []string{"apps"}},
		"declared, allowed": {[]string{"apps"}, []fleet.ApplicationNamespace{apps},
			[]fleet.ApplicationNamespace{apps}, ""},
		"one of two": {[]string{"more", "other"}, []fleet.ApplicationNamespace{apps, more},
			[]fleet.ApplicationNamespace{more}, "apps"},
	} {
		a := &Agent{c: Config{ApplicationNamespaces: c.allowed},
			follower: edge.NewFollower(edge.FollowerConfig{})}
		a.own = newOwn(a)
		a.hello = agent.Hello{Engine: "acme.edge", ApplicationNamespaces: c.declared}
		if got := a.spec(a.hello).ApplicationNamespaces; !slices.Equal(got, c.want) {
			t.Errorf("%s: it works in %v, want %v", name, got, c.want)
		}
		report, err := fitting{fit{}, a}.Preflight(t.Context())
		if err != nil || len(report.Findings) != len(strings.Fields(c.refused)) {
			t.Errorf("%s: %+v, %v", name, report.Findings, err)
		}
		for _, f := range report.Findings {
			if f.Blocks || !strings.Contains(f.Message, "applicationNamespaces "+c.refused+",") ||
				!strings.Contains(f.Fix, "--application-namespaces") {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
}
