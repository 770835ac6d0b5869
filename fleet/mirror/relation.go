package mirror

// Relation is the relation of the branch's head to the applied revision.
type Relation string

// Relations. All but RelationSame and RelationDescendant wait for an approval.
const (
	RelationSame       Relation = "same"       // no new commit
	RelationDescendant Relation = "descendant" // the ordinary case: commits were added
	RelationOlder      Relation = "older"      // the branch was reset to an ancestor
	RelationRewritten  Relation = "rewritten"  // neither reaches the other: history was replaced
	RelationUnknown    Relation = "unknown"    // the repository no longer has the applied commit
)

// Continues reports whether the head has all of the applied history.
func (r Relation) Continues() bool { return r == RelationSame || r == RelationDescendant }
