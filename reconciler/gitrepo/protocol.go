package gitrepo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// The package speaks two versions of the protocol. It requests version 2, which names the wanted
// ref, whereas version 0 lists every ref of the repository, pull requests included. Servers before
// Git 2.18 speak version 0, and so do most sshd configurations, which do not accept the client's
// GIT_PROTOCOL.

// channel carries requests to one server and returns its responses. Each transport implements it.
type channel interface {
	// open starts the conversation and returns the server's advertisement.
	open(ctx context.Context) (io.Reader, error)
	// ask sends a request and returns the response.
	ask(ctx context.Context, request []byte) (io.Reader, error)
	// stateless: each request is independent, so that version 2 needs no advertisement once the
	// server is known to support it.
	stateless() bool
	Close() error
}

// conversation is one fetch's exchange with the server.
type conversation struct {
	channel
	in   *packetReader
	v2   bool
	caps []string // of version 0; of version 2 those of the command fetch
}

// tips returns the commits of full ref names. knownV2 skips the advertisement. A ref that does not
// exist has no entry, and a tag the commit that it names.
func (c *conversation) tips(ctx context.Context, refs []string,
	knownV2 bool) (map[string]plumbing.Hash, error) {
	if knownV2 && c.stateless() {
		c.v2 = true
		return c.listRefs(ctx, refs)
	}
	if err := c.start(ctx); err != nil {
		return nil, err
	}
	first, kind, err := c.firstLine()
	if err != nil {
		return nil, err
	}
	if kind == packetData && first == "version 2" {
		c.v2 = true
		if err := c.readCapabilities(); err != nil {
			return nil, err
		}
		return c.listRefs(ctx, refs)
	}
	return c.findRefs(first, kind, refs)
}

func (c *conversation) start(ctx context.Context) error {
	r, err := c.open(ctx)
	if err == nil {
		c.in = newPacketReader(r)
	}
	return err
}

// can reports whether the server advertised that a fetch may have a feature.
func (c *conversation) can(feature string) bool { return slices.Contains(c.caps, feature) }

// firstLine skips the "# service=" preamble that HTTP servers send before the advertisement.
func (c *conversation) firstLine() (string, packetKind, error) {
	line, kind, err := c.in.line()
	if err != nil || kind != packetData || !strings.HasPrefix(line, "# service=") {
		return line, kind, err
	}
	if _, kind, err = c.in.line(); err != nil || kind != packetFlush {
		return "", kind, errors.Join(err, unavailable("the advertisement's preamble does not end"))
	}
	return c.in.line()
}

func (c *conversation) readCapabilities() error {
	for {
		line, kind, err := c.in.line()
		if err != nil {
			return err
		}
		if kind == packetFlush {
			c.finish()
			return nil
		}
		if err := checkFormat(line); err != nil {
			return err
		}
		if features, ok := strings.CutPrefix(line, "fetch="); ok {
			c.caps = strings.Fields(features)
		}
	}
}

func checkFormat(capability string) error {
	if format, ok := strings.CutPrefix(capability, "object-format="); ok && format != "sha1" {
		return unavailable("the repository uses object format %q; only sha1 is supported", format)
	}
	return nil
}

// listRefs requests full ref names by version 2. The server treats them as prefixes, so its answer
// may contain others.
func (c *conversation) listRefs(ctx context.Context, refs []string) (map[string]plumbing.Hash,
	error) {
	request := appendPacket(nil, "command=ls-refs")
	request = append(request, delimPacket...)
	request = appendPacket(request, "peel")
	for _, ref := range refs {
		request = appendPacket(request, "ref-prefix %s", ref)
	}
	request = append(request, flushPacket...)
	if err := c.request(ctx, request); err != nil {
		return nil, err
	}
	tips := map[string]plumbing.Hash{}
	for {
		line, kind, err := c.in.line()
		if err != nil {
			return nil, err
		}
		if kind != packetData {
			c.finish()
			return tips, nil
		}
		id, rest, _ := strings.Cut(line, " ")
		name, attributes, _ := strings.Cut(rest, " ")
		if !slices.Contains(refs, name) {
			continue
		}
		for attribute := range strings.FieldsSeq(attributes) {
			if peeled, ok := strings.CutPrefix(attribute, "peeled:"); ok {
				id = peeled
			}
		}
		if !isFullHash(id) {
			return nil, unavailable("the server gives no object id for %s", name)
		}
		tips[name] = plumbing.NewHash(id)
	}
}

