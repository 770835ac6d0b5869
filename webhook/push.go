package webhook

import (
	"encoding/json"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
)

// pushPayload is what a push delivery says of who pushed. The sender is an account of the Git host,
// which signed the delivery; a commit's author is whatever its writer typed.
type pushPayload struct {
	Ref        string `json:"ref"`
	Before     string `json:"before"`
	After      string `json:"after"`
	Forced     bool   `json:"forced"`
	Repository *struct {
		ID int64 `json:"id"`
	} `json:"repository"`
	Sender *struct {
		ID    int64  `json:"id"`
		Login string `json:"login"`
	} `json:"sender"`
	Pusher *struct {
		Name  string `json:"name"`  // GitHub
		Login string `json:"login"` // Gitea
	} `json:"pusher"`
}

// PushOf is the push to the branch that a signed delivery tells of, nil when it tells of none. Only
// this very repository is believed. On a push with a deploy key the sender and the pusher differ:
// it is nobody's.
func PushOf(event string, body []byte, branch string, repository int64) *forge.Push {
	var p pushPayload
	if event != "push" || json.Unmarshal(body, &p) != nil {
		return nil
	}
	switch {
	case p.Ref != "refs/heads/"+branch, p.Forced, !commitID.MatchString(p.Before),
		!commitID.MatchString(p.After):
		return nil
	case repository == 0, p.Repository == nil, p.Repository.ID != repository:
		return nil
	case p.Sender == nil, p.Sender.ID <= 0, p.Pusher == nil, p.Pusher.Name != p.Sender.Login &&
		p.Pusher.Login != p.Sender.Login:
		return nil
	}
	return &forge.Push{
		Before: fleet.Revision(p.Before), After: fleet.Revision(p.After),
		By: forge.Person{ID: p.Sender.ID, Login: p.Sender.Login},
	}
}
