package argocd

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
	"unique"

	"argosy.dev/argosy/fleet"
)

const maxText = 1024

// observationOf reads what Argo CD says of one Application.
func observationOf(key fleet.ObjectKey, o *liveObject) fleet.Observation {
	s := &o.Status
	out := fleet.Observation{
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

// reconciledAt is zero for what is no time.
func reconciledAt(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// messageOf prefers what is wrong with the Application over what is wrong with its workload.
func messageOf(s *liveStatus) string {
	var said []string
	for _, c := range s.Conditions {
		if strings.HasSuffix(c.Type, "Error") || strings.HasSuffix(c.Type, "Warning") {
			said = append(said, c.Type+": "+c.Message)
		}
	}
	if len(said) == 0 {
		said = append(said, s.Health.Message)
		if state := s.OperationState; state != nil && s.Health.Message == "" &&
			state.Phase != "Succeeded" {
			said[0] = operationMessage(s) // e.g. why an operation that goes on is tried again
		}
	}
	return clip(strings.Join(said, "; "), maxText)
}

// operationMessage is what Argo CD says of the operation, after the first resource that it could
// not sync: its own words for that are "one or more synchronization tasks are not valid".
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

// syncState and healthState keep to the words we know: a word of a newer Argo CD is "Unknown",
// never a lie.
func syncState(s string) fleet.SyncState {
	switch v := fleet.SyncState(s); v {
	case fleet.SyncSynced, fleet.SyncOutOfSync:
		return v
	}
	return fleet.SyncUnknown
}

func healthState(s string) fleet.HealthState {
	switch v := fleet.HealthState(s); v {
	case fleet.HealthHealthy, fleet.HealthProgressing, fleet.HealthDegraded, fleet.HealthSuspended,
		fleet.HealthMissing:
		return v
	}
	return fleet.HealthUnknown
}

// clip makes text of a tenant's workload fit to be stored and shown: valid UTF-8, no control
// characters, at most that many bytes.
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

// differs reports whether b says something new to a reader of the mirror. Argo CD looks at every
// Application every few minutes and writes down when; that alone is worth a row only now and then.
func differs(a, b fleet.Observation) bool {
	if b.ReconciledAt.Sub(a.ReconciledAt) >= reconciledStep {
		return true
	}
	a.ReconciledAt, a.ResourceVersion = b.ReconciledAt, b.ResourceVersion
	return a != b
}
