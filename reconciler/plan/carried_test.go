package plan

import (
	"fmt"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/applied"
)

// waiting is an AppliedState of n deployments, of which each has a change that waits for its wave.
func waiting(t testing.TB, n int) *AppliedState {
	t.Helper()
	w := big(t, n)
	for _, row := range w.state.Rows.Base() {
		id := row.Application()
		if id.Deployment == "" {
			continue
		}
		pl, _ := w.state.PlacementOf(id)
		key := applied.ApplicationKey(pl.Engine, id)
		w.state.Frozen.Set(id, applied.Frozen{Application: id, Key: key, Rollout: true})
		w.state.SetRollout(mirror.Rollout{ID: id.String(), Tenant: id.Tenant,
			Deployment: id.Deployment, State: mirror.RolloutPaused,
			Members: []mirror.RolloutMember{{Environment: id.Environment, Key: key}}})
	}
	w.state.Commit()
	if got := len(w.Rollouts()); got != n {
		t.Fatalf("%d of %d deployments roll out", got, n)
	}
	return w
}

var oneMove = func() map[fleet.SliceID]mirror.MoveRequest {
	id := fleet.EnvironmentID{Tenant: "t0000", Name: "env-0"}
	return map[fleet.SliceID]mirror.MoveRequest{id.Whole(): {Environment: id}}
}()

// A move costs the deployments of its environment, however many changes of others wait.
func TestAMoveCostsTheSameWithAnyNumberOfRollouts(t *testing.T) {
	took := map[int]time.Duration{}
	for _, n := range []int{100, 10_000} {
		w := waiting(t, n)
		took[n] = time.Hour
		for range 50 {
			begin := time.Now()
			rows, of := w.Carried(oneMove)
			took[n] = min(took[n], time.Since(begin))
			if len(rows) != 20 || len(of) != 20 {
				t.Fatalf("%d Applications and %d rollouts of 20 are carried", len(rows), len(of))
			}
		}
	}
	t.Logf("by number of rollouts: %v", took)
	if took[10_000] > 10*took[100] {
		t.Errorf("a move costs %v among 100 rollouts, and %v among 10,000", took[100],
			took[10_000])
	}
}

func BenchmarkCarried(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := waiting(b, n)
			for b.Loop() {
				w.Carried(oneMove)
			}
		})
	}
}
