package agentruntime

import (
	"os/exec"
	"strings"
	"testing"
)

// An agent runs on a tenant's cluster. It links neither the planner nor the control plane's
// adapters.
func TestAnAgentImportsNoPlanner(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	const module = "argosy.dev/argosy/"
	for _, imported := range strings.Fields(string(out)) {
		for _, denied := range []string{"reconciler", "reconciler/plan", "reconciler/postgres",
			"reconciler/gitrepo", "reconciler/secrets", "fleet/catalog", "fleet/placement",
			"fleet/policy", "config-schema", "webhook", "api"} {
			if imported == module+denied {
				t.Errorf("an agent imports %s", imported)
			}
		}
	}
}
