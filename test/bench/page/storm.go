package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"math/rand/v2"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/postgres"
	"argosy.dev/argosy/test/bench/report"
)

// The behaviour of the page's script (api/page/static/live.js).
const (
	leastGap  = time.Second // between two renewals of one page
	firstWait = 200 * time.Millisecond
	spread    = 400 * time.Millisecond
)

// change is a change of status, and when it was committed.
type change struct {
	id fleet.ApplicationID
	at time.Time
}

// changes are what the storm has written, by tenant.
type changes struct {
	mu sync.Mutex
	of map[fleet.TenantName][]change
}

// storm makes Applications Degraded, each once, evenly over the time and over all engines, in the
// batches of their workers.
func storm(ctx context.Context, s *postgres.Store, f fleetSize, n int, took time.Duration,
	done *changes) error {
	const step = 250 * time.Millisecond
	rows := map[fleet.EngineName][]mirror.Row{}
	leases := map[fleet.EngineName]mirror.Lease{}
	for e := range f.engines {
		engine := fleet.EngineName(fmt.Sprintf("engine-%02d", e))
		all, err := s.Work.Changed(ctx, engine, 0, 1<<20)
		if err != nil {
			return err
		}
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		rows[engine], leases[engine] = all, lease(ctx, s, "engine/"+string(engine))
	}
	steps := int(took / step)
	each := max(1, n/f.engines/steps)
	tick := time.NewTicker(step)
	defer tick.Stop()
	for range n / f.engines / each {
		<-tick.C
		var all sync.WaitGroup
		failures := make(chan error, f.engines)
		for engine := range rows {
			batch := rows[engine][:each]
			rows[engine] = rows[engine][each:]
			all.Go(func() {
				var seen []mirror.Observation
				for _, r := range batch {
					seen = append(seen, observed(r.Key, r.Tenant, r.Deployment,
						mirror.HealthDegraded))
				}
				failures <- s.Work.Observe(ctx, leases[engine], seen)
				at := time.Now()
				done.mu.Lock()
				defer done.mu.Unlock()
				for _, r := range batch {
					done.of[r.Tenant] = append(done.of[r.Tenant], change{fleet.ApplicationID{
						Tenant: r.Tenant, Deployment: r.Deployment, Environment: r.Environment},
						at})
				}
			})
		}
		all.Wait()
		close(failures)
		for err := range failures {
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// viewer is one person with a page open.
type viewer struct {
	client *http.Client
	server string
	page   string
	tenant fleet.TenantName // whose rows the page shows; empty: the platform's overview

	hashes  map[string]string                 // of the page's parts
	late    map[fleet.ApplicationID]time.Time // when it was first shown as Degraded
	fetches int
	failed  int // fetches
	bytes   int64
	took    []float64 // milliseconds of each fetch
}

func signIn(server, token string) (*http.Client, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	c := &http.Client{Jar: jar, Transport: transport}
	answer, err := c.PostForm(server+"/signin", url.Values{"token": {token}, "to": {"/rings"}})
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return nil, err
	}
	if u, _ := url.Parse(server); len(jar.Cookies(u)) == 0 {
		return nil, fmt.Errorf("sign-in: %s, and no cookie", answer.Status)
	}
	return c, nil
}

var (
	partOf = regexp.MustCompile(`data-part="([^"]+)"[^>]*data-hash="([^"]+)"`)
	rowOfA = regexp.MustCompile(`(?s)href="/tenants/([a-z0-9-]+)/applications/([a-z0-9-]+)/([a-z0-9-]+)"(.*?)</tr>`)
)

// fetch reads the page, or the parts of it that have changed.
func (v *viewer) fetch(ctx context.Context) error {
	began := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.server+v.page, nil)
	if err != nil {
		return err
	}
	var known []string
	for part, hash := range v.hashes {
		known = append(known, part+"="+hash)
	}
	if len(known) > 0 {
		req.Header.Set("Argosy-Parts", strings.Join(known, " "))
	}
	answer, err := v.client.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusNoContent {
		return fmt.Errorf("%s: %s", v.page, answer.Status)
	}
	at := time.Now()
	v.fetches, v.bytes = v.fetches+1, v.bytes+int64(len(body))
	v.took = append(v.took, at.Sub(began).Seconds()*1000)
	for _, part := range partOf.FindAllSubmatch(body, -1) {
		v.hashes[string(part[1])] = string(part[2])
	}
	if v.tenant == "" {
		return nil
	}
	for _, row := range rowOfA.FindAllSubmatch(body, -1) {
		id := fleet.ApplicationID{Tenant: fleet.TenantName(row[1]),
			Deployment:  fleet.DeploymentName(row[2]),
			Environment: fleet.EnvironmentName(row[3])}
		if strings.Contains(string(row[4]), "Degraded") && v.late[id].IsZero() {
			v.late[id] = at
		}
	}
	return nil
}

// followEvents reports the events of a stream until it ends.
func followEvents(stream io.Reader, changed chan<- struct{}) {
	for lines := bufio.NewScanner(stream); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "event: ") &&
			!strings.HasSuffix(lines.Text(), ": open") {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}
}

