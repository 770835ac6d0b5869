package api

import (
	"net/http"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/agent"
)

// describeProtocol puts into the document what agents ask, beside what people do. The hub answers
// it, on the same address and not here: its credentials, its limits and its deadlines are others.
func (s *Server) describeProtocol() {
	for _, op := range protocol() {
		s.describe(op)
	}
}

// spoken is one request of the agents' protocol.
type spoken struct {
	method, path, id, summary string
	open                      bool // asked without an access token
	in, out                   reflect.Type
	inType, outType           string // of the content, if not JSON
	status                    int
}

func protocol() []spoken {
	joined := reflect.TypeFor[agent.Joined]()
	return []spoken{
		{method: http.MethodPost, path: agent.PathJoin, id: "agent-join", open: true,
			in: reflect.TypeFor[agent.Join](), out: joined, status: http.StatusOK,
			summary: "Swap a one-time token and public keys for an identity that is bound to " +
				"the keys; the header DPoP proves them"},
		{method: http.MethodPost, path: agent.PathToken, id: "agent-token", open: true,
			in: reflect.TypeFor[assertion](), inType: "application/x-www-form-urlencoded",
			out: reflect.TypeFor[agent.Access](), status: http.StatusOK,
			summary: "Swap a client assertion (RFC 7523) for an access token that is of use " +
				"with the key only"},
		{method: http.MethodPost, path: agent.PathKeys, id: "agent-keys",
			in: reflect.TypeFor[agent.Rotate](), out: joined, status: http.StatusOK,
			summary: "Replace the agent's keys, which prolongs its identity"},
		{method: http.MethodGet, path: agent.PathSnapshot, id: "agent-snapshot",
			out: reflect.TypeFor[agent.Snapshot](), status: http.StatusOK,
			summary: "Every row of the agent's engine at one moment. Whose they are is told by " +
				"the credential alone"},
		{method: http.MethodGet, path: agent.PathStream, id: "agent-stream",
			outType: "text/event-stream", status: http.StatusOK,
			summary: "What changes after the cursor in Last-Event-ID, as it happens: hello, " +
				"rows, again, syncs, stops, bye"},
		{method: http.MethodPost, path: agent.PathStatus, id: "agent-status",
			in: reflect.TypeFor[agent.Report](), status: http.StatusNoContent,
			summary: "What was done and what the cluster shows, numbered; at most " +
				strconv.Itoa(agent.MaxReport>>20) + " MiB and " + strconv.Itoa(agent.MaxItems) +
				" items of each kind"},
		{method: http.MethodGet, path: agent.PathProbe, id: "agent-probe", open: true,
			outType: "text/event-stream", status: http.StatusOK,
			summary: "A stream of " + agent.ProbeGap.String() +
				" for whoever asks: by when its two comments come, what holds streams back on " +
				"the way shows before an agent joins"},
	}
}

// assertion is the form of PathToken.
type assertion struct {
	GrantType     string `json:"grant_type" enum:"client_credentials"`
	AssertionType string `json:"client_assertion_type" enum:"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"`
	Assertion     string `json:"client_assertion" doc:"JWT, EdDSA, iss and sub the agent's ID, aud the control plane's public URL, at most 60 s old"`
}

func (s *Server) describe(sp spoken) {
	document := s.api.OpenAPI()
	schema := func(t reflect.Type) *huma.Schema {
		return document.Components.Schemas.Schema(t, true, "")
	}
	op := &huma.Operation{Method: sp.method, Path: sp.path, OperationID: sp.id, Summary: sp.summary,
		Tags: []string{"agent protocol"}, Responses: map[string]*huma.Response{}}
	if !sp.open {
		op.Security = []map[string][]string{{"agent": {}}}
	}
	if sp.in != nil {
		op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			firstWord(sp.inType, "application/json"): {Schema: schema(sp.in)}}}
	}
	answer := &huma.Response{Description: http.StatusText(sp.status)}
	switch {
	case sp.out != nil:
		answer.Content = map[string]*huma.MediaType{"application/json": {Schema: schema(sp.out)}}
	case sp.outType != "":
		answer.Content = map[string]*huma.MediaType{
			sp.outType: {Schema: &huma.Schema{Type: huma.TypeString}}}
	}
	op.Responses[strconv.Itoa(sp.status)] = answer
	op.Responses["default"] = &huma.Response{Description: "Error, with a code of the protocol",
		Content: map[string]*huma.MediaType{
			"application/problem+json": {Schema: schema(reflect.TypeFor[wire.Refusal]())}}}
	document.AddOperation(op)
}

func firstWord(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}
