package hub

import (
	"errors"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/printable"
)

// plain makes a stranger's text one line of printable characters of at most that many bytes. It is
// escaped where it is shown.
func plain(text string, most int) string {
	if len(text) > most {
		text = text[:most] // half a character at its end is dropped below
	}
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r), unicode.IsControl(r):
			return ' '
		case r == utf8.RuneError, !printable.Is(r):
			return -1
		}
		return r
	}, text)
}

func message(text string) string { return plain(text, agent.MaxMessage) }

const (
	longestName = 253 // of an object on a cluster (RFC 1123 subdomain)
	longestWord = 256 // of revisions, UIDs and versions
	longestURL  = 2048
	mostObjects = 1 << 20
)

func word(text string) string { return plain(text, longestWord) }

// soundName reports whether a text can be the name of an object at all; nothing is shown or looked
// up by one that cannot.
func soundName(name string) bool {
	return name != "" && len(name) <= longestName && plain(name, longestName) == name &&
		!strings.Contains(name, "/")
}

func count(n, most int) int { return max(0, min(n, most)) }

// ackOf is an agent's word on one row; false when it names none. A state that is not known is a
// failure that says so, and never a removal.
func ackOf(engine fleet.EngineName, a agent.Ack) (fleet.Ack, bool) {
	if !soundName(a.Name) || a.Seq < 0 || !knownKind(a.Kind) {
		return fleet.Ack{}, false
	}
	ack := fleet.Ack{Key: fleet.ObjectKey{Engine: engine, Kind: a.Kind, Name: a.Name}, Seq: a.Seq,
		State:   a.State,
		Message: message(a.Message), Removed: a.Removed, Hash: word(a.Hash)}
	switch a.State {
	case fleet.ApplyPending, fleet.ApplyApplied, fleet.ApplyFailed, fleet.ApplyConflict,
		fleet.ApplyDeleting, fleet.ApplyHeld:
	case "":
		if !a.Removed {
			return fleet.Ack{}, false
		}
	default:
		ack.State, ack.Removed = fleet.ApplyFailed, false
		ack.Message = message("the agent says " + word(string(a.State)) +
			", which this version does not know: " + a.Message)
	}
	return ack, true
}

func knownKind(k fleet.ObjectKind) bool {
	switch k {
	case fleet.ObjectProject, fleet.ObjectCluster, fleet.ObjectRepository, fleet.ObjectApplication:
		return true
	}
	return false
}

func syncState(s fleet.SyncState) fleet.SyncState {
	switch s {
	case fleet.SyncSynced, fleet.SyncOutOfSync:
		return s
	}
	return fleet.SyncUnknown
}

func healthState(s fleet.HealthState) fleet.HealthState {
	switch s {
	case fleet.HealthHealthy, fleet.HealthProgressing, fleet.HealthDegraded, fleet.HealthSuspended,
		fleet.HealthMissing:
		return s
	}
	return fleet.HealthUnknown
}

// phase is Argo CD's word for how an operation stands; another one is none.
func phase(p string) string {
	switch p {
	case "Running", "Succeeded", "Failed", "Error", "Terminating":
		return p
	}
	return ""
}

// notKnown adds words that this version does not know to a message, so that people see them.
func notKnown(text string, words ...string) string {
	for i := 0; i < len(words); i += 2 {
		if words[i] != words[i+1] && words[i] != "" {
			text = strings.TrimSuffix("the agent says "+word(words[i])+
				", which this version does not know: "+text, ": ")
		}
	}
	return message(text)
}

func observationOf(engine fleet.EngineName, o agent.Observed) (fleet.Observation, bool) {
	if !soundName(o.Name) {
		return fleet.Observation{}, false
	}
	sync, health := syncState(o.Sync), healthState(o.Health)
	return fleet.Observation{
		Key: fleet.ObjectKey{Engine: engine, Kind: fleet.ObjectApplication, Name: o.Name},
		UID: word(o.UID), Sync: sync, Health: health, SyncedRevision: word(o.SyncedRevision),
		OperationPhase: phase(o.OperationPhase), OperationID: word(o.OperationID),
		OperationError: message(o.OperationError),
		Message: notKnown(o.Message, string(o.Sync), string(sync), string(o.Health),
			string(health), o.OperationPhase, phase(o.OperationPhase)),
		Resources: count(o.Resources, mostObjects), ReconciledAt: moment(o.ReconciledAt),
		ResourceVersion: word(o.ResourceVersion), Deleted: o.Gone,
	}, true
}

// moment is a time that a calendar holds; others, which no cluster says by itself, are none.
func moment(t time.Time) time.Time {
	if year := t.UTC().Year(); year < 2000 || year > 9998 {
		return time.Time{}
	}
	return t.UTC()
}

// syncEndOf is how a sync stands. A state that is not known ends nothing.
func syncEndOf(e agent.SyncEnd) (agent.SyncEnd, bool) {
	if e.ID == "" || len(e.ID) > longestName || plain(e.ID, longestName) != e.ID {
		return agent.SyncEnd{}, false
	}
	switch e.State {
	case fleet.OperationPending, fleet.OperationRunning, fleet.OperationSucceeded,
		fleet.OperationFailed:
		e.Message = message(e.Message)
	default:
		e.Message, e.State = notKnown(e.Message, string(e.State), ""), fleet.OperationRunning
	}
	return e, true
}

