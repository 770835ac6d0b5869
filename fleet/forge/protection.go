package forge

// Protection is what the Git host itself enforces on the branch and on merges into it, as far as
// Argosy's account may read that. A rule that it states is in force. A rule that it does not state
// is absent only if Unread names no missing permission for it.
type Protection struct {
	Host string // "GitHub", "Gitea"
	App  int64  // App that Argosy reports its checks as; 0 with a token

	Checks          []RequiredCheck
	PullRequests    bool // a change reaches the branch by a pull request alone, but for Pushers
	DismissesStale  bool // a new commit dismisses the approvals of earlier ones
	RefusesForce    bool
	RefusesDeletion bool

	Pushers    []Exempt // may push without a pull request
	Overriders []Exempt // may merge although a required check fails
	// patterns of files that anybody who may write may push without a pull request
	Unguarded string

	// whether each style that the host has is allowed; a style that is missing is not known
	Styles    map[MergeStyle]bool
	AutoMerge *bool       // nil: not known
	Queue     *MergeQueue // nil: no merge queue is required

	Unread Unread
}

// RequiredCheck is a check without which the host merges nothing.
type RequiredCheck struct {
	Name string
	App  int64 // only this App's counts; 0: whoever sets it
}

// Exempt is an account or a group of accounts that a rule of the branch does not bind.
type Exempt struct {
	Name string // for people: "alice", "the team acme/leads", "administrators of the repository"
	// an account; zero for others, and ID 0 where the host names accounts by login alone
	User Person
	Team string // "org/team"; empty for others
}

// MergeQueue is how the host merges pull requests that wait in line.
type MergeQueue struct {
	Style    MergeStyle
	HeadOnly bool // of each group the last commit alone has to pass the required checks
}

// MergeStyle is a way to bring a pull request into the branch.
type MergeStyle string

// The styles of GitHub and Gitea.
const (
	MergeCommit      MergeStyle = "merge"
	MergeSquash      MergeStyle = "squash"
	MergeRebase      MergeStyle = "rebase"
	MergeRebaseMerge MergeStyle = "rebase-merge"      // rebase, then a merge commit
	MergeFastForward MergeStyle = "fast-forward-only" // the branch moves to the head
	// whoever may write names a commit as the merge
	MergeManual MergeStyle = "manually-merged"
)

// Unread names, for each part of a Protection, the permission that reading it whole would take;
// empty where it was read whole.
type Unread struct {
	Rules    string // Checks, PullRequests, DismissesStale, RefusesForce, RefusesDeletion, Queue
	Exempt   string // Pushers, Overriders
	Settings string // Styles, AutoMerge
}
