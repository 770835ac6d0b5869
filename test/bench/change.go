package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/test/bench/floor"
	"argosy.dev/argosy/test/bench/observe"
	"argosy.dev/argosy/test/bench/report"
)

// change measures what one changed file costs in repos of growing size: from the end of the push until a watch sees the Application
// changed, against the same in the plainest way (F-sum): git fetch, diff-tree and cat-file, a commit of one row, one apply, in series.
func change(ctx context.Context, o options, name string, flat bool, sizes []int) (figs []*report.Figure, err error) {
	g, err := startGround(ctx)
	if err != nil {
		return nil, err
	}
	defer stopGround(g)
	p, err := g.newPlane(ctx, flat)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w%s", err, p.diagnose())
		}
		err = errors.Join(err, p.end(ctx))
	}()
	layout := "250 deployments a folder"
	if flat {
		layout = "all in one folder"
	}
	l := &ladder{plane: p, options: o, change: &report.Figure{Name: name, Title: "One file changed, push to API server; " + layout},
		noop:   &report.Figure{Name: name + "-noop", Title: "A commit that touches nothing of ours; " + layout},
		memory: &report.Figure{Name: name + "-memory", Title: "Memory of argosy serve; " + layout}}
	if l.empty, err = observe.Memory(p.argosy.PID()); err != nil {
		return nil, err
	}
	if l.sum, err = newSum(ctx, p); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.sum.end(ctx)) }()
	for _, n := range sizes {
		if err := l.climb(ctx, n); err != nil {
			return nil, fmt.Errorf("with %d files: %w", n, err)
		}
	}
	l.slopes(sizes)
	figs = []*report.Figure{l.change, l.noop}
	if len(l.memory.Lines) > 0 {
		figs = append(figs, l.memory)
	}
	return figs, nil
}

// ladder grows one repo and measures at each size.
type ladder struct {
	*plane
	options options
	sum     *sum
	commits int
	empty   observe.Resident // with an empty fleet

	change, noop, memory *report.Figure
	points               []point
	stages               map[string]float64 // argosy's metrics: what they grew by over the blocks of this size
}

// point is one block of commits at one size.
type point struct {
	n                      int
	latency, cpu, requests float64
}

func (l *ladder) climb(ctx context.Context, n int) error {
	say("%d files: growing the repo and the engines", n)
	if _, err := l.fill(ctx, n); err != nil {
		return err
	}
	if err := l.sum.prepare(ctx); err != nil {
		return err
	}
	watch := observe.StartWatch(ctx, l.arena.watched...)
	defer watch.Stop()
	if err := l.blocks(ctx, n, watch); err != nil {
		return err
	}
	say("%d files: counting rows, commits that touch nothing", n)
	if err := l.rows(ctx, n, watch); err != nil {
		return err
	}
	if err := l.verify(ctx); err != nil {
		return err
	}
	if n == l.options.memory {
		return l.remember(ctx)
	}
	return nil
}

// blocks measures the two arms in turn.
func (l *ladder) blocks(ctx context.Context, n int, watch *observe.Watch) error {
	var ours, raw, cpu, requests report.Sample
	l.stages = map[string]float64{}
	for block := range l.options.blocks {
		say("%d files: block %d of %d", n, block+1, l.options.blocks)
		err := inTurn(block, []func() error{
			func() error {
				b, err := l.block(ctx, watch)
				b.n, l.points = n, append(l.points, b)
				ours, cpu, requests = append(ours, b.latency), append(cpu, b.cpu), append(requests, b.requests)
				l.points[len(l.points)-1] = b
				return err
			},
			func() error {
				took, err := l.sum.block(ctx, l)
				raw = append(raw, took)
				return err
			},
		})
		if err != nil {
			return err
		}
	}
	size := fmt.Sprintf("%d files: ", n)
	l.change.Add(report.Against(size+"latency", "ms", ours, raw, 2))
	l.change.Add(report.Line{Name: size + "CPU a commit", Unit: "ms", Ours: cpu})
	l.change.Add(report.Line{Name: size + "API requests", Ours: requests, Goal: 1, Exact: true})
	l.change.Add(report.Line{Name: size + "passes a commit", Ours: report.Sample{l.stage("argosy_reconcile_total") / l.stage("argosy_reconcile_seconds_count")}})
	pass := 1000 * l.stage("argosy_reconcile_seconds_sum") / l.stage("argosy_reconcile_seconds_count")
	apply := 1000 * l.stage("argosy_engine_handle_seconds_sum") / l.stage("argosy_engine_handle_seconds_count")
	l.change.Note("%d files, mean by stage: fetch to recorded %.1f ms, apply %.1f ms; floor, median: git %.1f, commit %.1f, apply to watch %.1f ms",
		n, pass, apply, l.sum.git.Median(), l.sum.commit.Median(), l.sum.apply.Median())
	return nil
}

