//go:build unix

package embedded

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// child is a process that ends with us.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed after it has ended
	err  error         // how; read after done
}

// start runs cmd as who, with its output in a log file. The kernel watches the thread that makes a
// child rather than the process, so that thread does nothing else until the child has ended.
func start(cmd *exec.Cmd, who *syscall.Credential, log string) (*child, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", out, out
	// A group of its own, so that Ctrl-C reaches us alone and we end it in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who, Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	c := &child{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer close(c.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			c.err = cmd.Wait()
			if c.err == nil {
				c.err = errors.New("exit status 0")
			}
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// stop asks for a fast shutdown, which ends sessions and leaves nothing to recover, and insists
// after a while.
func (c *child) stop() error {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL} {
		if err := c.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		timer := time.NewTimer(stopTimeout)
		select {
		case <-c.done:
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
	return fmt.Errorf("process %d does not end", c.cmd.Process.Pid)
}

// endOrphan ends the server that the file of process ids names. We hold the folder's lock, so its
// starter has ended.
func endOrphan(pidFile string) error {
	f, err := os.Open(pidFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Scan()
	pid, err := strconv.Atoi(strings.TrimSpace(lines.Text()))
	if err != nil || pid <= 1 || !isPostgres(pid) {
		return nil // a number that is no server's any more: PostgreSQL sees that itself
	}
	if err := syscall.Kill(pid, syscall.SIGINT); err != nil {
		return nil
	}
	for end := time.Now().Add(stopTimeout); time.Now().Before(end); {
		if syscall.Kill(pid, 0) != nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("a PostgreSQL that a killed process left behind does not end: process %d",
		pid)
}

// isPostgres guards against a number that another process has by now.
func isPostgres(pid int) bool {
	name, err := exec.CommandContext(context.Background(), "ps", "-o", "comm=", "-p",
		strconv.Itoa(pid)).Output()
	return err == nil && strings.Contains(string(name), "postgres")
}
