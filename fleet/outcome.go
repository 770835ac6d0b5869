package fleet

// Outcome is how one object stands that a pull request was to change: its row in the mirror, and
// what its engine last said of it.
type Outcome struct {
	Key ObjectKey `json:"key"`
	// the row is there; false: the object is proven gone, or never came
	Present bool `json:"present"`
	// the row is marked for removal, and its object is not proven gone yet
	Unwanted bool `json:"absent,omitempty"`
	Held     bool `json:"held,omitempty"` // its removal waits for an approval

	// of the config repo: the commit that last changed the row
	Revision Revision `json:"revision,omitempty"`
	Hash     string   `json:"hash,omitempty"` // of the manifest that it is to have

	Apply        ApplyState `json:"apply,omitempty"`
	ApplyMessage string     `json:"applyMessage,omitempty"` // of a failure

	Sync           SyncState   `json:"sync,omitempty"` // of an Application, as the next four
	Health         HealthState `json:"health,omitempty"`
	Message        string      `json:"message,omitempty"`        // of conditions or health
	SyncedRevision string      `json:"syncedRevision,omitempty"` // of the application's repository
	// Sync and Health were said before the engine took the object as it is now
	Stale bool `json:"stale,omitempty"`
}

// Collision is another open pull request that changes files which this one changes too.
type Collision struct {
	Number  int      `json:"number"`
	Touches []string `json:"touches"` // the files in common, sorted
}
