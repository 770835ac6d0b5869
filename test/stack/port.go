package stack

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// givenPorts maps the ports of this process to their lock files, which are open until it ends.
var givenPorts sync.Map

// freePort returns a loopback port without a listener that no running process has got from here. It
// stays below 32768, where Linux begins to hand out ports to outgoing connections, which would
// otherwise take a port between its choice and its use, or while its server restarts.
func freePort() (int, error) {
	locks := filepath.Join(os.TempDir(), fmt.Sprintf("argosy-ports-%d", os.Getuid()))
	if err := os.MkdirAll(locks, 0o700); err != nil {
		return 0, err
	}
	for range 100 {
		port := 20_000 + rand.IntN(12_000)
		lock, err := lockFile(filepath.Join(locks, strconv.Itoa(port)))
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			_ = lock.Close()
			continue
		}
		givenPorts.Store(port, lock)
		return port, l.Close()
	}
	return 0, errors.New("no free port between 20000 and 32000 on 127.0.0.1")
}

// lockFile opens a file and locks it until it is closed. It fails if another process, or this one,
// has locked it.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// FreeAddress is a loopback address, HOST:PORT, with a port as freePort gives it.
func FreeAddress() (string, error) {
	port, err := freePort()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}
