package worker

import (
	"cmp"
	"fmt"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

const (
	waveWait  = 5 * time.Second  // longest pause before earlier waves are checked again
	waveLimit = 30 * time.Minute // longest wait of a row for earlier waves
)

// member is an Application of the environment of a row, as the order of waves sees it.
type member struct {
	wave       int
	deployment fleet.DeploymentName
	state      string // why Applications after it wait; "": they do not
}

// firstBefore returns the member that an Application of a wave waits for: of those that have a
// state, the one with the lowest wave and then name. A deletion waits for higher waves, the highest
// first.
func firstBefore(wave int, deletion bool, members []member) (member, bool) {
	var first member
	found := false
	for _, m := range members {
		order := m.wave - wave
		if deletion {
			order = -order
		}
		if order >= 0 || m.state == "" {
			continue
		}
		by := m.wave - first.wave
		if deletion {
			by = -by
		}
		if !found || cmp.Or(by, cmp.Compare(m.deployment, first.deployment)) < 0 {
			first, found = m, true
		}
	}
	return first, found
}

// stateOf returns why later waves wait for an Application on the engine.
func stateOf(l engine.Live) string {
	switch {
	case l.Finished() || l.Deleting:
		return ""
	case l.Health != mirror.HealthHealthy && l.Health != "" && l.Health != mirror.HealthUnknown:
		return "is " + string(l.Health)
	case l.Operating:
		return "is being synced"
	case l.Sync == mirror.SyncOutOfSync:
		return "is OutOfSync"
	}
	return "is not compared yet"
}

// waveOf returns the wave of a row. The row of a deletion may come without a manifest.
func (s *session) waveOf(row mirror.Row) int {
	if row.Unwanted {
		live, _ := s.target.Live(row.Key)
		return live.Wave
	}
	return row.Wave()
}

// waveBefore returns what an Application's row waits for by its wave. A row that the engine has
// already, or had until something changed its object, waits for nothing: it changes nothing.
func (s *session) waveBefore(row mirror.Row) (member, bool) {
	if row.Key.Kind != fleet.ObjectApplication {
		return member{}, false
	}
	if live, ok := s.target.Live(row.Key); ok && live.Ours && !row.Unwanted &&
		live.Hash == row.Manifest.Hash {
		return member{}, false
	}
	id, wave := fleet.EnvironmentID{Tenant: row.Tenant, Name: row.Environment}, s.waveOf(row)
	if wave == 0 && !s.queue.waves(id) && !s.target.Waves(id) {
		return member{}, false
	}
	queued := s.queue.of(id)
	members := make([]member, 0, len(queued))
	for key, other := range queued {
		m := member{wave: s.waveOf(other), deployment: other.Deployment}
		if key != row.Key && other.Unwanted == row.Unwanted {
			m.state = "is not applied yet"
			if row.Unwanted {
				m.state = "is not deleted yet"
			}
		}
		members = append(members, m)
	}
	if !row.Unwanted {
		for _, live := range s.target.Environment(id) {
			if _, again := queued[live.Key]; !again {
				members = append(members, member{live.Wave, live.Deployment, stateOf(live)})
			}
		}
	}
	return firstBefore(wave, row.Unwanted, members)
}

// waitForWave returns the pause of a row that waits for another wave, and reports the reason once.
// It returns 0 when the row has waited for waveLimit: an Application that never gets healthy
// delays later waves, and does not block them.
func (s *session) waitForWave(t *task, before member) time.Duration {
	now := time.Now()
	if t.waves.IsZero() {
		t.waves = now
	}
	reason := fmt.Sprintf("waits for wave %d: %s %s", before.wave, before.deployment, before.state)
	if now.Sub(t.waves) >= waveLimit {
		s.Log.Warn("an Application is applied before its wave's turn", "engine", s.Engine,
			"application", t.row.Key.Name, "reason", reason, "waited", waveLimit)
		return 0
	}
	if reason != t.reason {
		t.reason = reason
		ack := mirror.Ack{Key: t.row.Key, Seq: t.row.Seq, Hash: t.row.Manifest.Hash,
			State: mirror.ApplyPending, Message: short(reason)}
		if t.row.Unwanted {
			ack.State = mirror.ApplyDeleting
		}
		s.acks.Add(ack)
	}
	return min(max(now.Sub(t.waves)/4, dependencyWait), waveWait)
}
