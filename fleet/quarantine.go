package fleet

// Quarantine is a file at the head that is not in effect. Its declaration stays at its last good
// version, if it has one.
type Quarantine struct {
	Key  Key    `json:"key"`
	Path string `json:"path"`
	Blob string `json:"blob"`
	// decoded file, evaluated again when a dependency arrives; nil if it did not decode or was
	// removed
	Declaration *Declaration `json:"declaration,omitempty"`
	Problems    []Problem    `json:"problems"`
	HasLastGood bool         `json:"hasLastGood"`
	// the file is removed, but its declaration must stay for now
	Removed bool `json:"removed,omitempty"`
}