// run follows the events and renews the page as its script does, until ctx ends.
func (v *viewer) run(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.server+"/events", nil)
	if err != nil {
		return err
	}
	answer, err := v.client.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("/events: %s", answer.Status)
	}
	changed := make(chan struct{}, 1)
	go followEvents(answer.Body, changed)
	last := time.Time{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		wait := max(firstWait, time.Until(last.Add(leastGap))) + rand.N(spread)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		select {
		case <-changed: // part of this renewal
		default:
		}
		last = time.Now()
		if err := v.fetch(ctx); err != nil && ctx.Err() == nil {
			v.failed++
		}
	}
}

// stormFigure runs the storm with people watching.
func (b *bench) stormFigure(ctx context.Context, viewers, n int, took time.Duration) (
	*report.Figure, error) {
	f := &report.Figure{Name: "page-storm", Title: fmt.Sprintf(
		"%d people with the page open while %d Applications become Degraded in %s", viewers, n,
		took)}
	var watching []*viewer
	for i := range viewers {
		v, err := b.viewer(ctx, i)
		if err != nil {
			return nil, err
		}
		watching = append(watching, v)
	}
	viewing, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	failures := make(chan error, viewers)
	for _, v := range watching {
		all.Go(func() { failures <- v.run(viewing) })
	}
	if err := b.settle(ctx, watching); err != nil {
		return nil, err
	}
	before, err := b.counters(ctx)
	if err != nil {
		return nil, err
	}
	database, began := b.databaseCPU(), time.Now()
	done := &changes{of: map[fleet.TenantName][]change{}}
	if err := storm(ctx, b.store, b.size, n, took, done); err != nil {
		return nil, err
	}
	ran := time.Since(began).Seconds()
	after, err := b.counters(ctx)
	if err != nil {
		return nil, err
	}
	used := b.databaseCPU() - database
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(5 * time.Second): // the last rows arrive
	}
	stop()
	all.Wait()
	close(failures)
	for err := range failures {
		if err != nil {
			return nil, err
		}
	}
	return f, b.sumUp(f, watching, done, ran, after.Statements-before.Statements,
		after.CPU-before.CPU, used)
}

// sumUp adds the lines of a storm.
func (b *bench) sumUp(f *report.Figure, watching []*viewer, done *changes, ran float64,
	statements int64, replica, database time.Duration) error {
	var late, took report.Sample
	fetches, missing, failed := 0, 0, 0
	for _, v := range watching {
		failed += v.failed
		fetches += v.fetches
		took = append(took, v.took...)
		for _, c := range done.of[v.tenant] {
			if at := v.late[c.id]; at.IsZero() {
				missing++
			} else {
				late = append(late, at.Sub(c.at).Seconds())
			}
		}
	}
	if failed > 0 {
		f.Note("%d renewals failed", failed)
	}
	if missing > 0 {
		f.Note("%d rows never arrived", missing)
	}
	if len(late) == 0 {
		return errors.New("no page shows a changed row: the run is void")
	}
	add := func(name, unit string, value, goal float64) {
		f.Add(report.Line{Name: name, Unit: unit, Ours: report.Sample{value}, Goal: goal})
	}
	add("row on the page, p50", "s", quantile(late, 0.5), 0)
	add("row on the page, p99", "s", quantile(late, 0.99), 2)
	add("answer to a renewal, p50", "ms", quantile(took, 0.5), 0)
	add("answer to a renewal, p99", "ms", quantile(took, 0.99), 0)
	add("renewals", "/s", float64(fetches)/ran, 0)
	add("statements of the replica", "/s", float64(statements)/ran, 0)
	add("CPU of the replica", "cores", replica.Seconds()/ran, 0)
	add("CPU of the database", "cores", database.Seconds()/ran, 0)
	f.Note("%d rows were awaited on %d pages of tenants", len(late), len(watching))
	return nil
}

func quantile(s report.Sample, q float64) float64 {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
