package api

import (
	"fmt"
	"net/http"
	"net/url"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

type agentsView struct {
	frame
	Agents []view.Agent
	Next   string
}

func (s *Server) agentsPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	v := agentsView{frame: s.frame("Agents", token)}
	var err error
	v.Agents, v.Next, err = s.agents.Agents(r.Context(), token.Scope(), view.Filter{}, view.Page{
		Limit: manyItems, After: cursor(r.URL.Query().Get("after"))})
	if v.Next != "" {
		v.Next = "?" + url.Values{"after": {v.Next}}.Encode()
	}
	s.show(w, r, token, "agents", "agents", v, err)
}

// agentStatus is the displayed status of one agent.
type agentStatus struct{ Word, Tone, Detail, Message string }

func agentState(now time.Time, a view.Agent) agentStatus {
	s := agentStatus{Word: "away", Tone: "bad", Message: a.Message}
	if a.SeenAt != nil {
		s.Detail = "last seen " + fleet.Age(now.Sub(*a.SeenAt)) + " ago"
	}
	switch {
	case a.ID == "":
		s.Word, s.Tone, s.Detail = "not joined", "none", ""
	case a.Cloned:
		s.Word, s.Detail = "cloned",
			"two processes use one identity, and both are refused; join again on the cluster that you keep"
	case a.RevokedAt != nil:
		s.Word = "revoked"
	case a.ExpiresAt != nil && a.ExpiresAt.Before(now):
		s.Word = "expired"
	case a.Connected:
		s.Word, s.Tone, s.Detail = "connected", "good", ""
	}
	if a.Orphans > 0 && a.ID != "" {
		s.Message = fmt.Sprintf(
			"%s %d orphans on the cluster; Argosy does not touch them", s.Message,
			a.Orphans)
	}
	return s
}
