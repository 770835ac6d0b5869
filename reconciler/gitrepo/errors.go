package gitrepo

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	shown "argosy.dev/argosy/fleet/printable"
)

// The kinds of failure that callers distinguish; test with errors.Is. After any of them the last
// head stays, and the caller must not conclude anything about the branch's content.
var (
	// ErrUnavailable: the source is unreachable or did not answer like a Git server. Retry later.
	ErrUnavailable = errors.New("source unavailable")
	// ErrUnauthorized: the source rejected the credential, or requires one.
	ErrUnauthorized = errors.New("source refused access")
	// ErrBranchGone: the source gave a complete, valid answer without that branch.
	ErrBranchGone = errors.New("branch does not exist")
	// ErrUnrelated: two histories have no commit in common.
	ErrUnrelated = errors.New("unrelated histories")
	// ErrManyBases: two histories have more than one merge base, so no comparison with one of them
	// shows what a merge changes.
	ErrManyBases = errors.New("more than one merge base")
	// ErrOverBudget: the source or the commit exceeds a budget, named by Error.Budget.
	ErrOverBudget = errors.New("over budget")
	// ErrMalformed: an object is complete and matches its id, but Git does not allow its content.
	ErrMalformed = errors.New("malformed object")
	// ErrCorrupt: the mirror's files are damaged. The next Fetch discards the mirror and clones
	// again.
	ErrCorrupt = errors.New("mirror is damaged")
	// ErrTimedOut: the time limit expired, or the server stopped sending.
	ErrTimedOut = errors.New("timed out")
	// ErrNotFound: no such object or revision in this repository.
	ErrNotFound = errors.New("not found")
	// ErrAmbiguous: a short name has several meanings.
	ErrAmbiguous = errors.New("ambiguous")
	// ErrStorage: the mirror's directory cannot be read or written.
	ErrStorage = errors.New("mirror directory unusable")
	// ErrRefused: the URL, branch or setting is not allowed.
	ErrRefused = errors.New("refused")
)

// Error is the type of all errors of this package, except those of a context that the caller ended.
// It contains no credential, user info or query.
type Error struct {
	Kind    error  // one of the Err… values
	Subject string // the source, commit, path or setting concerned
	Detail  string // the event, and how to fix it
	// with ErrOverBudget: bytes, objects, object bytes, delta depth, memory, files, pull files,
	// file bytes, commits or common ancestors
	Budget string
	Limit  int64 // with ErrOverBudget: the exceeded limit
	Size   int64 // with ErrOverBudget of a blob: its bytes; 0 if unknown
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

// printable makes a server's text safe for one log line: no control character, no escape sequence,
// at most 200 bytes.
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
