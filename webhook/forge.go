package webhook

import (
	"context"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
)

// Forge is the forge that the config repo lives on, spoken to with Argosy's own account. Every list
// is complete or an error; an error that is none of those named here means that nothing is known. A
// *forge.Busy says when to ask again. Each method of it first makes sure that the repository
// is still the one it was: its id never changes, and a stranger who has taken its name is not
// believed.
type Forge interface {
	Reader
	People
	Writer
	Deliveries
	Guard
}

// Reader reads the repository and its pull requests.
type Reader interface {
	// Repository gives the id of the repository and the name it has now.
	Repository(ctx context.Context) (id int64, fullName string, err error)
	// Pull reads one pull request; forge.ErrNoSuchPull when the repository answers and surely has
	// none of that number.
	Pull(ctx context.Context, number int) (forge.Pull, error)
	// OpenPulls lists the open pull requests that are to be merged into the branch base.
	OpenPulls(ctx context.Context, base string) ([]forge.Pull, error)
	// PullsOf lists the numbers of the merged pull requests that the commit belongs to, in
	// ascending order.
	PullsOf(ctx context.Context, commit fleet.Revision) ([]int, error)
	// Conversation lists the comments and the reviews of a pull request, each oldest first.
	Conversation(ctx context.Context, number int) ([]forge.Comment, []forge.Review, error)
}

// People resolves accounts and teams.
type People interface {
	// Owner tells who "alice" (a user) or "acme/leads" (a team, the members of its child teams
	// included) is, with the number that stays when the name goes to somebody else;
	// forge.ErrNoSuchOwner when there is surely no such account or team.
	Owner(ctx context.Context, name string) (forge.Account, error)
	// Permission is what the person may do in the repository. The id decides: whoever has taken the
	// person's login has no part in it.
	Permission(ctx context.Context, p forge.Person) (forge.Permission, error)
}

// Writer says and marks what a look came to.
type Writer interface {
	// Say makes our one comment of a pull request say body, which begins with marker, one line with
	// an HTML comment. It edits the comment with the given id; with 0, or when that one is gone or
	// not ours, it finds ours by author and marker, and only if there is none it posts one. It
	// gives the id of the comment.
	Say(ctx context.Context, number int, comment int64, marker, body string) (int64, error)
	// Mark reports the checks of a commit.
	Mark(ctx context.Context, head fleet.Revision, checks []forge.Check) error
}

// Deliveries finds the webhook deliveries that never arrived. Both methods give
// errors.ErrUnsupported where the forge keeps no list of them.
type Deliveries interface {
	// Missed lists the deliveries tried since then of which no try has succeeded, oldest first.
	Missed(ctx context.Context, since time.Time) ([]forge.MissedDelivery, error)
	// Redeliver asks the forge to deliver once more. Its GUID stays the same.
	Redeliver(ctx context.Context, id int64) error
}

// Guard tells what the forge itself enforces.
type Guard interface {
	// Protection reads the rules of the branch and the repository's settings for merges. What our
	// account may not read is told in Unread, never as a rule that is absent.
	Protection(ctx context.Context, branch string) (forge.Protection, error)
}
