package fleet

// Quarantine is a file at the head that may not act: its declaration is held at its last good
// state, if it has one.
type Quarantine struct {
	Key  Key    `json:"key"`
	Path string `json:"path"`
	Blob string `json:"blob"`
	// what the file says, to be judged again when what it needs comes; nil when it did not decode
	// or was removed
	Declaration *Declaration `json:"declaration,omitempty"`
	Problems    []Problem    `json:"problems"`
	HasLastGood bool         `json:"hasLastGood"`
	// the file is gone, but what it declared may not go yet
	Removed bool `json:"removed,omitempty"`
}