// findRefs reads version 0's list of all refs and keeps only some.
func (c *conversation) findRefs(line string, kind packetKind,
	refs []string) (map[string]plumbing.Hash, error) {
	line, caps, _ := strings.Cut(line, "\x00")
	c.caps = strings.Fields(caps)
	for _, capability := range c.caps {
		if err := checkFormat(capability); err != nil {
			return nil, err
		}
	}
	tips := map[string]plumbing.Hash{}
	for kind == packetData {
		id, name, ok := strings.Cut(line, " ")
		name = strings.TrimSuffix(name, "^{}") // follows its tag: the commit that the tag names
		switch {
		case ok && id == "shallow":
			return nil, errShallow()
		case !ok || !isFullHash(id):
			return nil,
				unavailable("the answer is not a list of refs; does the URL name a repository?")
		case slices.Contains(refs, name):
			tips[name] = plumbing.NewHash(id)
		}
		var err error
		if line, kind, err = c.in.line(); err != nil {
			return nil, err
		}
	}
	c.finish()
	return tips, nil
}

// finish reads a response to its end, which its last packet marks, so that the connection can carry
// the next request.
func (c *conversation) finish() {
	if c.stateless() {
		_, _ = c.in.r.Peek(1) // the response is complete; ignore any trailing bytes
	}
}

func errShallow() error {
	return unavailable(
		"the server's own repository is shallow, so its history cannot be judged; unshallow it there")
}

// packRequest names the objects of a pack: those reachable from wants and not from haves.
type packRequest struct {
	wants, haves []plumbing.Hash
	shallow      bool // without the parents of wants
	noBlobs      bool // without blobs, but for those in wants
}

// pack returns the requested objects. It does not request deltas against objects outside the pack,
// so that every pack is self-contained.
func (c *conversation) pack(ctx context.Context, r packRequest) (io.Reader, error) {
	if c.v2 {
		return c.packV2(ctx, r)
	}
	return c.packV0(ctx, r)
}

// limits adds the limits of a request.
func (r packRequest) limits(request []byte) []byte {
	if r.shallow {
		request = appendPacket(request, "deepen 1")
	}
	if r.noBlobs {
		request = appendPacket(request, "filter blob:none")
	}
	return request
}

func (c *conversation) packV2(ctx context.Context, r packRequest) (io.Reader, error) {
	request := appendPacket(nil, "command=fetch")
	request = append(request, delimPacket...)
	request = appendPacket(request, "ofs-delta")
	request = appendPacket(request, "no-progress")
	for _, want := range r.wants {
		request = appendPacket(request, "want %s", want)
	}
	request = r.limits(request)
	for _, have := range r.haves {
		request = appendPacket(request, "have %s", have)
	}
	request = appendPacket(request, "done")
	request = append(request, flushPacket...)
	if err := c.request(ctx, request); err != nil {
		return nil, err
	}
	for {
		line, kind, err := c.in.line()
		switch {
		case err != nil:
			return nil, err
		case line == "packfile":
			return &sideband{packets: c.in, end: c.finish}, nil
		case line == "shallow-info" && !r.shallow:
			return nil, errShallow()
		case kind == packetFlush:
			return nil, unavailable("the server answered without a pack")
		}
	}
}

func (c *conversation) packV0(ctx context.Context, r packRequest) (io.Reader, error) {
	names := []string{"ofs-delta", "side-band-64k", "no-progress"}
	if r.shallow {
		names = append(names, "shallow")
	}
	if r.noBlobs {
		names = append(names, "filter")
	}
	var caps []string
	for _, name := range names {
		if c.can(name) {
			caps = append(caps, name)
		}
	}
	var request []byte
	for i, want := range r.wants {
		if i == 0 {
			request = appendPacket(request, "want %s %s", want, strings.Join(caps, " "))
			continue
		}
		request = appendPacket(request, "want %s", want)
	}
	request = r.limits(request)
	request = append(request, flushPacket...)
	for _, have := range r.haves {
		request = appendPacket(request, "have %s", have)
	}
	request = appendPacket(request, "done")
	if err := c.request(ctx, request); err != nil {
		return nil, err
	}
	for boundary := r.shallow; boundary; { // the commits whose parents are left out
		_, kind, err := c.in.line()
		if err != nil {
			return nil, err
		}
		boundary = kind == packetData
	}
	for { // the acknowledgements that precede the pack: ACK of a have, or NAK
		head, err := c.in.r.Peek(7)
		if err != nil {
			return nil, truncated(err, "the server answered without a pack")
		}
		if word := string(head[4:]); word != "ACK" && word != "NAK" && word != "ERR" {
			break
		}
		if _, _, err := c.in.line(); err != nil {
			return nil, err
		}
	}
	if slices.Contains(caps, "side-band-64k") {
		return &sideband{packets: c.in, end: c.finish}, nil
	}
	return c.in.r, nil
}

