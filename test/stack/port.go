package stack

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

var givenPorts sync.Map // of int

// freePort returns a loopback port without a listener that this process has not given away before.
// It stays below 32768, where Linux begins to hand out ports to outgoing connections, which would
// otherwise take a port between its choice and its use, or while its server restarts.
func freePort() (int, error) {
	for range 100 {
		port := 20_000 + rand.IntN(12_000)
		if _, given := givenPorts.LoadOrStore(port, true); given {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		return port, l.Close()
	}
	return 0, errors.New("no free port between 20000 and 32000 on 127.0.0.1")
}

// FreeAddress is a loopback address, HOST:PORT, with a port as freePort gives it.
func FreeAddress() (string, error) {
	port, err := freePort()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}
