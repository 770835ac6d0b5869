package argocd

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
	"unique"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

const maxText = 1024

// observationOf converts the status of one Application.
func observationOf(key fleet.ObjectKey, o *liveObject) mirror.Observation {
	s := &o.Status
	out := mirror.Observation{
		Key: key, UID: o.Metadata.UID, ResourceVersion: o.Metadata.ResourceVersion,
		Sync: syncState(s.Sync.Status), Health: healthState(s.Health.Status),
		SyncedRevision: clip(s.Sync.Revision, 256),
		Resources:      len(s.Resources), ReconciledAt: reconciledAt(s.ReconciledAt),
		Message: messageOf(s),
	}
	if state := s.OperationState; state != nil {
		out.OperationPhase = unique.Make(clip(state.Phase, 32)).Value()
		out.OperationID = clip(state.Operation.request(), 253)
		if state.Phase == "Failed" || state.Phase == "Error" {
			out.OperationError = operationMessage(s)
		}
	}
	return out
}

// reconciledAt parses a time; zero if it is invalid.
func reconciledAt(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// messageOf prefers problems of the Application to problems of its workload.
func messageOf(s *liveStatus) string {
	var problems []string
	for _, c := range s.Conditions {
		if strings.HasSuffix(c.Type, "Error") || strings.HasSuffix(c.Type, "Warning") {
			problems = append(problems, c.Type+": "+c.Message)
		}
	}
	if len(problems) == 0 {
		problems = append(problems, s.Health.Message)
		if state := s.OperationState; state != nil && s.Health.Message == "" &&
			state.Phase != "Succeeded" {
			problems[0] = operationMessage(s) // e.g. why a running operation is being retried
		}
	}
	return clip(strings.Join(problems, "; "), maxText)
}

// operationMessage returns the first failed resource and then Argo CD's own message, which is only
// "one or more synchronization tasks are not valid".
func operationMessage(s *liveStatus) string {
	failed, message := s.OperationState.SyncResult.Resources, s.OperationState.Message
	if failed.first == "" {
		return clip(message, maxText)
	}
	if more := failed.count - 1; more == 1 {
		message = "1 other resource failed; " + message
	} else if more > 1 {
		message = fmt.Sprintf("%d other resources failed; %s", more, message)
	}
	return clip(strings.TrimSuffix(failed.first+"; "+message, "; "), maxText)
}

// syncState and healthState accept known values only: a value of a newer Argo CD becomes "Unknown".
func syncState(s string) mirror.SyncState {
	switch v := mirror.SyncState(s); v {
	case mirror.SyncSynced, mirror.SyncOutOfSync:
		return v
	}
	return mirror.SyncUnknown
}

func healthState(s string) mirror.HealthState {
	switch v := mirror.HealthState(s); v {
	case mirror.HealthHealthy, mirror.HealthProgressing, mirror.HealthDegraded, mirror.HealthSuspended,
		mirror.HealthMissing:
		return v
	}
	return mirror.HealthUnknown
}

// clip makes text of a tenant's workload storable and printable: valid UTF-8, no control
// characters, at most most bytes.
func clip(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s[:min(len(s), 4*most)])
	if len(s) <= most {
		return s
	}
	cut := most - len("...")
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

// differs reports whether b is worth a write to the mirror. Argo CD updates the reconciliation time
// of every Application every few minutes; that alone counts only once per reconciledStep.
func differs(a, b mirror.Observation) bool {
	if b.ReconciledAt.Sub(a.ReconciledAt) >= reconciledStep {
		return true
	}
	a.ReconciledAt, a.ResourceVersion = b.ReconciledAt, b.ResourceVersion
	return a != b
}