// stage is how much one of argosy's metrics grew over the blocks of this size, over all its labels.
func (l *ladder) stage(name string) float64 {
	sum := 0.0
	for full, v := range l.stages {
		if full == name || strings.HasPrefix(full, name+"{") {
			sum += v
		}
	}
	return sum
}

// breath is left between commits, as between pushes of people: what a commit leaves to be done is done.
const breath = 200 * time.Millisecond

// block has the control plane apply some commits, one by one.
func (l *ladder) block(ctx context.Context, watch *observe.Watch) (point, error) {
	var b point
	if err := l.catchUp(ctx); err != nil {
		return b, err
	}
	metrics, err := l.metrics(ctx)
	if err != nil {
		return b, err
	}
	requests, err := l.requests(ctx)
	if err != nil {
		return b, err
	}
	var cpu time.Duration
	if cpu, err = l.cpu(); err != nil {
		return b, err
	}
	latency, err := l.several(ctx, watch)
	if err != nil {
		return b, err
	}
	after, err := l.cpu()
	if err != nil {
		return b, err
	}
	asked, err := l.requests(ctx)
	if err != nil {
		return b, err
	}
	end, err := l.metrics(ctx)
	if err != nil {
		return b, err
	}
	for name, v := range end {
		l.stages[name] += v - metrics[name]
	}
	k := float64(len(latency))
	b.latency, b.cpu, b.requests = latency.Median(), float64((after-cpu).Milliseconds())/k, asked.Sub(requests).Total()/k
	return b, nil
}

// several commits a new release of one deployment each, and returns the milliseconds from push to sight.
func (l *ladder) several(ctx context.Context, watch *observe.Watch) (report.Sample, error) {
	var latency report.Sample
	for range l.options.commits {
		key, release, err := l.next(ctx)
		if err != nil {
			return nil, err
		}
		limit, cancel := context.WithTimeout(ctx, patience)
		start := time.Now()
		err = l.wake(ctx)
		var seen time.Time
		if err == nil {
			seen, err = watch.AwaitRevision(limit, key, release)
		}
		cancel()
		if err != nil {
			return nil, err
		}
		latency = append(latency, 1000*seen.Sub(start).Seconds())
		if !pause(ctx, breath) {
			return nil, ctx.Err()
		}
	}
	return latency, nil
}

// next commits a release that never was, of deployments spread over the whole repo.
func (l *ladder) next(ctx context.Context) (key, release string, err error) {
	l.commits++
	release = fmt.Sprintf("v2.0.%d", l.commits)
	key, err = l.release(ctx, l.commits*7919%l.n, release)
	return key, release, err
}

// catchUp has the control plane take what the other arm has committed.
func (l *ladder) catchUp(ctx context.Context) error {
	limit, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := errors.Join(l.wake(ctx), l.applied(limit)); err != nil {
		return err
	}
	pause(ctx, 5*breath)
	return nil
}

// rows counts what commits write into the database: some that change one file, and some that change nothing of ours.
func (l *ladder) rows(ctx context.Context, n int, watch *observe.Watch) error {
	if err := l.catchUp(ctx); err != nil {
		return err
	}
	before, err := observe.Rows(ctx, l.url)
	if err != nil {
		return err
	}
	if _, err := l.several(ctx, watch); err != nil {
		return err
	}
	between, err := observe.Rows(ctx, l.url)
	if err != nil {
		return err
	}
	requests, err := l.requests(ctx)
	if err != nil {
		return err
	}
	cpu, err := l.cpu()
	if err != nil {
		return err
	}
	for range l.options.commits {
		l.commits++
		if _, err := l.repo.Commit(ctx, "nothing of ours", map[string]string{"docs/notes.md": fmt.Sprintf("note %d\n", l.commits)}); err != nil {
			return err
		}
		if err := l.catchUp(ctx); err != nil {
			return err
		}
	}
	after, err := l.cpu()
	if err != nil {
		return err
	}
	asked, err := l.requests(ctx)
	if err != nil {
		return err
	}
	end, err := observe.Rows(ctx, l.url)
	if err != nil {
		return err
	}
	k, size := float64(l.options.commits), fmt.Sprintf("%d files: ", n)
	data, books, by := observe.Split(before, between)
	l.change.Add(report.Line{Name: size + "data rows a commit", Ours: report.Sample{float64(data) / k}})
	l.change.Note("%d files, rows written by %d commits: %s (%d of them bookkeeping, leases' renewals included)", n, l.options.commits, tables(by), books)
	data, books, by = observe.Split(between, end)
	l.noop.Add(report.Line{Name: size + "data rows", Ours: report.Sample{float64(data)}, Exact: true})
	l.noop.Add(report.Line{Name: size + "API requests", Ours: report.Sample{asked.Sub(requests).Total()}, Exact: true})
	l.noop.Add(report.Line{Name: size + "CPU a commit", Unit: "ms", Ours: report.Sample{float64((after - cpu).Milliseconds()) / k}})
	l.noop.Note("%d files, rows written by %d commits: %s (%d of them bookkeeping, leases' renewals included)", n, l.options.commits, tables(by), books)
	return nil
}

