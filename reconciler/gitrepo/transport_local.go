package gitrepo

import (
	"context"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// localChannel runs git upload-pack on a local repository, as Git itself does for a path.
type localChannel struct {
	path   string
	meter  *meter
	stdin  io.WriteCloser
	stderr lastWords
	cancel context.CancelFunc
	wait   func() error
}

func (l *localChannel) stateless() bool { return false }

func (l *localChannel) open(ctx context.Context) (io.Reader, error) {
	ctx, l.cancel = context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, "git", "upload-pack", l.path)
	// It inherits only the environment that locates programs and the operator's own settings
	// (safe.directory).
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "LC_ALL=C",
		"GIT_PROTOCOL=version=2"}
	cmd.Stderr = &l.stderr
	cmd.WaitDelay = time.Second
	var err error
	if l.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, unavailable("%v", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, unavailable("%v", err)
	}
	if err := cmd.Start(); err != nil {
		return nil,
			unavailable("git upload-pack does not start: %v; a local source needs git on PATH", err)
	}
	l.wait = sync.OnceValue(cmd.Wait)
	return l.meter.reader(&explained{stdout, &l.stderr, l.wait}), nil
}

func (l *localChannel) ask(_ context.Context, request []byte) (io.Reader, error) {
	if _, err := l.stdin.Write(request); err != nil {
		return nil, unavailable("git upload-pack ended: %s", l.stderr.text())
	}
	return nil, nil // the response arrives on the same stream as the advertisement
}

func (l *localChannel) Close() error {
	if l.wait != nil {
		l.stdin.Close()
		l.cancel()
		_ = l.wait() // killed or exited: the exit status does not matter
	}
	return nil
}