// request sends and makes the response the input. A stateful connection's input continues where it
// was.
func (c *conversation) request(ctx context.Context, request []byte) error {
	r, err := c.ask(ctx, request)
	if err != nil {
		return err
	}
	if c.in == nil || c.stateless() {
		c.in = newPacketReader(r)
	}
	return nil
}

// Packets of Git's wire format (gitprotocol-common): four hexadecimal digits of length, themselves
// included, then the payload. Lengths 0 to 2 are markers without payload.

type packetKind int

const (
	packetData packetKind = iota
	packetFlush
	packetDelim
	packetEnd
)

const maxPacket = 65520

type packetReader struct {
	r   *bufio.Reader
	buf [maxPacket]byte
}

func newPacketReader(r io.Reader) *packetReader {
	return &packetReader{r: bufio.NewReaderSize(r, 32<<10)}
}

// next returns the next packet; its payload is valid until the next call.
func (p *packetReader) next() ([]byte, packetKind, error) {
	head := p.buf[:4]
	if _, err := io.ReadFull(p.r, head); err != nil {
		return nil, 0, truncated(err, "the answer ends where a packet should start")
	}
	n, err := strconv.ParseUint(string(head), 16, 16)
	if err != nil {
		return nil, 0,
			unavailable("the answer is not Git's wire format; does the URL name a repository?")
	}
	switch {
	case n < 3:
		return nil, packetFlush + packetKind(n), nil
	case n == 3 || n > maxPacket:
		return nil, 0, unavailable("the answer has a packet of impossible length %d", n)
	}
	payload := p.buf[:n-4]
	if _, err := io.ReadFull(p.r, payload); err != nil {
		return nil, 0, truncated(err, "the answer ends inside a packet")
	}
	return payload, packetData, nil
}

// line is next for text packets. A line that starts with ERR is a fatal error of the server.
func (p *packetReader) line() (string, packetKind, error) {
	payload, kind, err := p.next()
	if err != nil || kind != packetData {
		return "", kind, err
	}
	payload = bytes.TrimSuffix(payload, []byte("\n"))
	if text, ok := bytes.CutPrefix(payload, []byte("ERR ")); ok {
		return "", 0, serverError(text)
	}
	return string(payload), packetData, nil
}

// serverError returns an error with the server's message, which is scrubbed and truncated where the
// error leaves the package.
func serverError(text []byte) error {
	return unavailable("the server reports: %s", text)
}

// truncated returns a connection error as it is and names an unexpected end.
func truncated(err error, what string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return unavailable("%s", what)
	}
	return err
}

// sideband reads the pack from channel 1. Channel 2 is progress; channel 3 is a fatal error of the
// server.
type sideband struct {
	packets *packetReader
	end     func() // called once at the end
	rest    []byte
	ended   bool
}

func (s *sideband) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		if s.ended {
			return 0, io.EOF
		}
		payload, kind, err := s.packets.next()
		if err != nil {
			return 0, err
		}
		if kind != packetData {
			s.ended = true
			s.end()
			continue
		}
		if len(payload) == 0 {
			continue
		}
		switch payload[0] {
		case 1:
			s.rest = payload[1:]
		case 2:
		case 3:
			return 0, serverError(payload[1:])
		default:
			return 0, unavailable("the server sent the pack on an unknown channel")
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

const (
	flushPacket = "0000"
	delimPacket = "0001"
)

func appendPacket(b []byte, format string, args ...any) []byte {
	start := len(b)
	b = append(b, "0000"...)
	b = fmt.Appendf(b, format, args...)
	b = append(b, '\n')
	copy(b[start:], fmt.Sprintf("%04x", len(b)-start))
	return b
}
