package rollout

import (
	"fmt"
	"time"

	"argosy.dev/argosy/fleet/mirror"
)

// measure takes the new measurements of a wave that soaks. It reports whether all metrics are good
// for as long as they have to be, and why one fails the wave. An unknown metric fails it after the
// timeout of an Application, and is never good.
func (s *stepper) measure(i int) (good bool, failed string) {
	w, good := &s.Waves[i], true
	for j := range w.Metrics {
		m := &w.Metrics[j]
		last := s.facts.Metrics[mirror.MetricKey{Rollout: s.ID, Wave: i, Name: m.Name}]
		if last.At.Before(w.Since) { // of an earlier soak, or none
			last = mirror.MetricResult{State: m.State, Message: m.Message}
		} else if m.MeasuredAt == nil || last.At.After(*m.MeasuredAt) {
			take(m, last)
		}
		hold := time.Duration(last.For)
		switch {
		case m.State == mirror.MetricBad && m.Bad >= last.Failures && last.Failures > 0:
			return false, "metric " + m.Name + " " + m.Message
		case m.State != mirror.MetricGood && m.State != mirror.MetricBad &&
			s.now.Sub(m.Since) >= time.Duration(s.Timeout):
			return false, fmt.Sprintf("metric %s is not known after %s: %s", m.Name,
				time.Duration(s.Timeout), m.Message)
		case m.State != mirror.MetricGood, last.At.IsZero(), s.now.Sub(m.Since) < hold:
			good = false
		}
	}
	return good, ""
}

// take stores a measurement.
func take(m *mirror.RolloutMetric, last mirror.MetricResult) {
	if m.State != last.State {
		m.State, m.Since = last.State, last.At
	}
	m.MeasuredAt, m.Message = &last.At, last.Message
	switch last.State {
	case mirror.MetricBad:
		m.Bad++
	case mirror.MetricGood:
		m.Bad = 0
	}
}
