package inspect

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"argosy.dev/argosy/fleet/mirror"
)

// logLines is how many lines the sink gets at once, at most.
const logLines = 128

// CopyLog reads a container's log, each line of which begins with a time, and calls sink with lines
// as they come. It reads at most mirror.MaxLogBytes and keeps mirror.MaxLogLineBytes of a line. It
// returns why it has ended; the log itself is closed by its owner.
func CopyLog(ctx context.Context, log io.Reader, sink func([]mirror.LogLine) error) mirror.LogEnd {
	bounded := &io.LimitedReader{R: log, N: mirror.MaxLogBytes}
	r := bufio.NewReaderSize(bounded, 32<<10)
	var batch []mirror.LogLine
	flush := func() bool {
		if len(batch) == 0 {
			return true
		}
		err := sink(batch)
		batch = nil
		return err == nil
	}
	for {
		line, err := readLine(r)
		if line != nil {
			batch = append(batch, *line)
		}
		// A line that has come is not kept for the one that has not.
		if (err != nil || len(batch) >= logLines || r.Buffered() == 0) && !flush() {
			return mirror.LogCancelled
		}
		if err == nil {
			continue
		}
		switch {
		case bounded.N <= 0:
			return mirror.LogTooLong
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return mirror.LogTimedOut
		case ctx.Err() != nil:
			return mirror.LogCancelled
		case errors.Is(err, io.EOF):
			return mirror.LogComplete
		}
		return mirror.LogCut
	}
}

// readLine reads one line, and drops the rest of a long one; nil if there is none.
func readLine(r *bufio.Reader) (*mirror.LogLine, error) {
	var text []byte
	read, cut := false, false
	for {
		part, err := r.ReadSlice('\n')
		read = read || len(part) > 0
		// a time is at most 35 bytes long
		if room := mirror.MaxLogLineBytes + 64 - len(text); room < len(part) {
			cut = cut || len(strings.TrimRight(string(part[room:]), "\r\n")) > 0
			part = part[:room]
		}
		text = append(text, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if !read {
			return nil, err
		}
		line := logLine(strings.TrimRight(string(text), "\r\n"))
		line.Truncated = line.Truncated || cut
		return &line, err
	}
}

// logLine divides a line into the kubelet's time and the text.
func logLine(text string) (line mirror.LogLine) {
	stamp, rest, _ := strings.Cut(text, " ")
	if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil {
		at = at.UTC()
		line.At, text = &at, rest
	}
	if len(text) > mirror.MaxLogLineBytes {
		text, line.Truncated = text[:mirror.MaxLogLineBytes], true
	}
	line.Text = strings.ToValidUTF8(text, "�")
	return line
}
