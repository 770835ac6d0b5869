package main

import (
	"testing"

	"argosy.dev/argosy/fleet/mirror"
)

func TestARolloutShowsTheWaveThatItHasReached(t *testing.T) {
	t.Parallel()
	const done, waits, back = mirror.WaveDone, mirror.WaveWaiting, mirror.WaveReturned
	for want, r := range map[string]mirror.Rollout{
		"2/3 b": rolled(mirror.RolloutRunning, done, mirror.WaveRunning, waits),
		"1/3 a": rolled(mirror.RolloutAwaits, mirror.WaveAwaits, waits, waits),
		"3/3":   rolled(mirror.RolloutDone, done, done, done),
		"3/3 c": rolled(mirror.RolloutFailed, done, done, mirror.WaveFailed),
		"2/2 b": rolled(mirror.RolloutReturning, mirror.WaveFailed, mirror.WaveFailed),
		"2/4 b": rolled(mirror.RolloutReturned, back, back, waits, mirror.WaveAwaits),
	} {
		if got := waveReached(r); got != want {
			t.Errorf("%v: %q, want %q", r, got, want)
		}
	}
}

func rolled(state mirror.RolloutState, waves ...mirror.WaveState) mirror.Rollout {
	r := mirror.Rollout{State: state}
	for i, w := range waves {
		r.Waves = append(r.Waves, mirror.RolloutWave{Name: string(rune('a' + i)), State: w})
	}
	return r
}
