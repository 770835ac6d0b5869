package configschema

// Caps of one file. They bound what a hostile file can cost: the parser never sees more than
// maxFile bytes, no alias is ever expanded, and no walk goes deeper than maxDepth.
const (
	maxFile     = 256 << 10 // bytes
	maxDepth    = 32        // nested maps and lists; the deepest declaration needs 8
	maxText     = 256       // bytes of a text, where its description says nothing else
	maxItems    = 1000      // entries of a list, where its description says nothing else
	maxLabels   = 32        // entries of a map of labels
	maxProblems = 50        // told per file; the rest is counted
	maxQuoted   = 48        // characters of a value that a message repeats
)
