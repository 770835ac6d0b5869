package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/edge"
	"argosy.dev/argosy/fleet/agent/registry"
)

// member is one agent: a key, a client, and a follower that holds the rows, without anybody who
// applies them.
type member struct {
	in       fleet.EnvironmentID
	client   *edge.Client
	follower *edge.Follower

	// when its last session began, in nanoseconds since the epoch
	opened  atomic.Int64
	awaited atomic.Pointer[chan<- time.Time] // receives the time when the awaited manifest arrives
	wanted  atomic.Pointer[fleet.Manifest]
}

// crowd are agents that run.
type crowd struct {
	members []*member
	cancel  context.CancelFunc
	all     sync.WaitGroup
	mu      sync.Mutex
	ended   []error
}

// joinAtOnce bounds how many agents join at a time. They join at the store: the measurement begins
// with an identity.
const joinAtOnce = 12

// newCrowd joins the environments from to until, without connecting their agents.
func newCrowd(ctx context.Context, m *fixture, h *hubProcess, ca []byte, from, until int) (*crowd,
	error) {
	c := &crowd{members: make([]*member, until-from)}
	slots, errs := make(chan struct{}, joinAtOnce), make(chan error, until-from)
	for i := range c.members {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			var err error
			c.members[i], err = newMember(ctx, m, h.Public, ca, environment(from+i))
			errs <- err
		}()
	}
	var all []error
	for range c.members {
		all = append(all, <-errs)
	}
	return c, errors.Join(all...)
}

func newMember(ctx context.Context, m *fixture, hub string, ca []byte,
	in fleet.EnvironmentID) (*member, error) {
	_, token, err := m.store.Agents.CreateAgentToken(ctx, tokenOf(in), "")
	if err != nil {
		return nil, err
	}
	identities := edge.NewIdentityStore(&memoryStore{})
	if _, err := identities.Join(ctx, hub, registrar{m}, token, "uid-of-"+string(in.Name),
		"v1.0.0"); err != nil {
		return nil, err
	}
	quiet := slog.New(slog.DiscardHandler)
	x := &member{in: in}
	if x.client, err = edge.NewClient(edge.Settings{Hub: hub, CA: ca, Version: "v1.0.0",
		Log: quiet}, identities); err != nil {
		return nil, err
	}
	x.follower = edge.NewFollower(edge.FollowerConfig{Client: x.client, Namespace: m.namespace,
		Version: "v1.0.0", Log: quiet,
		Wake: x.woken, Opened: func(agent.Hello) { x.opened.Store(time.Now().UnixNano()) }})
	return x, nil
}

// tokenOf registers one agent for an environment.
func tokenOf(in fleet.EnvironmentID) registry.Token {
	return registry.Token{Tenant: in.Tenant, Environment: in.Name, CreatedBy: "bench",
		ExpiresAt: time.Now().Add(time.Hour)}
}

// woken checks whether the awaited manifest has arrived.
func (x *member) woken() {
	at, want := x.awaited.Load(), x.wanted.Load()
	if at == nil || want == nil {
		return
	}
	now := time.Now()
	if x.holds(*want) {
		select {
		case *at <- now:
		default:
		}
	}
}

// holds reports whether its Application is that one.
func (x *member) holds(want fleet.Manifest) bool {
	id := fleet.ApplicationID{Tenant: x.in.Tenant, Environment: x.in.Name, Deployment: "svc-000000"}
	row, ok, err := x.follower.Row(context.Background(), fleet.ObjectKey{
		Engine: fleet.AgentEngine(x.in), Kind: fleet.ObjectApplication,
		Name: fleet.ApplicationName(id)})
	return err == nil && ok && row.Manifest.Hash == want.Hash
}

// connect runs all of them until stop.
func (c *crowd) connect(ctx context.Context) {
	ctx, c.cancel = context.WithCancel(ctx)
	for _, x := range c.members {
		c.all.Go(func() {
			if err := x.follower.Run(ctx); ctx.Err() == nil {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.ended = append(c.ended, fmt.Errorf("agent of %s: %w", fleet.AgentEngine(x.in),
					err))
			}
		})
	}
}

func (c *crowd) stop() {
	c.cancel()
	c.all.Wait()
	for _, x := range c.members {
		x.client.Close()
	}
}

// in is how many have begun a session since a moment, and whether any has ended for good.
func (c *crowd) in(since time.Time) (n int, err error) {
	for _, x := range c.members {
		if x.opened.Load() > since.UnixNano() {
			n++
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.ended) > 0 {
		return n, fmt.Errorf("void: %d agents have ended, as %w", len(c.ended), c.ended[0])
	}
	return n, nil
}

// settled waits until all have begun a session since a moment and have nothing left to report.
func (c *crowd) reported(ctx context.Context, since time.Time, limit time.Duration) error {
	return until(ctx, limit, func() error {
		n, err := c.in(since)
		if err == nil && n < len(c.members) {
			err = fmt.Errorf("%d of %d agents are connected", n, len(c.members))
		}
		if err != nil {
			return err
		}
		for _, x := range c.members {
			if n := x.follower.Outbox.Waiting(); n > 0 {
				return fmt.Errorf("agent of %s has %d things to report", fleet.AgentEngine(x.in), n)
			}
		}
		return nil
	})
}

// registrar joins at the store.
type registrar struct{ *fixture }

// Join implements edge.Registrar.
func (r registrar) Join(ctx context.Context, _ agent.PrivateKeys, join agent.Join) (agent.Joined,
	error) {
	a, err := r.store.Agents.JoinAgent(ctx, join.Token, registry.Join{
		Keys: join.Keys, ClusterUID: join.ClusterUID, Version: join.Version})
	return agent.Joined{Agent: a.ID, Engine: a.Engine, ExpiresAt: a.ExpiresAt, Time: time.Now()},
		err
}

// cell is an edge.Cell in memory.
type memoryStore struct {
	mu      sync.Mutex
	values  map[string][]byte
	version int
}

// Load implements edge.Cell.
func (c *memoryStore) Load(context.Context) (map[string][]byte, string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.version == 0 {
		return nil, "", nil
	}
	return maps.Clone(c.values), strconv.Itoa(c.version), nil
}

// Swap implements edge.Cell.
func (c *memoryStore) Save(_ context.Context, values map[string][]byte, version string) (string,
	error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version != strconv.Itoa(c.version) && (version != "" || c.version != 0) {
		return "", edge.ErrConflict
	}
	c.values, c.version = maps.Clone(values), c.version+1
	return strconv.Itoa(c.version), nil
}
