package inspect

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet/mirror"
)

// Events returns the events about objects with these UIDs, newest first, at most mirror.MaxEvents.
func Events(all []corev1.Event, of map[string]bool) []mirror.ResourceEvent {
	out := []mirror.ResourceEvent{}
	for i := range all {
		if e := &all[i]; e.InvolvedObject.UID != "" && of[string(e.InvolvedObject.UID)] {
			out = append(out, event(e))
		}
	}
	slices.SortStableFunc(out, func(a, b mirror.ResourceEvent) int {
		switch {
		case a.LastAt == nil || b.LastAt == nil:
			return 0
		}
		return b.LastAt.Compare(*a.LastAt)
	})
	if len(out) > mirror.MaxEvents {
		out = out[:mirror.MaxEvents]
	}
	return out
}

func event(e *corev1.Event) mirror.ResourceEvent {
	group := ""
	if gv := e.InvolvedObject.GroupVersionKind(); gv.Group != "" {
		group = gv.Group
	}
	out := mirror.ResourceEvent{Resource: mirror.ResourceRef{Group: short(group),
		Kind:      short(e.InvolvedObject.Kind),
		Namespace: short(e.InvolvedObject.Namespace), Name: short(e.InvolvedObject.Name),
		UID: short(string(e.InvolvedObject.UID))}, Type: short(e.Type), Reason: short(e.Reason),
		Message: message(e.Message), Count: int(max(e.Count, 1)), Source: short(e.Source.Component),
		FirstAt: timeOf(&e.FirstTimestamp), LastAt: timeOf(&e.LastTimestamp)}
	if out.Source == "" {
		out.Source = short(e.ReportingController)
	}
	at := metav1.NewTime(e.EventTime.Time)
	if s := e.Series; s != nil { // of the newer kind of events
		out.Count, at = int(max(s.Count, 1)), metav1.NewTime(s.LastObservedTime.Time)
	}
	if out.LastAt == nil {
		if out.LastAt = timeOf(&at); out.LastAt == nil {
			out.LastAt = timeOf(&e.CreationTimestamp)
		}
	}
	if out.FirstAt == nil {
		first := metav1.NewTime(e.EventTime.Time)
		if out.FirstAt = timeOf(&first); out.FirstAt == nil {
			out.FirstAt = out.LastAt
		}
	}
	return out
}
