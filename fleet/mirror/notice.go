package mirror

import (
	"strings"

	"argosy.dev/argosy/fleet"
)

// Notifications between replicas. A notification carries no data, it triggers; polling compensates
// for a lost one. After an empty or unknown notification, anything may have changed.
const (
	NoticeStops = "stops" // an emergency stop was set or ended
	// work is pending for an agent, such as a sync that a tenant requested
	NoticeAgents = "agents"
	// a push to a repository of Applications waits to be handled
	NoticeSourcePush = "sourcepush"

	noticeRecorded = "recorded"
	noticePushed   = "pushed"
	noticeMoved    = "moved"
	noticeMove     = "move"
	noticeInspect  = "inspect"
	noticeAnswered = "answered"
	noticeActions  = "actions"
	maxNotice      = 7000 // bytes; PostgreSQL accepts 8000
)

// NoticeRecorded is the notification of a recorded revision: its author and the changed engines;
// nil engines: any.
func NoticeRecorded(by string, engines []fleet.EngineName) string {
	return withEngines(noticeRecorded+" "+by, engines)
}

// withEngines adds the names of engines to a notice; none if there are too many.
func withEngines(notice string, engines []fleet.EngineName) string {
	all := notice
	for _, e := range engines {
		if all += " " + string(e); len(all) > maxNotice {
			return notice
		}
	}
	return all
}

// NoticeActions notifies the workers and agents of these engines of actions on Applications. If
// there are too many, it names none: all of them look.
func NoticeActions(engines []fleet.EngineName) string {
	return withEngines(noticeActions, engines)
}

// Actions parses a notice of NoticeActions; false for any other.
func Actions(notice string) (engines []fleet.EngineName, ok bool) {
	words := strings.Fields(notice)
	if len(words) == 0 || words[0] != noticeActions {
		return nil, false
	}
	for _, e := range words[1:] {
		engines = append(engines, fleet.EngineName(e))
	}
	return engines, true
}

// Recorded parses a notification of NoticeRecorded; ok is false for any other.
func Recorded(notice string) (by string, engines []fleet.EngineName, ok bool) {
	words := strings.Fields(notice)
	if len(words) < 2 || words[0] != noticeRecorded {
		return "", nil, false
	}
	for _, e := range words[2:] {
		engines = append(engines, fleet.EngineName(e))
	}
	return words[1], engines, true
}

// Stepped is moving Applications of one environment that have another step.
type Stepped struct {
	Engines     []fleet.EngineName // both of the move
	Environment fleet.EnvironmentID
	Deployments []fleet.DeploymentName // nil: any
}

// NoticeMove notifies the workers of both engines of the steps.
func NoticeMove(s Stepped) string {
	words := []string{noticeMove, string(s.Engines[0]), string(s.Engines[1]),
		string(s.Environment.Tenant), string(s.Environment.Name)}
	few := len(words)
	for _, d := range s.Deployments {
		words = append(words, string(d))
	}
	notice := strings.Join(words, " ")
	if len(notice) > maxNotice {
		return strings.Join(words[:few], " ")
	}
	return notice
}

// MoveStepped parses a notice of NoticeMove; false for any other.
func MoveStepped(notice string) (s Stepped, ok bool) {
	words := strings.Fields(notice)
	if len(words) < 5 || words[0] != noticeMove {
		return s, false
	}
	s.Engines = []fleet.EngineName{fleet.EngineName(words[1]), fleet.EngineName(words[2])}
	s.Environment = fleet.EnvironmentID{Tenant: fleet.TenantName(words[3]),
		Name: fleet.EnvironmentName(words[4])}
	for _, d := range words[5:] {
		s.Deployments = append(s.Deployments, fleet.DeploymentName(d))
	}
	return s, true
}

// NoticePushed notifies every replica that the branch may have moved. The replica by woke its own
// loop.
func NoticePushed(by string) string { return noticePushed + " " + by }

// Pushed parses a notice of NoticePushed; false for any other.
func Pushed(notice string) (by string, ok bool) {
	return strings.CutPrefix(notice, noticePushed+" ")
}

// NoticeMoved notifies every replica that a ref of a listed repository may have moved. It is empty
// if the ref or a URL has a form that no declaration can name.
func NoticeMoved(by, ref string, urls []string) string {
	words := append([]string{noticeMoved, by, ref}, urls...)
	notice := strings.Join(words, " ")
	if len(urls) == 0 || len(notice) > maxNotice || len(strings.Fields(notice)) != len(words) {
		return ""
	}
	return notice
}

// Moved parses a notice of NoticeMoved; false for any other.
func Moved(notice string) (by, ref string, urls []string, ok bool) {
	words := strings.Fields(notice)
	if len(words) < 4 || words[0] != noticeMoved {
		return "", "", nil, false
	}
	return words[1], words[2], words[3:], true
}

// NoticeInspect notifies the replica that holds the stream of the engine's agent: the open reads of
// the engine's Applications have changed.
func NoticeInspect(e fleet.EngineName) string { return noticeInspect + " " + string(e) }

// Inspect parses a notice of NoticeInspect; false for any other.
func Inspect(notice string) (e fleet.EngineName, ok bool) {
	name, ok := strings.CutPrefix(notice, noticeInspect+" ")
	return fleet.EngineName(name), ok
}

// NoticeAnswered notifies the replica of a read that an agent has sent a part of the answer.
func NoticeAnswered(replica, id string) string {
	return noticeAnswered + " " + id + " " + replica
}

// Answered parses a notice of NoticeAnswered; false for any other.
func Answered(notice string) (replica, id string, ok bool) {
	rest, ok := strings.CutPrefix(notice, noticeAnswered+" ")
	if !ok {
		return "", "", false
	}
	id, replica, ok = strings.Cut(rest, " ")
	return replica, id, ok
}
