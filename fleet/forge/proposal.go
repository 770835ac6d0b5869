package forge

import (
	"slices"

	"argosy.dev/argosy/fleet"
)

// Proposal is a change of one file of the config repo, as Argosy proposes it by a pull request.
type Proposal struct {
	Base   string         // the branch that it changes
	From   fleet.Revision // a commit of the base, which the text is made from
	Branch string         // of the pull request alone, without refs/heads/
	Path   string
	Text   []byte
	Title  string // also the commit's subject
	Body   string // Markdown
}

// Proposed is the pull request of a Proposal.
type Proposed struct {
	Number int
	URL    string // for people; "" if the Git host's is none
}

// LastingState is how far the pull request that makes rollbacks lasting is.
type LastingState string

// States of a Lasting.
const (
	LastingNone   LastingState = "" // none is opened yet
	LastingOpen   LastingState = "Open"
	LastingMerged LastingState = "Merged"
	LastingClosed LastingState = "Closed" // by a person, or because no rollback is in force
	// the file cannot be changed so; Message has the reason
	LastingImpossible LastingState = "Impossible"
)

// Lasting is the pull request that makes the rollbacks of one deployment lasting: it declares the
// revisions that they lead to.
type Lasting struct {
	Deployment fleet.DeploymentID
	Rollbacks  []Rollback // in force, by environment
	Pull       PullState  // as it was reviewed last; "": not yet
	Due        bool       // a step that failed may be tried again

	State    LastingState
	Covers   []string // operations of the rollbacks that the pull request was made for
	Blob     string   // of the file that it was made from
	Branch   string
	Proposed Proposed
	Message  string // why the last step failed
	Attempts int    // that failed, in a row
}

// Rollback is a rollback of an Application that is in force.
type Rollback struct {
	Environment fleet.EnvironmentName `json:"environment"`
	Operation   string                `json:"operation"`
	// of its sources, joined by commas; "" if its request is not stored any more
	Revision string `json:"revision"`
	By       string `json:"by"`
	Note     string `json:"note"`
}

// LastingStep is what to do about the pull request of a deployment.
type LastingStep string

// Steps of a Lasting.
const (
	LastingKeep     LastingStep = "keep"
	LastingPropose  LastingStep = "propose"  // open it, or change it
	LastingWithdraw LastingStep = "withdraw" // close it: no rollback is in force
	LastingEnd      LastingStep = "end"      // a person has merged or closed it
)

// Next returns the next step. blob is the file's now. A pull request that a person has closed is
// not opened again for the same rollbacks.
func (l Lasting) Next(blob string) LastingStep {
	open, ids := l.State == LastingOpen, l.operations()
	same := slices.Equal(l.Covers, ids)
	fresh := slices.ContainsFunc(ids, func(id string) bool {
		return !slices.Contains(l.Covers, id)
	})
	switch {
	case open && (l.Pull == PullMerged || l.Pull == PullClosed):
		return LastingEnd
	case !l.Due:
		return LastingKeep
	case len(l.Rollbacks) == 0 && open:
		return LastingWithdraw
	case len(l.Rollbacks) == 0 || slices.ContainsFunc(l.Rollbacks, func(r Rollback) bool {
		return r.Revision == ""
	}):
		return LastingKeep
	case fresh, (open || l.State == LastingImpossible) && (!same || blob != l.Blob):
		return LastingPropose
	}
	return LastingKeep
}

// Begin returns the Lasting with what a new proposal covers. A pull request that is not open any
// more gets a successor, on a branch of its own.
func (l Lasting) Begin(blob string) Lasting {
	l.Covers, l.Blob = l.operations(), blob
	if l.State != LastingOpen {
		l.Branch = "argosy-rollback-" + string(l.Deployment.Tenant) + "-" +
			string(l.Deployment.Name) + "-" + slices.Max(l.Covers)
		l.Proposed, l.Pull = Proposed{}, ""
	}
	return l
}

func (l Lasting) operations() (ids []string) {
	for _, r := range l.Rollbacks {
		ids = append(ids, r.Operation)
	}
	return ids
}
