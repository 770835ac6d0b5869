// Package forgetest is the contract of webhook.Host as tests. Run is the one suite: every Git host
// that Argosy supports passes it.
//
// A Stage is one repository on a Git host with people who act in it, for one test: Forge is the
// subject of the test, everything else is the people's actions on the Git host's pages, and their
// view of it. It is small on purpose: a real Git host implements it with its own API.
//
// The repository is public. Its people, all created on the Git host:
//
//	Admin     may do everything in it, and is in Team
//	Writer    writes to it, and is in Team
//	Reader    reads it and has nothing more to do with it
//	Stranger  as Reader; opens pull requests from a fork
//
// A Stage's methods end the test if anything but its subject fails.
package forgetest

import (
	"context"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/webhook"
)

// Forge is everything that Argosy needs of a Git host.
type Forge interface {
	webhook.Host
	webhook.MergedPulls
	webhook.Proposals
	// Repository returns the ID of the repository and its current name.
	Repository(ctx context.Context) (id int64, fullName string, err error)
	// Protection reads the rules of the branch and the repository's settings for merges. Unread
	// lists the rules that Argosy's account may not read: they are never reported as absent.
	Protection(ctx context.Context, branch string) (forge.Protection, error)
}

// Stage is a repository on a Git host and the people around it. Methods that change something
// return when the Git host's API shows the change.
type Stage interface {
	// Forge connects with our own account, as after a restart. The repository's ID is pinned.
	Forge() Forge
	// Cast returns the people.
	Cast() Cast

	// Open opens a pull request into Cast.Base that changes a file: of a branch of the repository,
	// or of a fork for one who may not write.
	Open(by forge.Person, title string) (number int, head fleet.Revision)
	// Write gives the base a file, and returns the base's commit.
	Write(path, text string) fleet.Revision
	// File returns the text of a file on a branch, and whether there is one.
	File(branch, path string) (string, bool)
	// Push adds a commit to the pull request's branch and gives its new head.
	Push(number int) fleet.Revision
	// Merge merges the pull request as its administrator and gives the commit that the base has for
	// it.
	Merge(number int) fleet.Revision
	// Close closes the pull request without a merge.
	Close(number int)

	// Comment adds a comment to the conversation and gives its id.
	Comment(number int, by forge.Person, body string) int64
	// Edit changes a comment's text, later than its creation by the Git host's clock.
	Edit(number int, comment int64, by forge.Person, body string)
	// DeleteComment deletes a comment of any author.
	DeleteComment(number int, comment int64)
	// Review reviews the pull request's head: approved, changes or commented.
	Review(number int, by forge.Person, state forge.ReviewState)
	// Dismiss takes the newest review of the person back, as the administrator.
	Dismiss(number int, of forge.Person)

	// Comments are the texts of the conversation's comments as everybody sees them, oldest first.
	Comments(number int) []string
	// Shown are the checks of a commit by name as everybody sees them.
	Shown(head fleet.Revision) map[string]Shown

	// Protect sets the rules of Cast.Base and the settings for merges into it.
	Protect(r Rules)

	// Replace renames the repository, and lets Stranger make one of the name that it had, with a
	// pull request number 1.
	Replace()
}

// Cast is who is on a Stage.
type Cast struct {
	Base                            string // the branch that pull requests are merged into
	Self                            forge.Person
	Admin, Writer, Reader, Stranger forge.Person
	Team                            string // "org/team", of Admin and Writer
	TeamID                          int64
	// another way to write Team that means the same, such as in other case; "" if there is none
	TeamAs string
}

// Shown is a check as the Git host shows it.
type Shown struct {
	State forge.CheckState // neutral where the Git host shows it as such, success otherwise
	Title string
	URL   string
}

// Run runs the suite. stage is called once for each case.
func Run(t *testing.T, stage func(t *testing.T) Stage) {
	for name, check := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			s := stage(t)
			check(&scene{T: t, Stage: s, ctx: ctx, forge: s.Forge(), Cast: s.Cast()})
		})
	}
}

// scene is a stage under way.
type scene struct {
	*testing.T
	Stage
	Cast

	ctx   context.Context
	forge Forge
}

func (s *scene) pull(number int) forge.Pull {
	s.Helper()
	p, err := s.forge.Pull(s.ctx, number)
	if err != nil {
		s.Fatal(err)
	}
	return p
}

func (s *scene) conversation(number int) ([]forge.Comment, []forge.Review) {
	s.Helper()
	comments, reviews, err := s.forge.Conversation(s.ctx, number)
	if err != nil {
		s.Fatal(err)
	}
	return comments, reviews
}

func (s *scene) post(number int, comment int64, body string) int64 {
	s.Helper()
	id, err := s.forge.SetComment(s.ctx, number, comment, marker, marker+"\n"+body)
	if err != nil {
		s.Fatal(err)
	}
	return id
}

func (s *scene) mark(head fleet.Revision, checks ...forge.Check) {
	s.Helper()
	if err := s.forge.ReportChecks(s.ctx, head, checks); err != nil {
		s.Fatal(err)
	}
}

const marker = "<!-- argosy:sticky -->"
