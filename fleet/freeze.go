package fleet

import "slices"

// Freeze is a recurring period in which merged changes to some environments wait for its end, or
// for a person who releases them. Package freeze decides when it is active.
type Freeze struct {
	Name     string   `json:"name"`               // unique among the freezes of the declaration
	Schedule string   `json:"schedule"`           // when it begins: cron, five fields
	Duration Duration `json:"duration"`           // 1m..2160h
	TimeZone string   `json:"timeZone,omitempty"` // of Schedule, in the IANA database; default UTC
	// environments by their labels; nil: all
	EnvironmentSelector *LabelSelector `json:"environmentSelector,omitempty"`
	Kinds               []FreezeKind   `json:"kinds,omitempty"`  // empty: all
	Reason              string         `json:"reason,omitempty"` // for people
}

// FreezeKind is a kind of change that a freeze holds.
type FreezeKind string

// Kinds of changes. A SyncRun, a move and a person's decision are none of them.
const (
	FreezeChanges   FreezeKind = "Changes"   // Applications that declarations create or change
	FreezeDeletions FreezeKind = "Deletions" // of Applications
	FreezeSyncs     FreezeKind = "Syncs"     // that Argo CD begins by itself
)

// FreezeKinds lists the kinds.
var FreezeKinds = []FreezeKind{FreezeChanges, FreezeDeletions, FreezeSyncs}

// Holds reports whether the freeze concerns a kind of change.
func (f *Freeze) Holds(k FreezeKind) bool {
	return len(f.Kinds) == 0 || slices.Contains(f.Kinds, k)
}

// Covers reports whether the freeze concerns an environment with these labels.
func (f *Freeze) Covers(labels map[string]string) bool {
	return f.EnvironmentSelector == nil || f.EnvironmentSelector.Matches(labels)
}

// FreezeWindow is a freeze in the terms of an AppProject: while it is active, the engine's Argo CD
// does not sync the Applications of these environments by itself.
type FreezeWindow struct {
	Schedule string
	Duration Duration
	TimeZone string        `json:",omitempty"`
	Clusters []Destination // without namespaces
}
