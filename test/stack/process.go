package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// stopGrace is how long a process may take to end by itself before it is
// killed. API servers and PostgreSQL need about a second on a busy machine.
const stopGrace = 15 * time.Second

// Command describes the program to run. Only Name, Path and Log are required.
type Command struct {
	Name string   // for error texts, e.g. "repo-server"
	Path string   // the program
	Args []string // without the program itself
	Env  []string // complete; nil means this process's own
	Dir  string   // working folder
	Log  string   // file that stdout and stderr are appended to

	User *syscall.Credential // run as another user; needs root
	// a folder that is / to the program, Path and Dir included; needs root
	Root        string
	StopSignal  syscall.Signal // asks the program to end; 0 means SIGTERM
	DeathSignal syscall.Signal // sent when this process dies; 0 means SIGKILL
	Behind      *Firewall      // nil: on this machine's own network
}

// Process is a running child. It is the leader of its own process group, so
// that a Ctrl-C in a terminal reaches only the parent, which then decides the
// order in which things end.
type Process struct {
	name string
	log  string
	cmd  *exec.Cmd
	stop syscall.Signal

	done chan struct{} // closed when the process has ended
	err  error         // how; read after done
}

// StartProcess runs the command and returns at once. The program's standard
// input is a pipe that stays open as long as this process lives.
func StartProcess(c Command) (*Process, error) {
	if err := os.MkdirAll(filepath.Dir(c.Log), 0o755); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	defer log.Close()

	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = c.Env, c.Dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: c.User, Chroot: c.Root}
	setDeathSignal(cmd.SysProcAttr, orSignal(c.DeathSignal, syscall.SIGKILL))
	if _, err := cmd.StdinPipe(); err != nil { // closed when the process has ended
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	if err := spawn(cmd, c.Behind); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	p := &Process{
		name: c.Name, log: c.Log, cmd: cmd,
		stop: orSignal(c.StopSignal, syscall.SIGTERM),
		done: make(chan struct{}),
	}
	go func() {
		p.err = cmd.Wait()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left behind
		close(p.done)
	}()
	return p, nil
}

func orSignal(s, otherwise syscall.Signal) syscall.Signal {
	if s == 0 {
		return otherwise
	}
	return s
}

// PID is the process id, for reading CPU time and memory or sending a signal.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// LogFile is where the process's output goes.
func (p *Process) LogFile() string { return p.log }

// Done is closed when the process has ended, for whatever reason.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait returns when the process has ended: nil for exit status 0, an
// *exec.ExitError otherwise.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Kill ends the process and its children the hard way, as a crash would, and
// waits for it.
func (p *Process) Kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// Pause stops the process and its children where they are, as a suspended machine does, until
// Resume.
func (p *Process) Pause() { p.signal(syscall.SIGSTOP) }

// Resume continues a paused process.
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

// Stop asks the process to end and waits; after 15 seconds it kills it. It may
// be called more than once and on nil.
func (p *Process) Stop() {
	if p == nil {
		return
	}
	p.signal(p.stop)
	select {
	case <-p.done:
	case <-time.After(stopGrace):
		p.Kill()
	}
}

// signal reaches the whole group, and no process once it has ended: its id may belong to another by
// then.
func (p *Process) signal(s syscall.Signal) {
	select {
	case <-p.done:
	default:
		_ = syscall.Kill(-p.cmd.Process.Pid, s)
	}
}

// startLimit bounds a part's start. An API server on a busy 2-core machine takes
// 10 seconds, and a build machine may be ten times slower.
const startLimit = 5 * time.Minute

// Await polls ready until it returns nil. It gives up when the context ends, the
// process does, or five minutes are over, with ready's last error and the end of
// the log.
func (p *Process) Await(ctx context.Context, ready func(context.Context) error) error {
	const pause = 20 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		last := ready(ctx)
		if last == nil {
			return nil
		}
		select {
		case <-p.done:
			return p.failure(fmt.Errorf("ended before it was ready: %w",
				cmp.Or(p.err, errors.New("exit status 0"))))
		case <-ctx.Done():
			return p.failure(fmt.Errorf("not ready: %w (%w)", last, ctx.Err()))
		case <-time.After(pause):
		}
	}
}

// failure wraps err with the end of the process's log.
func (p *Process) failure(err error) error {
	return fmt.Errorf("%s: %w; its log %s ends with:\n%s", p.name, err, p.log, tail(p.log, 2048))
}

// tail returns the last lines of a file, at most n bytes of them.
func tail(file string, n int64) string {
	f, err := os.Open(file)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-n), io.SeekStart)
	}
	text, _ := io.ReadAll(f)
	return string(text)
}

// spawner starts processes from one operating-system thread that never ends.
// Linux sends the parent-death signal when the starting thread ends, not the
// process, and the Go runtime may end any other thread.
var spawner = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

func spawn(cmd *exec.Cmd, behind *Firewall) (err error) {
	if behind != nil {
		behind.inside(func() { err = cmd.Start() })
		return err
	}
	result := make(chan error)
	spawner() <- func() { result <- cmd.Start() }
	return <-result
}
