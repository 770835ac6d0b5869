package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"argosy.dev/argosy/test/bench/observe"
	"argosy.dev/argosy/test/stack"
)

// ground is shared by all figures: a PostgreSQL that writes through, and a certificate for
// 127.0.0.1.
type ground struct {
	dir       string
	postgres  *stack.Postgres
	ca        []byte // PEM; trusted by the agents
	cert, key string // files
	hubs      int
}

func startGround(ctx context.Context) (_ *ground, err error) {
	g := &ground{}
	if g.dir, err = os.MkdirTemp("", "argosy-bench-agents-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.stop())
		}
	}()
	if err := g.certify(); err != nil {
		return nil, err
	}
	progress("starting PostgreSQL (fsync on)")
	g.postgres, err = stack.StartPostgresWith(ctx, stack.PostgresOptions{Durable: true})
	return g, err
}

func (g *ground) stop() error {
	var err error
	if g.postgres != nil {
		err = g.postgres.Stop()
	}
	return errors.Join(err, os.RemoveAll(g.dir))
}

// certify makes the hub's certificate, which is its own authority.
func (g *ground) certify() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{
		CommonName: "hub"}, NotBefore: time.Now().Add(-time.Minute),
		NotAfter:    time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	g.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	g.cert, g.key = filepath.Join(g.dir, "hub.crt"), filepath.Join(g.dir, "hub.key")
	return errors.Join(os.WriteFile(g.cert, g.ca, 0o600),
		os.WriteFile(g.key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}),
			0o600))
}

// hubProcess is a hub that runs.
type hubProcess struct {
	*stack.Process
	hubConfig
}

// startHub fills in what the configuration leaves open and returns when the hub answers.
func (g *ground) startHub(ctx context.Context, c hubConfig) (_ *hubProcess, err error) {
	for _, address := range []*string{&c.Address, &c.Control} {
		if *address == "" {
			if *address, err = stack.FreeAddress(); err != nil {
				return nil, err
			}
		}
	}
	if c.Public == "" {
		c.Public = "https://" + c.Address
	}
	c.Cert, c.Key = g.cert, g.key
	g.hubs++
	file := filepath.Join(g.dir, fmt.Sprintf("hub-%d.json", g.hubs))
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, err := stack.StartProcess(stack.Command{Name: "hub", Path: self, Args: []string{"hub", file},
		Log: strings.TrimSuffix(file, ".json") + ".log"})
	if err != nil {
		return nil, err
	}
	h := &hubProcess{p, c}
	if err := p.Await(ctx, func(ctx context.Context) error { return h.answers(ctx) }); err != nil {
		p.Stop()
		return nil, err
	}
	return h, nil
}

// answers asks for both of its listeners.
func (h *hubProcess) answers(ctx context.Context) error {
	if _, err := h.metrics(ctx); err != nil {
		return err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", h.Address)
	if err != nil {
		return err
	}
	return conn.Close()
}

func (h *hubProcess) metrics(ctx context.Context) (map[string]float64, error) {
	return observe.Scrape(ctx, "http://"+h.Control+"/metrics")
}

// statements are what the hub has sent to the database since it started, by text.
func (h *hubProcess) statements(ctx context.Context) (map[string]int, error) {
	text, err := h.ask(ctx, "/statements")
	if err != nil {
		return nil, err
	}
	all := map[string]int{}
	return all, json.Unmarshal(text, &all)
}

func (h *hubProcess) ask(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.Control+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return io.ReadAll(answer.Body)
}

// size is what the hub takes of the machine after a thorough garbage collection.
type size struct {
	rss, heap, stacks float64 // KiB
	files             float64
	goroutines        float64
}

func (h *hubProcess) size(ctx context.Context) (s size, err error) {
	text, err := h.ask(ctx, "/gc")
	if err != nil {
		return s, err
	}
	parsed := observe.Metrics(text)
	s.heap, s.stacks, s.goroutines = parsed["heap"]/1024, parsed["stacks"]/1024,
		parsed["goroutines"]
	memory, err := observe.Memory(h.PID())
	if err != nil {
		return s, err
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", h.PID()))
	s.rss, s.files = memory.Now, float64(len(files))
	return s, err
}

func sum(of map[string]int) int {
	n := 0
	for _, one := range of {
		n += one
	}
	return n
}
