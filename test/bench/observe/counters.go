package observe

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Metrics reads Prometheus' text format: the whole name with its labels to the value.
func Metrics(text []byte) map[string]float64 {
	all := map[string]float64{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		if v, err := strconv.ParseFloat(line[at+1:], 64); err == nil {
			all[line[:at]] = v
		}
	}
	return all
}

// Scrape reads the metrics of a plain HTTP address.
func Scrape(ctx context.Context, url string) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s (%w)", url, resp.Status, err)
	}
	return Metrics(body), nil
}

// Requests counts requests to API servers for Applications, AppProjects and Secrets. Checks are
// GETs of single AppProjects: the preflight of an engine sends one every 30 seconds, commit or not.
type Requests struct {
	Apply, Read, DryRun, Other, Checks float64
}

// Total is all of them but Checks.
func (r Requests) Total() float64 { return r.Apply + r.Read + r.DryRun + r.Other }

// Sub is what came after b.
func (r Requests) Sub(b Requests) Requests {
	return Requests{r.Apply - b.Apply, r.Read - b.Read, r.DryRun - b.DryRun, r.Other - b.Other,
		r.Checks - b.Checks}
}

// CountRequests reads apiserver_request_total of all servers. Watches that go on are not counted by
// the API server until they end. Reads of Secrets are not counted: Kubernetes' own controllers read
// them.
func CountRequests(ctx context.Context, servers ...*Server) (Requests, error) {
	var r Requests
	for _, s := range servers {
		text, err := s.Get(ctx, "/metrics")
		if err != nil {
			return r, err
		}
		for name, v := range Metrics(text) {
			labels, ok := strings.CutPrefix(name, "apiserver_request_total{")
			if !ok {
				continue
			}
			r.add(labels, v)
		}
	}
	return r, nil
}

func (r *Requests) add(labels string, v float64) {
	is := func(name, value string) bool {
		return strings.Contains(","+labels, ","+name+`="`+value+`"`)
	}
	secret := is("group", "") && is("resource", "secrets")
	if !secret && !is("group", "argoproj.io") {
		return
	}
	switch {
	case is("verb", "APPLY") && !is("dry_run", ""):
		r.DryRun += v
	case is("verb", "APPLY"):
		r.Apply += v
	case is("verb", "GET") && is("resource", "appprojects"):
		r.Checks += v
	case is("verb", "GET") || is("verb", "LIST"):
		if !secret {
			r.Read += v
		}
	case is("verb", "WATCH"):
	case is("verb", "PATCH") || is("verb", "PUT") || is("verb", "POST") || is("verb", "DELETE"):
		if !secret {
			r.Other += v
		}
	}
}

// statsDelay is longer than an idle PostgreSQL backend keeps its counters to itself
// (PGSTAT_IDLE_INTERVAL, 10 s).
const statsDelay = 11 * time.Second

// Rows counts the rows written since the database was created, by table. It waits until backends
// have reported their counts.
func Rows(ctx context.Context, url string) (map[string]int64, error) {
	select {
	case <-time.After(statsDelay):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx,
		`SELECT relname, n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_user_tables`)
	if err != nil {
		return nil, err
	}
	written := map[string]int64{}
	var table string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&table, &n}, func() error {
		written[table] = n
		return nil
	})
	return written, err
}

// bookkeeping is the tables that change without the fleet's data: leases, heartbeats, deliveries,
// the applied revision.
var bookkeeping = map[string]bool{"leases": true, "source": true, "mirror": true, "engines": true,
	"revisions": true, "operations": true, "memory": true, "deliveries": true, "replicas": true,
	"river_leader": true}

// Split sums the rows written between two counts: the fleet's data, events included, and
// bookkeeping.
func Split(before, after map[string]int64) (data, books int64, by map[string]int64) {
	by = map[string]int64{}
	for table, n := range after {
		d := n - before[table]
		if d == 0 {
			continue
		}
		by[table] = d
		if bookkeeping[table] {
			books += d
		} else {
			data += d
		}
	}
	return data, books, by
}
