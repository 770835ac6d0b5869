package fleet

import "time"

// Push is one push to the config repo's branch, as a signed delivery of the Git host told of it.
type Push struct {
	Before Revision
	After  Revision
	By     Person
	At     time.Time // when it was delivered
}
