package reviews

import "argosy.dev/argosy/fleet"

// Commit is one commit of the branch's own line, with the evidence for its changes.
type Commit struct {
	ID      fleet.Revision
	Changed map[string]string   // against its first parent: path to blob, "" if removed
	Shown   []map[string]string // likewise, of each approved pull request merged as this commit
	Trusted bool                // pushed by an account whose direct pushes count as reviewed
}

// Paths returns the paths whose content at the end of a span (oldest commit first) was reviewed,
// and which of them count by their push. The last commit that changed a path decides: it counts
// when a trusted account pushed this commit, or when a pull request merged then or later showed
// exactly this content. So the several commits of a rebased pull request are judged by its head,
// and content that was pushed in between stays unreviewed until a pull request shows it.
func Paths(commits []Commit) (reviewed map[string]string, trusted map[string]bool) {
	now := map[string]string{}
	reviewed, trusted = map[string]string{}, map[string]bool{}
	for _, c := range commits {
		for path, blob := range c.Changed {
			now[path] = blob
			delete(reviewed, path)
			delete(trusted, path)
			if c.Trusted {
				reviewed[path], trusted[path] = blob, true
			}
		}
		for _, shown := range c.Shown {
			for path, blob := range shown {
				if have, changed := now[path]; !changed || have == blob {
					reviewed[path] = blob
				}
			}
		}
	}
	return reviewed, trusted
}