func reportOf(s *agent.Standing) fleet.AgentReport {
	return fleet.AgentReport{
		Reachable: s.Reachable, Message: message(s.Message), ArgoCD: plain(s.ArgoCD, 64),
		Version:          plain(s.Version, 64),
		PendingDeletions: count(s.PendingDeletions, mostObjects),
		HeldDeletions:    count(s.HeldDeletions, mostObjects), Orphans: count(s.Orphans, mostObjects),
		Own: count(s.Own, mostObjects), Environments: environmentsOf(s.Environments),
		Reach: reachOf(s.Unreachable),
	}
}

// reachOf keeps what can be an unreachable environment; nil when the agent does not tell.
func reachOf(told []agent.Unreachable) []fleet.Reach {
	if told == nil {
		return nil
	}
	all := []fleet.Reach{}
	for _, u := range told[:min(len(told), fleet.MaxReach)] {
		since := moment(u.Since)
		if !soundName(string(u.Environment.Tenant)) || !soundName(string(u.Environment.Name)) ||
			since.IsZero() {
			continue
		}
		reason := u.Reason
		switch reason {
		case fleet.UnreachableTimeout, fleet.UnreachableRefused, fleet.UnreachableDenied:
		default:
			reason = fleet.UnreachableError
		}
		all = append(all, fleet.Reach{Environment: u.Environment, Unreachable: &fleet.Unreachable{
			Reason: reason, Message: message(u.Message), Since: since,
			Parked: count(u.Parked, mostObjects),
		}})
	}
	return all
}

// environmentsOf keeps what can be an environment; nil when the agent does not tell.
func environmentsOf(told []fleet.EnvironmentID) []fleet.EnvironmentID {
	if told == nil {
		return nil
	}
	all := []fleet.EnvironmentID{}
	for _, id := range told[:min(len(told), fleet.MaxOrphanEnvironments)] {
		if soundName(string(id.Tenant)) && soundName(string(id.Name)) {
			all = append(all, id)
		}
	}
	return all
}

// orphansOf keeps what can be a stray of the agent's engine. A tenant's own agent has the tenant's
// alone.
func orphansOf(who fleet.Agent, told []agent.Orphan) []fleet.Orphan {
	var all []fleet.Orphan
	for _, s := range told[:min(len(told), fleet.MaxListedOrphans)] {
		if !soundName(s.Name) || !knownKind(s.Kind) || s.UID == "" || s.Epoch < 0 ||
			s.Epoch > agent.MaxEpoch {
			continue
		}
		orphan := fleet.Orphan{Key: fleet.ObjectKey{Engine: who.Engine, Kind: s.Kind, Name: s.Name},
			Tenant:      fleet.TenantName(word(string(s.Tenant))),
			Environment: fleet.EnvironmentName(word(string(s.Environment))),
			Deployment:  fleet.DeploymentName(word(string(s.Deployment))),
			UID:         word(s.UID), Revision: fleet.Revision(word(string(s.Revision))),
			Epoch: s.Epoch,
			Pure:  s.Pure}
		if who.Tenant != "" {
			orphan.Tenant = who.Tenant
		}
		all = append(all, orphan)
	}
	return all
}

func ownOf(o fleet.OwnApplication) (fleet.OwnApplication, bool) {
	if !soundName(o.Name) || !soundName(o.Namespace) {
		return o, false
	}
	sync, health := syncState(o.Sync), healthState(o.Health)
	o.Message = notKnown(o.Message, string(o.Sync), string(sync), string(o.Health), string(health),
		o.OperationPhase, phase(o.OperationPhase))
	o.Sync, o.Health, o.OperationPhase = sync, health, phase(o.OperationPhase)
	o.UID, o.Project, o.SyncedRevision, o.OperationID, o.TargetRevision = word(o.UID),
		word(o.Project), word(o.SyncedRevision), word(o.OperationID), word(o.TargetRevision)
	o.RepoURL, o.Path = withoutCredential(plain(o.RepoURL, longestURL)), plain(o.Path, longestURL)
	o.Resources = count(o.Resources, mostObjects)
	return o, true
}

// withoutCredential keeps what may be a password out of the mirror: the user, the query and the
// fragment of a URL. An agent removes them itself; one that lies does not. Of what is no URL
// (git@host:path) nothing before an "@" stays.
func withoutCredential(raw string) string {
	if u, err := url.Parse(raw); err == nil && u.Host != "" {
		u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
		return plain(u.String(), longestURL)
	}
	if i := strings.IndexAny(raw, "?#"); i >= 0 {
		raw = raw[:i]
	}
	return raw[strings.LastIndexByte(raw, '@')+1:]
}

// withoutToken keeps a token out of what is logged, whatever the error says.
func withoutToken(err error, token string) error {
	return errors.New(strings.ReplaceAll(err.Error(), token, "redacted"))
}
