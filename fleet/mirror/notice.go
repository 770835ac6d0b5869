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

	noticeRecorded = "recorded"
	noticePushed   = "pushed"
	maxNotice      = 7000 // bytes; PostgreSQL accepts 8000
)

// NoticeRecorded is the notification of a recorded revision: its author and the changed engines;
// nil engines: any.
func NoticeRecorded(by string, engines []fleet.EngineName) string {
	words := []string{noticeRecorded, by}
	length := len(noticeRecorded) + len(by) + 1
	for _, e := range engines {
		if length += len(e) + 1; length > maxNotice {
			return strings.Join(words[:2], " ")
		}
		words = append(words, string(e))
	}
	return strings.Join(words, " ")
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

// NoticePushed notifies every replica that the branch may have moved. The replica by woke its own
// loop.
func NoticePushed(by string) string { return noticePushed + " " + by }

// Pushed parses a notice of NoticePushed; false for any other.
func Pushed(notice string) (by string, ok bool) {
	return strings.CutPrefix(notice, noticePushed+" ")
}
