package reconciler

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
)

// reading is a read queue in whose reads a test counts.
type reading struct {
	*testing.T
	*readQueue
	begun   []string // tenants, in the order in which their reads began
	ofHost  map[string]int
	ofAll   int
	tenants map[fleet.TenantName]int
}

func newReading(t *testing.T) *reading {
	return &reading{T: t, readQueue: newReadQueue(), ofHost: map[string]int{},
		tenants: map[fleet.TenantName]int{}}
}

// read makes one read in a goroutine and returns when that reads or waits.
func (r *reading) read(tenant, host string, takes time.Duration) {
	go func() {
		p := place{fleet.TenantName(tenant), "https://" + host + "/x", "main"}
		leave, err := r.enter(r.Context(), p)
		if err != nil {
			r.Error(err)
			return
		}
		r.mu.Lock()
		r.begun = append(r.begun, tenant)
		r.ofAll++
		r.ofHost[host]++
		r.tenants[p.tenant]++
		if r.ofAll > readsOfAll || r.ofHost[host] > readsOfHost || r.tenants[p.tenant] > 1 {
			r.Errorf("%d reads, %d of %s, %d of %s", r.ofAll, r.ofHost[host], host,
				r.tenants[p.tenant], tenant)
		}
		r.mu.Unlock()
		time.Sleep(takes)
		r.mu.Lock()
		r.ofAll--
		r.ofHost[host]--
		r.tenants[p.tenant]--
		r.mu.Unlock()
		leave()
	}()
	synctest.Wait()
}

func (r *reading) began(tenant string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, t := range r.begun {
		if t == tenant {
			n++
		}
	}
	return n
}

func TestReadsAreBoundedAndLeaveNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReading(t)
		for i := range 600 {
			r.read(fmt.Sprint("tenant-", i%30), fmt.Sprintf("host-%d.example.com", i%7),
				time.Duration(1+i%5)*time.Second)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if len(r.begun) != 600 || len(r.hosts) != 0 || r.readQueue.reading != 0 {
			t.Errorf("%d of 600 reads began; %d hosts and %d reads are left", len(r.begun),
				len(r.hosts), r.readQueue.reading)
		}
		for i := range 1000 {
			r.read(fmt.Sprint("other-", i), "git.example.com", 0)
			time.Sleep(time.Second)
		}
		if n := len(r.readQueue.tenants); n > 200 {
			t.Errorf("%d tenants are kept", n)
		}
	})
}

func TestATenantWithManyReadsDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReading(t)
		for range 100 {
			r.read("many", "git.example.com", time.Second)
		}
		for i := range 8 {
			r.read(fmt.Sprint("one-", i), "git.example.com", time.Second)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		for i := range 8 {
			if name := fmt.Sprint("one-", i); r.began(name) != 1 {
				t.Errorf("%s waits; the reads were %q", name, r.begun)
			}
		}
		time.Sleep(time.Hour)
	})
}

// Four tenants with slow repositories read again and again. They take every slot once.
func TestTenantsWithSlowRepositoriesLeaveASlotOfTheHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReading(t)
		for range 5 {
			for i := range readsOfHost {
				r.read(fmt.Sprint("slow-", i), "git.example.com", listingTime)
			}
		}
		time.Sleep(listingTime + time.Second)
		for i := range 20 {
			name := fmt.Sprint("quick-", i)
			r.read(name, "git.example.com", 0)
			if r.began(name) != 1 {
				t.Errorf("%s waits; the reads were %q", name, r.begun)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(r.begun) != 5*readsOfHost+20 {
			t.Errorf("a slow tenant waits for ever: %q", r.begun)
		}
	})
}

func TestAReadThatIsGivenUpTakesNoSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReading(t)
		r.read("acme", "git.example.com", time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		given := make(chan error, 3)
		for _, host := range []string{"git.example.com", "other.example.com", "git.example.com"} {
			go func() {
				_, err := r.enter(ctx, place{"acme", "https://" + host + "/x", "main"})
				given <- err
			}()
			synctest.Wait()
		}
		r.read("acme", "last.example.com", 0)
		cancel()
		for range 3 {
			if err := <-given; err == nil {
				t.Error("a read that was given up has begun")
			}
		}
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if want := []string{"acme", "acme"}; !slices.Equal(r.begun, want) ||
			len(r.hosts) != 0 || r.readQueue.reading != 0 {
			t.Errorf("%q began, %d hosts, %d reads", r.begun, len(r.hosts), r.readQueue.reading)
		}
	})
}
