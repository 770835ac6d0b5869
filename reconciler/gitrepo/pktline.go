package gitrepo

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

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
