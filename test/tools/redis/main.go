// Command redis is the Redis that an Argo CD of the lab caches in: the
// protocol and the few commands that Argo CD uses, in memory, on loopback.
//
//	redis PORT
//
// It asks for the password in $REDIS_PASSWORD and ends with its standard input.
package main

import (
	"io"
	"log"
	"net"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
)

func main() {
	if len(os.Args) != 2 || os.Getenv("REDIS_PASSWORD") == "" {
		log.Fatal("usage: REDIS_PASSWORD=… redis PORT")
	}
	m := miniredis.NewMiniRedis()
	m.RequireAuth(os.Getenv("REDIS_PASSWORD"))
	if err := m.StartAddr(net.JoinHostPort("127.0.0.1", os.Args[1])); err != nil {
		log.Fatalf("listen on port %s: %v", os.Args[1], err)
	}
	go expire(m)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// expire moves the server's clock, which does not advance by itself: without it no key would ever
// expire.
func expire(m *miniredis.Miniredis) {
	const tick = time.Second
	for range time.Tick(tick) {
		m.FastForward(tick)
	}
}
