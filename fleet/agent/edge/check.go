package edge

import (
	"context"
	"fmt"
	"time"
)

// Level is the result of a check.
type Level string

// Levels of a check.
const (
	LevelOK   Level = "ok"
	LevelWarn Level = "warn" // it works, or may work
	LevelFail Level = "fail" // it will not work
)

// Result is one line of `argosy agent join --check`: the check, the finding and the next step. All
// texts are printable.
type Result struct {
	Check  string `json:"check"` // e.g. "dns"
	Level  Level  `json:"level"`
	Found  string `json:"found"`
	Next   string `json:"next,omitempty"` // the next step and who has to take it, if any
	Millis int64  `json:"millis"`
}

// Failed reports whether any check has failed.
func Failed(results []Result) bool {
	for _, r := range results {
		if r.Level == LevelFail {
			return true
		}
	}
	return false
}

// Checks verifies everything that joining needs. It changes nothing.
type Checks struct {
	Settings Settings
	Cluster  *ClusterCheck // nil: skip the cluster

	results []Result
}

// checkTimeout bounds one check. A stream that delivers nothing for that long counts as buffered.
const checkTimeout = 15 * time.Second

// Run runs the checks in order and reports each result at once. It skips checks that an earlier
// failure makes meaningless.
func (c *Checks) Run(ctx context.Context, report func(Result)) []Result {
	c.results = nil
	add := func(r Result) {
		c.results = append(c.results, r)
		if report != nil {
			report(r)
		}
	}
	c.checkHub(ctx, add)
	if c.Cluster != nil {
		c.Cluster.run(ctx, add)
	}
	return c.results
}

// runCheck runs one check with a deadline. It reports whether the next one is meaningful.
func runCheck(ctx context.Context, name string, report func(Result),
	check func(context.Context) Result) bool {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, fmt.Errorf("no answer within %s",
		checkTimeout))
	defer cancel()
	r := check(ctx)
	r.Check, r.Millis = name, time.Since(began).Milliseconds()
	report(r)
	return r.Level != LevelFail
}

func ok(format string, args ...any) Result {
	return Result{Level: LevelOK, Found: fmt.Sprintf(format, args...)}
}

func warn(next, format string, args ...any) Result {
	return Result{Level: LevelWarn, Next: next, Found: fmt.Sprintf(format, args...)}
}

func fail(next, format string, args ...any) Result {
	return Result{Level: LevelFail, Next: next, Found: fmt.Sprintf(format, args...)}
}
