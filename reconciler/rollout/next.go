package rollout

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// Next returns a rollout after its next step, and whether anything changes. The plan writes members
// that become Changing or Returning.
//
// The next wave begins, changes as many Applications as may change at the same time, soaks once all
// of them are Synced and Healthy with the change, and is done. A wave fails if an Application that
// has the change stays Degraded or its sync keeps failing, in this wave or an earlier one, or does
// not get Healthy in time. Then every Application that has the change gets its last good state
// back, or everything stays for a person.
func Next(r mirror.Rollout, f mirror.RolloutFacts) (mirror.Rollout, bool) {
	s := stepper{Rollout: r.Copy(), facts: f, now: f.Now}
	for _, d := range f.Decisions[r.ID] {
		if d.N > s.Decided {
			s.Decided = d.N
			s.decide(d)
		}
	}
	switch s.State {
	case mirror.RolloutRunning, mirror.RolloutAwaits:
		s.run()
	case mirror.RolloutReturning:
		s.awaitReturn()
	}
	return s.Rollout, !reflect.DeepEqual(s.Rollout, r)
}

type stepper struct {
	mirror.Rollout
	facts mirror.RolloutFacts
	now   time.Time
}

func (s *stepper) set(state mirror.RolloutState, why string) {
	if s.State != state {
		s.State, s.Since = state, s.now
	}
	s.Message = why
}

func (s *stepper) wave(i int, state mirror.WaveState) {
	w := &s.Waves[i]
	if w.State == state {
		return
	}
	w.State, w.Since = state, s.now
	if state == mirror.WaveSoaking || state == mirror.WaveWaiting {
		for j, m := range w.Metrics { // measurements of before are none of the present state
			w.Metrics[j] = mirror.RolloutMetric{Name: m.Name, State: mirror.MetricWaiting,
				Since: s.now}
		}
	}
}

func (s *stepper) member(m *mirror.RolloutMember, state mirror.MemberState, why string) {
	if m.State != state {
		m.State, m.Since, m.BadSince = state, s.now, nil
	}
	m.Message = why
}

func (s *stepper) decide(d mirror.RolloutDecision) {
	if !s.Accepts(d.Verb) {
		return // it was made before the last step
	}
	by := " by " + d.By
	if d.Reason != "" {
		by += ": " + d.Reason
	}
	switch d.Verb {
	case mirror.PauseRollout:
		s.set(mirror.RolloutPaused, "paused"+by)
	case mirror.ResumeRollout:
		s.resume()
	case mirror.AbortRollout:
		s.giveBack("aborted" + by)
	case mirror.ApproveRollout:
		i := s.current()
		if i < len(s.Waves) && (d.Wave == "" || d.Wave == s.Waves[i].Name) {
			s.Waves[i].ApprovedBy = d.By
			s.set(mirror.RolloutRunning, "")
		}
	}
}

// resume lets a rollout go on. A returned rollout begins again; the time of Applications that have
// failed begins again.
func (s *stepper) resume() {
	returned := s.State == mirror.RolloutReturned
	for i := range s.Members {
		m := &s.Members[i]
		switch {
		case returned && m.State == mirror.MemberLeft && m.Before == nil,
			m.State == mirror.MemberFailed, m.State == mirror.MemberChanging:
			s.member(m, mirror.MemberChanging, "")
			m.Since, m.BadSince = s.now, nil
		case returned:
			s.member(m, mirror.MemberWaiting, "")
		}
	}
	for i, w := range s.Waves {
		if returned || w.State == mirror.WaveFailed {
			s.wave(i, mirror.WaveWaiting)
		}
		if returned {
			s.Waves[i].ApprovedBy = ""
		}
	}
	s.set(mirror.RolloutRunning, "")
}

// current returns the place of the first wave that is not done.
func (s *stepper) current() int {
	i := slices.IndexFunc(s.Waves, func(w mirror.RolloutWave) bool {
		return w.State != mirror.WaveDone
	})
	if i < 0 {
		return len(s.Waves)
	}
	return i
}

func (s *stepper) run() {
	if failed := s.watch(); len(failed) > 0 {
		s.fail(failed)
		return
	}
	for {
		i := s.current()
		if i == len(s.Waves) {
			s.set(mirror.RolloutDone, "")
			s.EndedAt = &s.now
			return
		}
		if !s.advance(i) {
			return
		}
	}
}

