package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/peer"
)

func TestTenThousandOpeningsHaveABoundedRateAndNoneStarves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents, rate = 10000, 100
		a := newRateLimiter(rate, 20*time.Second)
		began := time.Now()
		var mu sync.Mutex
		var in []time.Duration
		tries := 0
		var all sync.WaitGroup
		for range agents {
			all.Go(func() {
				for {
					asked := time.Now()
					err := a.wait(context.Background())
					mu.Lock()
					tries++
					if waited := time.Since(asked); waited > 20*time.Second ||
						(err != nil && waited > 0) {
						t.Errorf("waited %v for %v", waited, err)
					}
					if err == nil {
						in = append(in, time.Since(began))
						mu.Unlock()
						return
					}
					mu.Unlock()
					var over *busyError
					if !errors.As(err, &over) || over.after <= 0 || over.after > maxRetryAfter {
						t.Errorf("sent away with %v", err)
						return
					}
					time.Sleep(over.after)
				}
			})
		}
		all.Wait()
		slices.Sort(in)
		for i := range in {
			if i+rate+rate/10+1 < len(in) && in[i+rate+rate/10+1]-in[i] < time.Second {
				t.Fatalf("more than %d within a second from %v on", rate+rate/10, in[i])
			}
		}
		ideal := time.Duration(agents/rate) * time.Second
		if last := in[len(in)-1]; len(in) != agents || last > 3*ideal {
			t.Errorf("%d of %d are in after %v", len(in), agents, last)
		}
		if tries > 4*agents {
			t.Errorf("%d tries for %d agents", tries, agents)
		}
		t.Logf("10,000 at %d/s: the last after %v (at best %v), %d tries", rate, in[len(in)-1],
			ideal, tries)
	})
}

func TestCallersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newRateLimiter(10, time.Minute)
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				if a.wait(context.Background()) == nil {
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
				}
			})
			synctest.Wait()
		}
		if a.waiting() == 0 {
			t.Error("no caller waits")
		}
		all.Wait()
		if !slices.IsSorted(order) || len(order) != 100 || a.waiting() != 0 {
			t.Errorf("order %v", order)
		}
	})
}

func TestACanceledCallerReturnsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newRateLimiter(1, time.Hour)
		for range 3 {
			go func() { _ = a.wait(t.Context()) }()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		began := time.Now()
		if err := a.wait(ctx); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		time.Sleep(time.Minute)
	})
}

// flood sends forged assertions from an address until ctx ends.
func (o *testHub) flood(ctx context.Context, id, address string) {
	unknown := &testAgent{o: o, keys: newKeys(o.t), id: id}
	raw := unknown.assertion()
	for ctx.Err() == nil {
		r := tokenRequest(raw).WithContext(ctx)
		r.RemoteAddr = address
		o.serve(r)
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func TestAFloodOfForgedAssertionsDelaysNoKnownAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTestHub(t, func(c *Config) {
			c.Limits = Limits{TokenRate: 5, Queue: 5 * time.Second}
		})
		d := o.newAgent("eu-1.edge", "acme")
		other := o.newAgent("eu-2.edge", "acme")
		if w := o.serve(tokenRequest(d.assertion())); w.Code != http.StatusOK {
			t.Fatal(w.Code, w.Body)
		}
		// known by its proof
		if w := o.serve(other.get("/api/v1/cluster/self/applications",
			0)); w.Code != http.StatusOK {
			t.Fatal(w.Code, w.Body)
		}
		ctx, stop := context.WithCancel(t.Context())
		for i := range 60 { // also in the name of the agent itself
			go o.flood(ctx, []string{d.id, "unknown"}[i%2], fmt.Sprintf("10.1.%d.1:1234", i))
		}
		time.Sleep(10 * time.Second)
		for range 20 {
			for _, who := range []*testAgent{d, other} {
				began := time.Now()
				if w := o.serve(tokenRequest(who.assertion())); w.Code != http.StatusOK ||
					time.Since(began) > 0 {
					t.Fatalf("a known agent waits %s: %d %s", time.Since(began), w.Code, w.Body)
				}
			}
			time.Sleep(time.Second)
		}
		stop()
	})
}

