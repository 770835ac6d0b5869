package e2e

import (
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/test/stack"
)

func TestAPullRequestFromATypoToItsResult(t *testing.T) {
	w := startForged(t)
	w.startControlPlane(t)
	allHealthy(t)

	path := "tenants/acme/deployments/promo.yaml"
	good := deployment("promo", "staging", "acme-staging", "")
	number, head := w.propose(t, "alice", "promo", map[string]string{path: strings.Replace(good, "targetRevision", "targetRevison", 1)})
	if said := w.await(t, head, fleet.CheckValidate, "failure").Description; !strings.Contains(said, "promo.yaml:5") || !strings.Contains(said, "targetRevison") {
		t.Errorf("the check does not name the typo at its line: %s", said)
	}
	eventually(t, "the comment names the typo", func() string {
		if text := w.says(t, number); !strings.Contains(text, "promo.yaml") || !strings.Contains(text, "targetRevison") {
			return "it says " + text
		}
		return ""
	})

	head = w.revise(t, "alice", "promo", map[string]string{path: good})
	w.await(t, head, fleet.CheckValidate, "success")
	w.await(t, head, fleet.CheckPlan, "success")
	w.await(t, head, fleet.CheckOwners, "pending")
	eventually(t, "the comment shows the plan", func() string {
		if text := w.says(t, number); !strings.Contains(text, "promo") || strings.Contains(text, "targetRevison") {
			return "it says " + text
		}
		return ""
	})

	_, err := w.config.Review(t.Context(), w.person["amir"], number, stack.Approve, head, "")
	check(t, err)
	w.await(t, head, fleet.CheckOwners, "success")
	_, err = w.config.Merge(t.Context(), w.person["petra"], number, "squash")
	check(t, err)
	allHealthy(t, "acme/promo@staging")
	eventually(t, "the same comment ends with the result", func() string {
		if text := w.says(t, number); !strings.Contains(text, "1 Application Synced and Healthy") {
			return "it says " + text
		}
		return ""
	})
}

// await waits for a check of the commit to have the state, and gives it.
func (w *forged) await(t *testing.T, head, name, state string) (s stack.ForgeStatus) {
	t.Helper()
	eventually(t, name+" is "+state, func() string {
		if s = w.checks(t, head)[name]; s.State != state {
			return "it is " + s.State + ": " + s.Description
		}
		return ""
	})
	return s
}
