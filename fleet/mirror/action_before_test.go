package mirror

import (
	"testing"
	"time"
)

func TestARollbackLeadsToTheLastHealthyRevisionBefore(t *testing.T) {
	at := func(day int) time.Time { return time.Date(2026, 11, day, 0, 0, 0, 0, time.UTC) }
	c := HealthyRevision{Revision: "c", FirstAt: at(3)}
	b := HealthyRevision{Revision: "b", FirstAt: at(2)}
	a := HealthyRevision{Revision: "a", FirstAt: at(1)}
	runs := func(r HealthyRevision) HealthyRevision {
		r.Runs = true
		return r
	}
	for name, test := range map[string]struct {
		all        []HealthyRevision // newest first
		rolledBack bool
		want       string
	}{
		"the one before":                   {[]HealthyRevision{runs(c), b, a}, false, "b"},
		"what runs was never Healthy":      {[]HealthyRevision{c, b, a}, false, "c"},
		"further back, after a rollback":   {[]HealthyRevision{runs(b), c, a}, true, "a"},
		"Git has returned to it":           {[]HealthyRevision{runs(b), c, a}, false, "a"},
		"what the rollback runs is hidden": {[]HealthyRevision{c, b, a}, true, ""},
		"rolled back to the first one":     {[]HealthyRevision{runs(a), c, b}, true, ""},
		"it was never Healthy":             {nil, false, ""},
		"only what runs was ever Healthy":  {[]HealthyRevision{runs(a)}, false, ""},
	} {
		if got := HealthyBefore(test.all, test.rolledBack); got != test.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
