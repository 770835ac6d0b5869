package argocd

import (
	"encoding/json"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

// Argo CD's message of an operation does not name the failed resource; the result of that resource
// does.
func TestAFailedOperationNamesTheResourceThatFailed(t *testing.T) {
	t.Parallel()
	const (
		invalid   = "one or more synchronization tasks are not valid"
		refused   = `{"group":"argoproj.io","kind":"Application","namespace":"evil-a","name":"x","status":"SyncFailed","message":"resource argoproj.io:Application is not permitted in project evil"}`
		synced    = `{"kind":"ConfigMap","namespace":"evil-a","name":"Failed","status":"Synced","message":"configmap/Failed created"}`
		hook      = `{"group":"batch","kind":"Job","namespace":"evil-a","name":"migrate","hookPhase":"Failed","message":"Job has reached the specified backoff limit"}`
		nameless  = `{"kind":"Namespace","name":"new","status":"SyncFailed","message":"resource :Namespace is not permitted in project evil"}`
		wordless  = `{"kind":"ConfigMap","name":"y","status":"SyncFailed"}`
		unlikely  = `{"kind":7,"status":"SyncFailed"}`
		namedWith = "Application evil-a/x: resource argoproj.io:Application is not permitted in project evil; "
	)
	for name, c := range map[string]struct{ phase, message, resources, want string }{
		"that Argo CD tries again": {
			"Running",
			invalid +
				" due to application controller sync timeout. Retrying attempt #3 at 10:00AM.",
			refused,
			namedWith + invalid +
				" due to application controller sync timeout. Retrying attempt #3 at 10:00AM."},
		"that failed": {"Failed", invalid, synced + "," + refused, namedWith + invalid},
		"of several resources": {"Failed", invalid, refused + "," + hook + "," + nameless,
			namedWith + "2 other resources failed; " + invalid},
		"of two resources": {"Error", invalid, refused + "," + wordless,
			namedWith + "1 other resource failed; " + invalid},
		"with a hook": {"Failed", invalid, hook,
			"Job evil-a/migrate: Job has reached the specified backoff limit; " + invalid},
		"without a namespace": {"Failed", invalid, nameless,
			"Namespace new: resource :Namespace is not permitted in project evil; " + invalid},
		"without a message":      {"Failed", "", refused, strings.TrimSuffix(namedWith, "; ")},
		"of no resource":         {"Failed", "ComparisonError", synced, "ComparisonError"},
		"of no resource's words": {"Failed", invalid, wordless, invalid},
		"that is no list":        {"Failed", invalid, unlikely, invalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var o liveObject
			text := `{"status":{"operationState":{"phase":"` + c.phase + `","message":"` +
				c.message + `","syncResult":{"resources":[` + c.resources + `]}}}}`
			if err := json.Unmarshal([]byte(text), &o); err != nil {
				t.Fatal(err)
			}
			seen := observationOf(fleet.ObjectKey{}, &o)
			got := seen.OperationError
			if c.phase == "Running" {
				got = seen.Message
			}
			if got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}