// watch records how each Application with the change is, and returns the places of those that have
// failed.
func (s *stepper) watch() (failed []int) {
	for i := range s.Members {
		m := &s.Members[i]
		if !m.State.Changed() {
			continue
		}
		at := s.facts.Status[m.Key]
		switch bad := trouble(at, m.Hash); {
		case healthy(at, m.Hash):
			s.member(m, mirror.MemberHealthy, "")
			m.BadSince = nil
		case bad != "":
			if m.BadSince == nil {
				since := s.now
				m.BadSince = &since
			}
			if s.now.Sub(*m.BadSince) >= time.Duration(s.Patience) {
				s.member(m, mirror.MemberFailed, bad)
			}
		case m.State == mirror.MemberHealthy && s.Waves[m.Wave].State == mirror.WaveDone:
			m.BadSince = nil // a later sync or restart of its own
		case m.State == mirror.MemberHealthy:
			s.member(m, mirror.MemberChanging, "")
		default:
			m.BadSince = nil
			if s.now.Sub(m.Since) >= time.Duration(s.Timeout) {
				s.member(m, mirror.MemberFailed, fmt.Sprintf("not Synced and Healthy after %s: %s",
					time.Duration(s.Timeout), missing(at, m.Hash)))
			}
		}
		if m.State == mirror.MemberFailed {
			failed = append(failed, i)
		}
	}
	return failed
}

// advance takes the next step of a wave, and reports whether the wave is done.
func (s *stepper) advance(i int) bool {
	w := &s.Waves[i]
	if w.State == mirror.WaveWaiting || w.State == mirror.WaveAwaits {
		if w.Approval && w.ApprovedBy == "" {
			s.wave(i, mirror.WaveAwaits)
			s.set(mirror.RolloutAwaits, fmt.Sprintf("wave %d (%s) begins once `argosy rollouts "+
				"approve %s/%s` approves it", i+1, w.Name, s.Tenant, s.Deployment))
			return false
		}
		s.wave(i, mirror.WaveRunning)
		s.set(mirror.RolloutRunning, "")
	}
	var waiting []*mirror.RolloutMember
	total, changing := 0, 0
	for j := range s.Members {
		m := &s.Members[j]
		if m.Wave != i {
			continue
		}
		total++
		switch m.State {
		case mirror.MemberWaiting:
			waiting = append(waiting, m)
		case mirror.MemberChanging:
			changing++
		}
	}
	allowed := fleet.Concurrent(w.MaxConcurrent, total) - changing
	frozen := ""
	for _, m := range waiting {
		if m.Message = s.facts.Status[m.Key].Frozen; m.Message != "" {
			frozen = m.Message
			continue
		}
		if allowed > 0 {
			allowed--
			changing++
			s.member(m, mirror.MemberChanging, "")
		}
	}
	s.Message = frozen
	if changing > 0 || frozen != "" || slices.ContainsFunc(waiting,
		func(m *mirror.RolloutMember) bool { return m.State == mirror.MemberWaiting }) {
		s.wave(i, mirror.WaveRunning) // from Soaking, if an Application is no longer Healthy
		return false
	}
	if (w.Soak > 0 || len(w.Metrics) > 0) && w.State != mirror.WaveSoaking {
		s.wave(i, mirror.WaveSoaking)
	}
	good, failed := s.measure(i)
	if failed != "" {
		s.failWave(i, failed)
		return false
	}
	if w.State == mirror.WaveSoaking && s.now.Sub(w.Since) < time.Duration(w.Soak) || !good {
		return false
	}
	s.wave(i, mirror.WaveDone)
	return true
}

// fail ends the waves because of members.
func (s *stepper) fail(failed []int) {
	for _, j := range failed {
		s.wave(s.Members[j].Wave, mirror.WaveFailed)
	}
	s.failWave(s.Members[failed[0]].Wave, s.names(failed))
}

// failWave ends the waves because of one, with the reason.
func (s *stepper) failWave(wave int, why string) {
	s.wave(wave, mirror.WaveFailed)
	why = fmt.Sprintf("wave %d (%s) failed: %s", wave+1, s.Waves[wave].Name, why)
	if s.OnFailure == fleet.RolloutPause {
		s.set(mirror.RolloutFailed, why+". Nothing else changes: correct it in Git, or run `argosy "+
			"rollouts resume "+s.subject()+"` to try again, or `abort` to return")
		return
	}
	s.giveBack(why)
}

func (s *stepper) subject() string { return string(s.Tenant) + "/" + string(s.Deployment) }

// names returns members with what is wrong with them, at most five.
func (s *stepper) names(members []int) string {
	var parts []string
	for n, j := range members {
		if n == 5 {
			parts = append(parts, fmt.Sprintf("and %d more", len(members)-n))
			break
		}
		m := s.Members[j]
		parts = append(parts, string(m.Environment)+" ("+m.Message+")")
	}
	return strings.Join(parts, ", ")
}

