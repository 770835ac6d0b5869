package agent

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// HeaderCursor names the cursor after which a stream is to go on (that of text/event-stream).
const HeaderCursor = "Last-Event-ID"

// Session is what an agent says of itself when it opens a stream or asks for a snapshot: the
// headers of the request. They are proven together, in place of a body (see Prove).
type Session struct {
	Protocol int
	Instance string // the process: random, made at its start
	Epoch    int64  // the highest that its cluster's objects show
	Version  string // of the agent
	Cursor   int64  // of a stream: what follows it is sent; 0 with a snapshot
}

// Limits of what a session may say. An epoch above MaxEpoch cannot have come about by counting: it
// would leave no number above it.
const (
	MaxEpoch   = 1 << 53
	maxVersion = 64
)

// Set writes the session into the headers of a request.
func (s Session) Set(h http.Header) {
	h.Set(HeaderProtocol, strconv.Itoa(s.Protocol))
	h.Set(HeaderInstance, s.Instance)
	h.Set(HeaderEpoch, strconv.FormatInt(s.Epoch, 10))
	h.Set(HeaderVersion, s.Version)
	h.Set(HeaderCursor, strconv.FormatInt(s.Cursor, 10))
}

// Bytes are what is proven of it.
func (s Session) Bytes() []byte {
	return fmt.Appendf(nil, "argosy session\n%d\n%s\n%d\n%s\n%d\n", s.Protocol, s.Instance, s.Epoch,
		s.Version, s.Cursor)
}

// ReadSession reads the headers of a request. A header that stands twice is refused, whoever added
// it.
func ReadSession(h http.Header) (Session, error) {
	s := Session{Instance: h.Get(HeaderInstance), Version: h.Get(HeaderVersion)}
	for _, name := range []string{HeaderProtocol, HeaderInstance, HeaderEpoch, HeaderVersion,
		HeaderCursor} {
		if len(h.Values(name)) > 1 {
			return Session{}, fmt.Errorf("header %s stands twice", name)
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
	if !soundID(s.Instance) || len(s.Instance) < 16 {
		return Session{}, fmt.Errorf("header %s is no random name of 16 to %d characters",
			HeaderInstance, maxID)
	}
	if !SoundVersion(s.Version) {
		return Session{}, fmt.Errorf("header %s is no version", HeaderVersion)
	}
	return s, nil
}

// number reads a header that counts something; one that is not there counts nothing.
func number(h http.Header, name string, highest int64) (int64, error) {
	text := h.Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > highest || text != strconv.FormatInt(n, 10) {
		return 0, errors.New("header " + name + " is no number from 0 on")
	}
	return n, nil
}

// SoundVersion reports whether a version is at most 64 printable ASCII characters without a space.
// It may be empty.
func SoundVersion(v string) bool {
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
