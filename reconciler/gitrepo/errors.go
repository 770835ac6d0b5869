package gitrepo

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	shown "argosy.dev/argosy/fleet/printable"
)

// The kinds of failure that a caller treats differently; test with errors.Is. After any of them the
// last head stands and nothing may be concluded about what the branch holds.
var (
	// ErrUnavailable: the source could not be reached or did not answer as a Git server does. Try
	// again later.
	ErrUnavailable = errors.New("source unavailable")
	// ErrUnauthorized: the source refused the credential, or wants one.
	ErrUnauthorized = errors.New("source refused access")
	// ErrBranchGone: the source answered, complete and in order, and has no such branch.
	ErrBranchGone = errors.New("branch does not exist")
	// ErrMoved: the ref stands at another commit than the one that was asked for.
	ErrMoved = errors.New("the ref has moved")
	// ErrUnrelated: two histories have no commit in common.
	ErrUnrelated = errors.New("unrelated histories")
	// ErrManyBases: two histories parted at more than one commit, so no comparison with one of them
	// shows what a merge changes.
	ErrManyBases = errors.New("more than one merge base")
	// ErrOverBudget: the source or the commit is larger than a budget; Error.Budget says which.
	ErrOverBudget = errors.New("over budget")
	// ErrMalformed: an object is complete and matches its id, but is not what Git allows.
	ErrMalformed = errors.New("malformed object")
	// ErrCorrupt: the mirror's files are damaged. The next Fetch throws the mirror away and clones
	// anew.
	ErrCorrupt = errors.New("mirror is damaged")
	// ErrTimedOut: the wall clock ran out, or the server fell silent.
	ErrTimedOut = errors.New("timed out")
	// ErrNotFound: no such object or revision in this repository.
	ErrNotFound = errors.New("not found")
	// ErrAmbiguous: a short name means more than one thing.
	ErrAmbiguous = errors.New("ambiguous")
	// ErrStorage: the mirror's directory cannot be read or written.
	ErrStorage = errors.New("mirror directory unusable")
	// ErrRefused: the URL, branch or setting is not one that is allowed.
	ErrRefused = errors.New("refused")
)

// Error is every error of this package but those of a context that the caller ended. It holds no
// credential, user info or query.
type Error struct {
	Kind    error  // one of the Err… values
	Subject string // the source, commit, path or setting it is about
	Detail  string // what happened and what to do
	// with ErrOverBudget: bytes, objects, object bytes, delta depth, memory, files, pull files,
	// file bytes, commits or common ancestors
	Budget string
	Limit  int64 // with ErrOverBudget: the limit that was reached
	Size   int64 // with ErrOverBudget of a blob: its bytes; 0 when that is not known
}

func (e *Error) Error() string {
	return e.Subject + ": " + e.Kind.Error() + ": " + e.Detail
}

func (e *Error) Unwrap() error { return e.Kind }

func overBudget(subject, budget string, limit int64, advice string) *Error {
	return &Error{Kind: ErrOverBudget, Subject: subject, Budget: budget, Limit: limit,
		Detail: fmt.Sprintf("more than %d %s; %s", limit, budget, advice)}
}

func malformed(subject, format string, args ...any) *Error {
	return &Error{Kind: ErrMalformed, Subject: subject, Detail: fmt.Sprintf(format, args...)}
}

func unavailable(format string, args ...any) *Error {
	return &Error{Kind: ErrUnavailable, Detail: fmt.Sprintf(format, args...)}
}

func unauthorized(format string, args ...any) *Error {
	return &Error{Kind: ErrUnauthorized, Detail: fmt.Sprintf(format, args...)}
}

func corrupt(subject, format string, args ...any) *Error {
	return &Error{Kind: ErrCorrupt, Subject: subject, Detail: fmt.Sprintf(format, args...)}
}

func storageError(path string, err error) error {
	var known *Error
	if errors.As(err, &known) {
		return err
	}
	return &Error{Kind: ErrStorage, Subject: path, Detail: err.Error()}
}

// printable makes a text of the other side safe for one log line: no control character, no escape
// sequence, 200 bytes at most.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case r == unicode.ReplacementChar || !shown.Is(r):
			return -1
		}
		return r
	}, s)
	s = strings.TrimSpace(s)
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "…"
	}
	return s
}
