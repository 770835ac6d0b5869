package inspect

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet/mirror"
)

func linesOf(t *testing.T, log io.Reader) (lines []mirror.LogLine, end mirror.LogEnd) {
	t.Helper()
	end = CopyLog(t.Context(), log, func(some []mirror.LogLine) error {
		lines = append(lines, some...)
		return nil
	})
	return lines, end
}

func TestLinesHaveTheirTimes(t *testing.T) {
	lines, end := linesOf(t, strings.NewReader("2026-03-01T10:00:00.5Z GET / 200\r\n"+
		"no time\n2026-03-01T10:00:01Z \n2026-03-01T10:00:02Z the last one"))
	if end != mirror.LogComplete || len(lines) != 4 || lines[0].Text != "GET / 200" ||
		lines[0].At.Nanosecond() != 5e8 || lines[1].Text != "no time" || lines[1].At != nil ||
		lines[2].Text != "" || lines[3].Text != "the last one" {
		t.Errorf("%s: %+v", end, lines)
	}
}

func TestALongLineIsCutAndTheNextOneIsNot(t *testing.T) {
	lines, _ := linesOf(t, strings.NewReader("2026-03-01T10:00:00Z "+strings.Repeat("x", 1<<20)+
		"\n2026-03-01T10:00:00Z short\n"))
	if len(lines) != 2 || !lines[0].Truncated || len(lines[0].Text) != mirror.MaxLogLineBytes ||
		lines[1].Text != "short" || lines[1].Truncated {
		t.Errorf("%d lines, %d bytes", len(lines), len(lines[0].Text))
	}
}

// endless is a log of one gigabyte and more.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, strings.Repeat("the same line again\n", 64))
	e.read += n
	return n, nil
}

func TestALogOfAGigabyteEndsAtItsLimit(t *testing.T) {
	log := &endless{}
	size := 0
	end := CopyLog(t.Context(), log, func(lines []mirror.LogLine) error {
		for _, l := range lines {
			size += len(l.Text)
		}
		return nil
	})
	if end != mirror.LogTooLong || size > mirror.MaxLogBytes ||
		log.read > mirror.MaxLogBytes+64<<10 {
		t.Errorf("%s after %d bytes shown and %d read", end, size, log.read)
	}
}

func TestAReaderThatGoesEndsTheLog(t *testing.T) {
	calls := 0
	end := CopyLog(t.Context(), &endless{}, func([]mirror.LogLine) error {
		calls++
		return errors.New("gone")
	})
	if end != mirror.LogCancelled || calls != 1 {
		t.Errorf("%s after %d calls", end, calls)
	}
}

func TestALineIsSentBeforeTheNextOneComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		got := make(chan string, 1)
		ctx, cancel := context.WithTimeout(t.Context(), mirror.MaxLogTime)
		defer cancel()
		defer context.AfterFunc(ctx, func() { _ = r.CloseWithError(io.ErrClosedPipe) })()
		ended := make(chan mirror.LogEnd)
		go func() {
			ended <- CopyLog(ctx, r, func(l []mirror.LogLine) error {
				got <- l[0].Text
				return nil
			})
		}()
		_, _ = w.Write([]byte("first\n"))
		if text := <-got; text != "first" {
			t.Errorf("got %q", text)
		}
		began := time.Now()
		if end := <-ended; end != mirror.LogTimedOut || time.Since(began) != mirror.MaxLogTime {
			t.Errorf("%s after %s", end, time.Since(began))
		}
	})
}

func FuzzLogLinesAreBounded(f *testing.F) {
	for _, text := range []string{"", "\n", "2026-03-01T10:00:00Z a\nb", "\xff\x1b[31m\n\u202e"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		lines, end := linesOf(t, strings.NewReader(text))
		if end != mirror.LogComplete || len(lines) > strings.Count(text, "\n")+1 {
			t.Errorf("%s, %d lines of %q", end, len(lines), text)
		}
		for _, l := range lines {
			if len(l.Text) > 3*mirror.MaxLogLineBytes || strings.Contains(l.Text, "\n") {
				t.Errorf("line %q", l.Text)
			}
		}
	})
}
