package configschema

// planCodes says what each code means that is told only of a commit which is planned:
// reconciler/plan finds them, and `argosy plan -o sarif` notes each change. This package does not
// know that one; a test holds the words of both together.
func planCodes() map[string]string {
	return map[string]string{
		"cannot-render": "No object for Argo CD can be made from the declaration; it keeps " +
			"its last good state.",
		"engine-in-use": "The engine still serves environments or holds objects: it cannot " +
			"be removed, nor become another Argo CD.",
		"environment-in-use": "Applications stand in the environment: an agent cannot join or " +
			"leave it, nor its mode or its Argo CD change, under them.",
		"plan-create":  "An object is created on an engine.",
		"plan-delete":  "An object is deleted from an engine.",
		"plan-hold":    "An object would be deleted, and waits for an approval.",
		"plan-update":  "An object is changed on an engine.",
		"sync-not-run": "The SyncRun is not run in an environment that no engine serves yet.",
		"unplaced":     "No engine can serve the environment.",
	}
}
