package agent

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// HeaderCursor names the cursor after which a stream resumes (the header of text/event-stream).
const HeaderCursor = "Last-Event-ID"

// Session holds the request headers with which an agent opens a stream or requests a snapshot. They
// are signed together, in place of a body (see Prove).
type Session struct {
	Protocol int
	Instance string // random ID of the process, generated at its start
	Epoch    int64  // the highest epoch on the cluster's objects
	Version  string // of the agent
	Cursor   int64  // the stream resumes after it; 0 for a snapshot
}

// Limits of a session's fields. Counting cannot reach an epoch above MaxEpoch, and such an epoch
// would leave no higher number.
const (
	MaxEpoch   = 1 << 53
	maxVersion = 64
)

// Set writes the session to the headers of a request.
func (s Session) Set(h http.Header) {
	h.Set(HeaderProtocol, strconv.Itoa(s.Protocol))
	h.Set(HeaderInstance, s.Instance)
	h.Set(HeaderEpoch, strconv.FormatInt(s.Epoch, 10))
	h.Set(HeaderVersion, s.Version)
	h.Set(HeaderCursor, strconv.FormatInt(s.Cursor, 10))
}

// Bytes returns the signed form of the session.
func (s Session) Bytes() []byte {
	return fmt.Appendf(nil, "argosy session\n%d\n%s\n%d\n%s\n%d\n", s.Protocol, s.Instance, s.Epoch,
		s.Version, s.Cursor)
}

// ReadSession reads the headers of a request. It rejects a duplicate header, which a proxy may have
// added.
func ReadSession(h http.Header) (Session, error) {
	s := Session{Instance: h.Get(HeaderInstance), Version: h.Get(HeaderVersion)}
	for _, name := range []string{HeaderProtocol, HeaderInstance, HeaderEpoch, HeaderVersion,
		HeaderCursor} {
		if len(h.Values(name)) > 1 {
			return Session{}, fmt.Errorf("duplicate header %s", name)
		}
	}
	protocol, err := number(h, HeaderProtocol, 1<<16)
	if err != nil {
		return Session{}, err
	}
	s.Protocol = int(protocol)
	if s.Epoch, err = number(h, HeaderEpoch, MaxEpoch); err != nil {
		return Session{}, err
	}
	if s.Cursor, err = number(h, HeaderCursor, MaxEpoch); err != nil {
		return Session{}, err
	}
	if !validID(s.Instance) || len(s.Instance) < 16 {
		return Session{}, fmt.Errorf("header %s is not a random ID of 16 to %d characters",
			HeaderInstance, maxID)
	}
	if !ValidVersion(s.Version) {
		return Session{}, fmt.Errorf("header %s is not a version", HeaderVersion)
	}
	return s, nil
}

// number parses a numeric header; a missing one is 0.
func number(h http.Header, name string, highest int64) (int64, error) {
	text := h.Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > highest || text != strconv.FormatInt(n, 10) {
		return 0, errors.New("header " + name + " is not a non-negative number")
	}
	return n, nil
}

// ValidVersion reports whether a version has at most 64 printable ASCII characters and no space. It
// may be empty.
func ValidVersion(v string) bool {
	if len(v) > maxVersion {
		return false
	}
	for _, c := range []byte(v) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}
