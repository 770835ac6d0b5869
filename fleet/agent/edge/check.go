package edge

import (
	"context"
	"fmt"
	"time"
)

// Level says how a check ended.
type Level string

// Levels of a check.
const (
	LevelOK   Level = "ok"
	LevelWarn Level = "warn" // it works, or may work
	LevelFail Level = "fail" // it will not work
)

// Result is one line of `argosy agent join --check`: what was looked at, what was found, and what
// to do next. All texts are printable.
type Result struct {
	Check  string `json:"check"` // e.g. "dns"
	Level  Level  `json:"level"`
	Found  string `json:"found"`
	Next   string `json:"next,omitempty"` // who has to do what; empty when nothing
	Millis int64  `json:"millis"`
}

// Failed reports whether any of the results says that it will not work.
func Failed(results []Result) bool {
	for _, r := range results {
		if r.Level == LevelFail {
			return true
		}
	}
	return false
}

// Checks look at everything that joining needs, and change nothing.
type Checks struct {
	Settings Settings
	Cluster  *ClusterCheck // nil: the cluster is not looked at

	results []Result
}

// checkTime bounds one check, and is how long a stream is listened to before it counts as held up
// on its way.
const checkTime = 15 * time.Second

// Run looks at one thing after the other and tells each as it is known. Those that can only fail
// because an earlier one did are left out.
func (c *Checks) Run(ctx context.Context, tell func(Result)) []Result {
	c.results = nil
	say := func(r Result) {
		c.results = append(c.results, r)
		if tell != nil {
			tell(r)
		}
	}
	c.hub(ctx, say)
	if c.Cluster != nil {
		c.Cluster.run(ctx, say)
	}
	return c.results
}

// step runs one check with a limit on its time. It reports whether the next one can be of use.
func step(ctx context.Context, name string, say func(Result),
	look func(context.Context) Result) bool {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, checkTime, fmt.Errorf("no answer within %s",
		checkTime))
	defer cancel()
	r := look(ctx)
	r.Check, r.Millis = name, time.Since(began).Milliseconds()
	say(r)
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
