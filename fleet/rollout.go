package fleet

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Rollout is the order in which a change of a deployment reaches its environments. Without waves,
// it reaches all of them at once.
type Rollout struct {
	// in their order; environments that no wave selects are the last one
	Waves     []RolloutWave  `json:"waves"`
	OnFailure RolloutFailure `json:"onFailure,omitempty"` // default Return
	// Timeout is the longest time from the change of an Application until it is Synced and Healthy;
	// default 30m.
	Timeout Duration `json:"timeout,omitempty"`
	// Patience is how long an Application may be Degraded, or its sync fail, before its wave fails;
	// default 1m.
	Patience Duration `json:"patience,omitempty"`
}

// RolloutWave is a group of environments that a change reaches together. Exactly one of
// Environments and EnvironmentSelector is set.
type RolloutWave struct {
	Name                string            `json:"name"` // unique among the waves
	Environments        []EnvironmentName `json:"environments,omitempty"`
	EnvironmentSelector *LabelSelector    `json:"environmentSelector,omitempty"`
	// MaxConcurrent is how many Applications change at the same time: a number, or a part of the
	// wave in percent, rounded up; empty: all.
	MaxConcurrent string `json:"maxConcurrent,omitempty"`
	// Soak is how long all Applications of the wave are Synced and Healthy before the next wave.
	Soak Duration `json:"soak,omitempty"`
	// Approval keeps the wave from beginning until an owner approves it.
	Approval bool `json:"approval,omitempty"`
	// Metrics are names of metrics of the Fleet that are good before the wave is done.
	Metrics []string `json:"metrics,omitempty"`
}

// RolloutFailure is what happens when a wave fails.
type RolloutFailure string

// Reactions to a failed wave.
const (
	// every Application that the rollout has changed gets its last good state back
	RolloutReturn RolloutFailure = "Return"
	RolloutPause  RolloutFailure = "Pause" // everything stays until a person decides
)

// RestWave is the name of the wave of the environments that no declared wave selects.
const RestWave = "rest"

// OrDefaults returns the rollout with every omitted field set.
func (r Rollout) OrDefaults() Rollout {
	r.OnFailure = cmp.Or(r.OnFailure, RolloutReturn)
	r.Timeout = cmp.Or(r.Timeout, Duration(30*time.Minute))
	r.Patience = cmp.Or(r.Patience, Duration(time.Minute))
	return r
}

// Selects reports whether the wave names or selects an environment.
func (w *RolloutWave) Selects(env *Declaration) bool {
	if w.EnvironmentSelector != nil {
		return w.EnvironmentSelector.Matches(env.Labels)
	}
	return slices.Contains(w.Environments, EnvironmentName(env.Key.Name))
}

// WaveOf returns the place of the first wave that selects an environment; len(Waves): none does.
func (r *Rollout) WaveOf(env *Declaration) int {
	for i := range r.Waves {
		if r.Waves[i].Selects(env) {
			return i
		}
	}
	return len(r.Waves)
}

// Concurrent returns how many of n Applications of a wave may change at the same time, at least 1.
func Concurrent(maxConcurrent string, n int) int {
	percent := strings.TrimSuffix(maxConcurrent, "%")
	limit, err := strconv.Atoi(percent)
	switch {
	case maxConcurrent == "":
		return n
	case err != nil:
		return 1
	case percent != maxConcurrent:
		limit = (n*limit + 99) / 100
	}
	return min(max(limit, 1), max(n, 1))
}

// RolloutIn returns the rollout of a deployment, which it may inherit; nil if its changes reach all
// environments at once.
func (d *DeploymentSpec) RolloutIn(defaults Defaults) *Rollout {
	r := d.Rollout
	if r == nil {
		r = defaults.Rollout
	}
	if r == nil || len(r.Waves) == 0 {
		return nil
	}
	resolved := r.OrDefaults()
	return &resolved
}
