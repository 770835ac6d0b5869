package mirror

import (
	"strings"

	"argosy.dev/argosy/fleet"
)

// What replicas tell each other through the store. A notice only says "look"; one that is lost is
// made up for by polling. The empty notice, and every one that is not known, says that anything may
// have changed.
const (
	NoticeStops = "stops" // an emergency stop was set or ended
	// something waits for an agent, such as a sync that a tenant has asked for
	NoticeAgents = "agents"

	noticeRecorded = "recorded"
	noticePushed   = "pushed"
	maxNotice      = 7000 // bytes; the store takes 8000
)

// NoticeRecorded says who has recorded a revision, and for which engines there is something; nil
// engines: for any.
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

// Recorded reads a notice of NoticeRecorded; false of any other.
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

// NoticePushed tells every replica that the branch may have moved. The replica by woke its own loop.
func NoticePushed(by string) string { return noticePushed + " " + by }

// Pushed parses a notice of NoticePushed; false for any other.
func Pushed(notice string) (by string, ok bool) {
	return strings.CutPrefix(notice, noticePushed+" ")
}