func tables(by map[string]int64) string {
	var names []string
	for table, n := range by {
		names = append(names, fmt.Sprintf("%s %d", table, n))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// slopes adds how what was measured grows with the number of files.
func (l *ladder) slopes(sizes []int) {
	if len(sizes) < 3 {
		return
	}
	for _, s := range []struct {
		name string
		of   func(point) float64
	}{
		{"slope of latency, 95 %", func(p point) float64 { return p.latency }},
		{"slope of CPU, 95 %", func(p point) float64 { return p.cpu }},
		{"slope of API requests, 95 %", func(p point) float64 { return p.requests }},
	} {
		var x, y []float64
		for _, p := range l.points {
			x, y = append(x, float64(p.n)), append(y, max(s.of(p), 0.01))
		}
		slope, half := report.Slope(x, y)
		l.change.Add(report.Line{Name: s.name, Ours: report.Sample{slope - half, slope, slope + half}, Goal: 0.05})
	}
}

// sum is F-sum: the floor of one change.
type sum struct {
	plane  *plane
	arena  *arena
	conn   *pgx.Conn
	mirror *floor.Mirror
	object floor.Object
	key    string
	clones int
	watch  *observe.Watch

	git, commit, apply report.Sample // milliseconds, since prepare
}

func newSum(ctx context.Context, p *plane) (*sum, error) {
	a, err := p.ground.arena(ctx)
	if err != nil {
		return nil, err
	}
	url, err := p.ground.postgres.NewDatabase(ctx, a.name)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, `CREATE TABLE wanted (name text PRIMARY KEY, body text NOT NULL)`)
	return &sum{plane: p, arena: a, conn: conn, watch: observe.StartWatch(ctx, a.watched...)}, err
}

func (s *sum) end(ctx context.Context) error {
	s.watch.Stop()
	return errors.Join(s.conn.Close(ctx), s.arena.clear(ctx))
}

// prepare clones the repo as it is and puts the Application of deployment 0 into the arena of its own.
func (s *sum) prepare(ctx context.Context) (err error) {
	s.clones++
	s.git, s.commit, s.apply = nil, nil, nil
	if s.mirror, err = floor.Clone(ctx, s.plane.repo.URL, filepath.Join(s.plane.dir, fmt.Sprintf("floor-%d.git", s.clones))); err != nil {
		return err
	}
	if s.clones > 1 {
		return nil
	}
	objects, err := floor.Capture(ctx, s.plane.arena.watched[0])
	if err != nil {
		return err
	}
	w := s.plane.corpus.Wanted(0, first)
	for _, o := range objects {
		if o.Plural == "applications" && bytes.Contains(o.Body, []byte(`"`+w.Deployment+`"`)) {
			s.object, s.key = o, s.arena.engines[0].Namespace+"/"+w.Key()
		}
	}
	if s.key == "" {
		return fmt.Errorf("void: the Application of %s is not there", w.Key())
	}
	if err := floor.One(ctx, s.arena.written[0], s.object); err != nil {
		return err
	}
	_, err = s.conn.Exec(ctx, `INSERT INTO wanted VALUES ($1, $2)`, s.key, string(s.object.Body))
	return err
}

// block returns the median of some commits.
func (s *sum) block(ctx context.Context, l *ladder) (float64, error) {
	if _, err := s.mirror.Changed(ctx); err != nil {
		return 0, err
	}
	var latency report.Sample
	for range l.options.commits {
		_, release, err := l.next(ctx)
		if err != nil {
			return 0, err
		}
		start := time.Now()
		if err := s.once(ctx, release); err != nil {
			return 0, err
		}
		latency = append(latency, 1000*time.Since(start).Seconds())
		if !pause(ctx, breath) {
			return 0, ctx.Err()
		}
	}
	return latency.Median(), nil
}

func (s *sum) once(ctx context.Context, release string) error {
	start := time.Now()
	lap := func(to *report.Sample) {
		*to = append(*to, 1000*time.Since(start).Seconds())
		start = time.Now()
	}
	files, err := s.mirror.Changed(ctx)
	if err != nil {
		return err
	}
	if len(files) != 1 || !strings.Contains(files[0], release) {
		return fmt.Errorf("void: the commit of %s shows %d files", release, len(files))
	}
	lap(&s.git)
	body := bytes.ReplaceAll(s.object.Body, []byte(first), []byte(release))
	if _, err := s.conn.Exec(ctx, `UPDATE wanted SET body = $2 WHERE name = $1`, s.key, string(body)); err != nil {
		return err
	}
	lap(&s.commit)
	if err := floor.One(ctx, s.arena.written[0], floor.Object{Plural: s.object.Plural, Name: s.object.Name, Body: body}); err != nil {
		return err
	}
	limit, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err = s.watch.AwaitRevision(limit, s.key, release)
	lap(&s.apply)
	return err
}
