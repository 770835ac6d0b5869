package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
)

// shardingBinary is Argo CD's sharding code behind a pipe, built by scripts/bench.sh. It is a
// process because Argo CD's dependencies are those of a module of their own.
const shardingBinary = ".cache/bin/bench-sharding"

// sampled is the number of shards per answer that are compared with Argo CD's function, which
// places everything from scratch for each.
const sampled = 5

type shardingProcess struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	ask     *json.Encoder
	answers *json.Decoder
	version string
}

// shards is where Argo CD places each cluster.
type shards struct {
	Bounded    []int   `json:"bounded"`    // by consistent hashing with bounded loads
	Legacy     []int   `json:"legacy"`     // by a hash modulo their number
	RoundRobin []int   `json:"roundRobin"` // by the rank modulo their number
	Seconds    float64 `json:"seconds"`    // of the first
	Version    string  `json:"version"`    // of Argo CD
}

func startSharding(ctx context.Context) (*shardingProcess, error) {
	p := &shardingProcess{cmd: exec.CommandContext(ctx, shardingBinary)}
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	p.ask, p.answers = json.NewEncoder(p.in), json.NewDecoder(out)
	return p, p.cmd.Start()
}

func (p *shardingProcess) stop() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }

// place places clusters with one Application each.
func (p *shardingProcess) place(clusters []string, n int) (shards, error) {
	return p.placeLoads(clusters, nil, n)
}

func (p *shardingProcess) placeLoads(clusters []string, applications []int, n int) (shards, error) {
	var s shards
	if err := p.ask.Encode(map[string]any{"clusters": clusters, "applications": applications,
		"shards": n, "sample": sampled}); err != nil {
		return s, err
	}
	if err := p.answers.Decode(&s); err != nil {
		return s, fmt.Errorf("argo-cd's sharding of %d clusters: %w", len(clusters), err)
	}
	if len(s.Bounded) != len(clusters) || len(s.Legacy) != len(clusters) ||
		len(s.RoundRobin) != len(clusters) {
		return s, fmt.Errorf("void: argo-cd's sharding returns %d of %d clusters", len(s.Bounded),
			len(clusters))
	}
	p.version = s.Version
	return s, nil
}

// uids is n names as Kubernetes gives them to the Secrets of clusters, others in every block. Those
// of a lower n are among them.
func uids(n, block int) []string {
	r := rand.New(rand.NewPCG(uint64(block), 1))
	out := make([]string, n)
	for i := range out {
		a, b := r.Uint64(), r.Uint64()
		out[i] = fmt.Sprintf("%08x-%04x-4%03x-a%03x-%012x", a>>32, a>>16&0xffff, a&0xfff,
			b>>48&0xfff, b&0xffffffffffff)
	}
	return out
}