// giveBack gives every Application that has the change its last good state back. An Application
// that the rollout has created has none: it stays, since a deletion needs a review.
func (s *stepper) giveBack(why string) {
	s.set(mirror.RolloutReturning, why)
	for i := range s.Members {
		m := &s.Members[i]
		at, known := s.facts.Status[m.Key]
		replaced := m.State == mirror.MemberWaiting && m.Before != nil && known &&
			at.Hash != m.Before.Hash // it has the change of a rollout that this one replaced
		switch {
		case !m.State.Changed() && !replaced:
		case m.Before == nil:
			s.member(m, mirror.MemberLeft, "kept with the change: it has no last good state to "+
				"return to, since the rollout created it or the mirror was lost")
		default:
			s.member(m, mirror.MemberReturning, m.Message)
		}
	}
	s.awaitReturn()
}

// awaitReturn ends the return once every Application is Synced and Healthy as before, or its time
// is over.
func (s *stepper) awaitReturn() {
	var left []int
	for i := range s.Members {
		m := &s.Members[i]
		if m.State == mirror.MemberLeft {
			left = append(left, i)
		}
		if m.State != mirror.MemberReturning {
			continue
		}
		switch at := s.facts.Status[m.Key]; {
		case healthy(at, m.Before.Hash):
			s.member(m, mirror.MemberReturned, m.Message)
		case s.now.Sub(m.Since) >= time.Duration(s.Timeout):
			s.member(m, mirror.MemberLeft, "its last good state is written, but "+
				missing(at, m.Before.Hash))
			left = append(left, i)
		default:
			return
		}
	}
	for i, w := range s.Waves {
		switch w.State {
		case mirror.WaveWaiting:
		case mirror.WaveAwaits:
			s.wave(i, mirror.WaveWaiting)
		default:
			s.wave(i, mirror.WaveReturned)
		}
	}
	why := s.Message
	if len(left) > 0 {
		why += "; look at " + s.names(left)
	}
	s.set(mirror.RolloutReturned, why+". The last good state is back, and the change waits: "+
		"correct it in Git, or run `argosy rollouts resume "+s.subject()+"` to try again")
}

// healthy reports whether Argo CD has compared an Application with this manifest, and found it
// Synced and Healthy.
func healthy(at mirror.RolloutStatus, hash string) bool {
	return at.Hash == hash && at.Apply == mirror.ApplyApplied && at.Compared == hash &&
		at.SilentSince == nil && at.Sync == mirror.SyncSynced &&
		at.Health == mirror.HealthHealthy && at.OperationPhase != "Running"
}

// trouble returns what is wrong with an Application that has this manifest; "": nothing is yet.
func trouble(at mirror.RolloutStatus, hash string) string {
	switch {
	case at.Hash != hash || at.SilentSince != nil:
		return ""
	case at.Apply == mirror.ApplyFailed || at.Apply == mirror.ApplyConflict:
		return "not applied: " + at.ApplyMessage
	case at.Compared != hash:
		return ""
	case at.Health == mirror.HealthDegraded:
		return strings.TrimSuffix("Degraded: "+at.Message, ": ")
	case at.Sync != mirror.SyncSynced &&
		(at.OperationPhase == "Failed" || at.OperationPhase == "Error"):
		return "its sync failed: " + at.Message
	}
	return ""
}

// missing returns what an Application lacks to be healthy.
func missing(at mirror.RolloutStatus, hash string) string {
	switch {
	case at.SilentSince != nil:
		return "its cluster does not answer since " +
			at.SilentSince.UTC().Format("2006-01-02 15:04 UTC")
	case at.Hash != hash:
		return "it has another change"
	case at.Apply != mirror.ApplyApplied:
		return "its engine has not applied it (" + string(at.Apply) + ")"
	case at.Compared != hash:
		return "its engine's Argo CD has not compared it"
	}
	text := fmt.Sprintf("it is %s and %s", at.Sync, at.Health)
	if at.Message != "" {
		text += ": " + at.Message
	}
	return text
}

// Returns reports whether members begin to return with a step.
func Returns(r, next mirror.Rollout) bool {
	return slices.ContainsFunc(next.Members, func(m mirror.RolloutMember) bool {
		i := r.Member(m.Environment)
		return m.State == mirror.MemberReturning &&
			(i < 0 || r.Members[i].State != mirror.MemberReturning)
	})
}
