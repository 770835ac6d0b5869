package forge

// Protection is the protection of the branch and of merges into it that the Git host enforces, as
// far as Argosy's account may read it. A listed rule is in force. A rule that is not listed is
// absent only if Unread names no missing permission for it.
type Protection struct {
	Host string // "GitHub", "Gitea"
	App  int64  // App that reports Argosy's checks; 0 with a token

	Checks          []RequiredCheck
	PullRequests    bool // a change reaches the branch only by a pull request, except for Pushers
	DismissesStale  bool // a new commit dismisses the approvals of earlier ones
	RefusesForce    bool
	RefusesDeletion bool

	Pushers    []Exempt // may push without a pull request
	Overriders []Exempt // may merge although a required check fails
	// patterns of files that every writer may push without a pull request
	Unguarded string

	// whether each merge style is allowed; a missing style is unknown
	Styles    map[MergeStyle]bool
	AutoMerge *bool       // nil: unknown
	Queue     *MergeQueue // nil: no merge queue is required

	Unread Unread
}

// RequiredCheck is a check that the Git host requires for a merge.
type RequiredCheck struct {
	Name string
	App  int64 // only this App's result counts; 0: anyone's
}

// Exempt is an account or a group of accounts that may bypass a rule of the branch.
type Exempt struct {
	Name string // for display: "alice", "the team acme/leads", "administrators of the repository"
	// an account; zero for others, and ID 0 if the Git host identifies accounts by login alone
	User Person
	Team string // "org/team"; empty for others
}

// MergeQueue is how the Git host merges queued pull requests.
type MergeQueue struct {
	Style    MergeStyle
	HeadOnly bool // only the last commit of each group must pass the required checks
}

// MergeStyle is a way to merge a pull request into the branch.
type MergeStyle string

// Merge styles of GitHub and Gitea.
const (
	MergeCommit      MergeStyle = "merge"
	MergeSquash      MergeStyle = "squash"
	MergeRebase      MergeStyle = "rebase"
	MergeRebaseMerge MergeStyle = "rebase-merge"      // rebase, then a merge commit
	MergeFastForward MergeStyle = "fast-forward-only" // the branch moves to the head
	// any writer names a commit as the merge
	MergeManual MergeStyle = "manually-merged"
)

// Unread names, for each part of a Protection, the missing permission to read all of it; empty if
// it was read completely.
type Unread struct {
	Rules    string // Checks, PullRequests, DismissesStale, RefusesForce, RefusesDeletion, Queue
	Exempt   string // Pushers, Overriders
	Settings string // Styles, AutoMerge
}
