package api

import (
	"net/http"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/agent"
)

// describeProtocol adds the agents' requests to the document. The hub serves them on the same
// address, not this package: its credentials, limits and deadlines differ.
func (s *Server) describeProtocol() {
	for _, op := range protocol() {
		s.describe(op)
	}
}

// protocolRequest is one request of the agents' protocol.
type protocolRequest struct {
	method, path, id, summary string
	open                      bool // needs no access token
	in, out                   reflect.Type
	inType, outType           string // of the content, if not JSON
	status                    int
}

func protocol() []protocolRequest {
	joined := reflect.TypeFor[agent.Joined]()
	return []protocolRequest{
		{method: http.MethodPost, path: agent.PathJoin, id: "agent-join", open: true,
			in: reflect.TypeFor[agent.Join](), out: joined, status: http.StatusOK,
			summary: "Exchange a one-time token and public keys for an identity that is bound to " +
				"the keys; the header DPoP has their proof"},
		{method: http.MethodPost, path: agent.PathToken, id: "agent-token", open: true,
			in: reflect.TypeFor[assertion](), inType: "application/x-www-form-urlencoded",
			out: reflect.TypeFor[agent.Access](), status: http.StatusOK,
			summary: "Exchange a client assertion (RFC 7523) for an access token that is valid " +
				"with the key only"},
		{method: http.MethodPost, path: agent.PathKeys, id: "agent-keys",
			in: reflect.TypeFor[agent.Rotate](), out: joined, status: http.StatusOK,
			summary: "Replace the agent's keys, which prolongs its identity"},
		{method: http.MethodGet, path: agent.PathSnapshot, id: "agent-snapshot",
			out: reflect.TypeFor[agent.Snapshot](), status: http.StatusOK,
			summary: "Every row of the agent's engine at one moment. The engine is determined by " +
				"the credential alone"},
		{method: http.MethodGet, path: agent.PathStream, id: "agent-stream",
			outType: "text/event-stream", status: http.StatusOK,
			summary: "Changes after the cursor in Last-Event-ID, as they happen: hello, " +
				"rows, again, syncs, stops, bye"},
		{method: http.MethodPost, path: agent.PathStatus, id: "agent-status",
			in: reflect.TypeFor[agent.Report](), status: http.StatusNoContent,
			summary: "Applied rows and the cluster's status, numbered; at most " +
				strconv.Itoa(agent.MaxReport>>20) + " MiB and " + strconv.Itoa(agent.MaxItems) +
				" items of each kind"},
		{method: http.MethodGet, path: agent.PathProbe, id: "agent-probe", open: true,
			outType: "text/event-stream", status: http.StatusOK,
			summary: "A stream of " + agent.ProbeGap.String() +
				" without authentication: the arrival of its two comments shows buffering proxies on " +
				"the way before an agent joins"},
	}
}

// assertion is the form of PathToken.
type assertion struct {
	GrantType     string `json:"grant_type" enum:"client_credentials"`
	AssertionType string `json:"client_assertion_type" enum:"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"`
	Assertion     string `json:"client_assertion" doc:"JWT, EdDSA, iss and sub the agent's ID, aud the control plane's public URL, at most 60 s old"`
}

func (s *Server) describe(sp protocolRequest) {
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
