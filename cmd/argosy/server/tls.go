package server

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"
)

// reloadingTLS reads the certificate again when its file changes: a renewal needs no restart.
func reloadingTLS(certFile, keyFile string) *tls.Config {
	var mu sync.Mutex
	var current *tls.Certificate
	var read time.Time
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (
		*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		info, err := os.Stat(certFile)
		if err == nil && current != nil && info.ModTime().Equal(read) {
			return current, nil
		}
		pair, perr := tls.LoadX509KeyPair(certFile, keyFile)
		switch {
		case err == nil && perr == nil:
			current, read = &pair, info.ModTime()
		case current == nil:
			return nil, fmt.Errorf("listen.certFile: %w", perr)
		}
		return current, nil // half a renewal: the last good pair serves on
	}}
}
