package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/test/bench/floor"
	"argosy.dev/argosy/test/bench/observe"
	"argosy.dev/argosy/test/bench/report"
)

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
	return s.conn.Close(ctx)
}

// prepare clones the repo as it is and puts the Application of deployment 0 into the arena of its
// own.
func (s *sum) prepare(ctx context.Context) (err error) {
	s.clones++
	s.git, s.commit, s.apply = nil, nil, nil
	if s.mirror, err = floor.Clone(ctx, s.plane.repo.URL,
		filepath.Join(s.plane.dir, fmt.Sprintf("floor-%d.git", s.clones))); err != nil {
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

// block returns the median latency of some commits, and the CPU of each, in milliseconds.
func (s *sum) block(ctx context.Context, l *ladder) (latency, cpu float64, err error) {
	if _, err := s.mirror.Changed(ctx); err != nil {
		return 0, 0, err
	}
	var took report.Sample
	var used time.Duration
	for range l.options.commits {
		_, release, err := l.next(ctx)
		if err != nil {
			return 0, 0, err
		}
		before, err := s.cpu()
		if err != nil {
			return 0, 0, err
		}
		start := time.Now()
		if err := s.once(ctx, release); err != nil {
			return 0, 0, err
		}
		took = append(took, 1000*time.Since(start).Seconds())
		after, err := s.cpu()
		if err != nil {
			return 0, 0, err
		}
		used += after - before
		if !pacing.Sleep(ctx, breath) {
			return 0, 0, ctx.Err()
		}
	}
	return took.Median(), 1000 * used.Seconds() / float64(len(took)), nil
}

// cpu is what this process, the git commands that it ran and PostgreSQL have used.
func (s *sum) cpu() (time.Duration, error) {
	own, err := observe.OwnCPU()
	if err != nil {
		return 0, err
	}
	database, err := observe.CPU(s.plane.ground.postgres.PID())
	return own + database, err
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
	if _, err := s.conn.Exec(ctx, `UPDATE wanted SET body = $2 WHERE name = $1`, s.key,
		string(body)); err != nil {
		return err
	}
	lap(&s.commit)
	if err := floor.One(ctx, s.arena.written[0], floor.Object{Plural: s.object.Plural,
		Name: s.object.Name, Body: body}); err != nil {
		return err
	}
	limit, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err = s.watch.AwaitRevision(limit, s.key, release)
	lap(&s.apply)
	return err
}
