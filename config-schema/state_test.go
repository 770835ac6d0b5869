package configschema

import (
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

const engineFile = `apiVersion: argosy.dev/v1alpha1
kind: Engine
metadata:
  name: eu-1
spec:
  # its Argo CD
  argocd:
    namespace: argocd
    installationID: eu-1
  connection: {inCluster: true}
  region: eu
  capacity:
    applications: 10
    environments: 10
`

func TestTheStateOfAnEngineIsWrittenIntoItsFile(t *testing.T) {
	withState := engineFile + "  state: Cordoned # until Monday\n"
	for name, c := range map[string]struct{ text, want string }{
		"without a state": {engineFile, engineFile + "  state: Draining\n"},
		"with another state and a comment": {withState,
			engineFile + "  state: Draining # until Monday\n"},
		"with a quoted state": {engineFile + "  state: \"Active\"\n",
			engineFile + "  state: Draining\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := SetEngineState([]byte(c.text), fleet.EngineDraining)
			if err != nil || string(got) != c.want {
				t.Errorf("%v\n%s", err, got)
			}
		})
	}
}

func TestAFileWithoutAnEngineKeepsItsState(t *testing.T) {
	for name, text := range map[string]string{
		"no Engine":          strings.Replace(engineFile, "kind: Engine", "kind: Fleet", 1),
		"a spec in one line": "apiVersion: argosy.dev/v1alpha1\nkind: Engine\nmetadata: {name: a}\nspec: {region: eu}\n",
		"no YAML":            "\t[",
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := SetEngineState([]byte(text), fleet.EngineDraining); err == nil {
				t.Errorf("%s", got)
			}
		})
	}
}