func TestOneAddressDoesNotUseUpTheLimitOfUnknownCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTestHub(t, func(c *Config) {
			c.Limits = Limits{TokenRate: 20, Queue: 5 * time.Second}
		})
		ctx, stop := context.WithCancel(t.Context())
		for i := range 200 {
			go o.flood(ctx, "unknown", fmt.Sprintf("[2001:db8::%x]:1234", i)) // one network
		}
		time.Sleep(10 * time.Second)
		d := o.newAgent("eu-1.edge", "acme")
		began := time.Now()
		if w := o.serve(tokenRequest(d.assertion())); w.Code != http.StatusOK ||
			time.Since(began) > time.Second {
			t.Fatalf("a new agent waits %s: %d %s", time.Since(began), w.Code, w.Body)
		}
		stop()
	})
}

func TestOneAgentGetsAFewTokensPerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTestHub(t)
		d := o.newAgent("eu-1.edge", "acme")
		refused := 0
		for range 50 {
			if w := o.serve(tokenRequest(d.assertion())); w.Code != http.StatusOK {
				refused++
			}
		}
		if refused < 30 {
			t.Errorf("only %d of 50 at once are sent away", refused)
		}
	})
}

// Lookups of invented access tokens run beside those of agents, not before them.
func TestAFloodOfAccessTokensDelaysNoKnownAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTestHub(t)
		d := o.newAgent("eu-1.edge", "acme")
		// known by its proof
		if w := o.serve(d.get(agent.PathSnapshot, 0)); w.Code != http.StatusOK {
			t.Fatal(w.Code, w.Body)
		}
		const lookup = 200 * time.Millisecond
		o.store.failWith(func(call string) error {
			if call == "AccessAgent" {
				time.Sleep(lookup)
			}
			return nil
		})
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer stop()
		for i := range 400 {
			unknown := &testAgent{o: o, keys: newKeys(t), id: "unknown", instance: d.instance}
			all.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					unknown.token = fmt.Sprintf("%0*d", tokenLength, i*1_000_000+n)
					r := unknown.get(agent.PathSnapshot, 0).WithContext(ctx)
					r.RemoteAddr = fmt.Sprintf("10.%d.%d.1:1234", i/200, i%200)
					if w := o.serve(r); w.Code == http.StatusOK {
						t.Error("a made-up access token is good")
					}
					select {
					case <-ctx.Done():
					case <-time.After(50 * time.Millisecond):
					}
				}
			})
		}
		time.Sleep(10 * time.Second)
		for range 5 {
			began := time.Now()
			if w := o.serve(d.get(agent.PathSnapshot, 0)); w.Code != http.StatusOK ||
				time.Since(began) > lookup {
				t.Errorf("a known agent waits %s: %d %s", time.Since(began), w.Code, w.Body)
			}
			time.Sleep(time.Second)
		}
		// unknown to this replica: it waits with the unknown callers and is served
		fresh := o.newAgent("eu-2.edge", "acme")
		began := time.Now()
		if w := o.serve(fresh.get(agent.PathSnapshot, 0)); w.Code != http.StatusOK ||
			time.Since(began) > storeTimeout {
			t.Errorf("a new agent waits %s: %d %s", time.Since(began), w.Code, w.Body)
		}
	})
}

func TestTheAddressComesFromATrustedProxy(t *testing.T) {
	o := newTestHub(t, func(c *Config) {
		c.Limits.Proxies = []netip.Prefix{
			netip.MustParsePrefix("10.0.0.0/8")}
	})
	for _, c := range []struct{ peer, forwarded, want string }{
		{"192.0.2.1:1", "", "192.0.2.1"},
		{"192.0.2.1:1", "198.51.100.7", "192.0.2.1"}, // not a trusted proxy
		{"10.0.0.1:1", "198.51.100.7", "198.51.100.7"},
		// the client's own header does not count
		{"10.0.0.1:1", "203.0.113.9, 198.51.100.7, 10.0.0.2", "198.51.100.7"},
		{"10.0.0.1:1", "nonsense", "10.0.0.1"},
		{"[::ffff:192.0.2.1]:1", "", "192.0.2.1"},
		{"[2001:db8:1:2:3::4]:1", "", "2001:db8:1:2::/64"},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.RemoteAddr = c.peer
		if c.forwarded != "" {
			r.Header.Set("X-Forwarded-For", c.forwarded)
		}
		if got := peer.Address(r, o.hub.admission.proxies); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
