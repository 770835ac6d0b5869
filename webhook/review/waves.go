package review

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
)

// rolledChange is the rollout of a deployment that brings a merged change.
type rolledChange struct {
	of fleet.DeploymentID
	forge.Rolling
}

// rolloutsOf returns the rollouts that bring what a merge changes, sorted by their deployments.
func rolloutsOf(m *Merge, outcomes []forge.Outcome) (all []rolledChange) {
	by, found := byKey(outcomes), map[fleet.DeploymentID]bool{}
	for _, e := range m.expected() {
		of := fleet.DeploymentID{Tenant: e.Tenant, Name: e.Deployment}
		r := by[e.Key].Rollout
		if r.State == "" || r.Hash != e.Hash || found[of] {
			continue
		}
		found[of] = true
		all = append(all, rolledChange{of, r})
	}
	slices.SortFunc(all, func(a, b rolledChange) int {
		return cmp.Or(cmp.Compare(a.of.Tenant, b.of.Tenant), cmp.Compare(a.of.Name, b.of.Name))
	})
	return all
}

// wave names a wave, such as "wave 2 of 3 (prod)".
func (r rolledChange) wave(i int) string {
	if i < 0 || i >= len(r.Waves) {
		return "a wave"
	}
	return fmt.Sprintf("wave %d of %d (%s)", i+1, len(r.Waves), r.Waves[i].Name)
}

// waiting explains a rollout that awaits an approval.
func (r rolledChange) waiting() string {
	return r.wave(mirror.CurrentWave(r.Waves)) + " waits for an approval"
}

// returned reports whether the change of a rollout was taken back.
func (r result) returned() bool {
	return slices.ContainsFunc(r.rollouts, func(r rolledChange) bool {
		return r.State == mirror.RolloutReturning || r.State == mirror.RolloutReturned
	})
}

// awaits returns the first rollout that awaits the approval of a wave, or nil.
func (r result) awaits() *rolledChange {
	i := slices.IndexFunc(r.rollouts, func(r rolledChange) bool {
		return r.State == mirror.RolloutAwaits
	})
	if i < 0 {
		return nil
	}
	return &r.rollouts[i]
}

// rolling is the progress of an Application whose change goes in waves, and that does not have it
// yet or any more.
func rolling(e mirror.Effect, o forge.Outcome) (phase, string) {
	r := rolledChange{fleet.DeploymentID{Tenant: e.Tenant, Name: e.Deployment}, o.Rollout}
	wave, at := words(r.wave(r.Wave)), mirror.CurrentWave(r.Waves)
	switch r.State {
	case mirror.RolloutFailed:
		return failed, wave + " of its rollout, which has failed"
	case mirror.RolloutReturning, mirror.RolloutReturned:
		return failed, "has its last good state: the change was returned"
	case mirror.RolloutPaused:
		return progressing, wave + ": its rollout is paused"
	}
	if at >= 0 && at < r.Wave {
		return progressing, wave + ": begins after " + words(r.wave(at))
	}
	if r.State == mirror.RolloutAwaits {
		return progressing, wave + ": waits for an approval"
	}
	return progressing, wave + ": begins next"
}

// waveWords are the states of a wave in a sentence.
var waveWords = map[mirror.WaveState]string{mirror.WaveWaiting: "waits",
	mirror.WaveAwaits: "waits for an approval", mirror.WaveRunning: "changes",
	mirror.WaveSoaking: "soaks", mirror.WaveDone: "done", mirror.WaveFailed: "failed",
	mirror.WaveReturned: "returned"}

// strips shows each rollout as its waves, and what a person can do. Times are those at which a
// state began: the comment changes only when a state does.
func (r result) strips(p *page, d detail) {
	var list []string
	for _, o := range r.rollouts {
		var waves []string
		for i, w := range o.Waves {
			state := cmp.Or(waveWords[w.State], string(w.State))
			if w.State != mirror.WaveWaiting {
				state += " since " + utc(w.Since)
			}
			if w.Soak > 0 && w.State == mirror.WaveSoaking {
				state += " for " + w.Soak.Short()
			}
			waves = append(waves, fmt.Sprintf("%d %s %s", i+1, words(w.Name), state))
		}
		text := "Rollout of " + code(string(o.of.Tenant)+"/"+string(o.of.Name)) + ": " +
			strings.Join(waves, " → ")
		if o.Message != "" && o.State != mirror.RolloutAwaits {
			text += ". " + words(upper(o.Message))
		}
		list = append(list, text+o.next())
	}
	p.items(list, d.list)
}

// next names the command of a person who wants the rollout to go on.
func (r rolledChange) next() string {
	verb := "describe rollout"
	switch r.State {
	case mirror.RolloutAwaits:
		verb = "rollouts approve"
	case mirror.RolloutPaused, mirror.RolloutFailed, mirror.RolloutReturned:
		verb = "rollouts resume"
	}
	return ": " + code("argosy "+verb+" "+string(r.of.Tenant)+"/"+string(r.of.Name))
}
