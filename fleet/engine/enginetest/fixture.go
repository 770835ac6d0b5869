package enginetest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
)

// PlainRenderer makes manifests that only the fake understands: this package imports no engine's
// types.
type PlainRenderer struct{}

// Render returns the manifest of an object.
func (PlainRenderer) Render(_ fleet.EngineSpec, o fleet.Object) (fleet.Manifest, error) {
	labels := map[string]string{"app.kubernetes.io/managed-by": "argosy"}
	annotations := map[string]string{"argosy.dev/engine": string(o.Key.Engine)}
	body := map[string]any{"kind": o.Key.Kind, "metadata": map[string]any{
		"name": o.Key.Name, "labels": labels, "annotations": annotations}}
	switch {
	case o.Project != nil:
		labels["argosy.dev/tenant"] = string(o.Project.Tenant)
		body["spec"] = map[string]any{"sourceRepos": o.Project.SourceRepos}
	case o.Cluster != nil:
		labels["argosy.dev/tenant"], labels["argosy.dev/environment"] = string(o.Cluster.ID.Tenant),
			string(o.Cluster.ID.Name)
		body["data"] = map[string]any{"server": o.Cluster.Server}
	case o.Repository != nil:
		labels["argosy.dev/tenant"] = string(o.Repository.ID.Tenant)
		body["data"] = map[string]any{"url": o.Repository.URL}
	case o.Application != nil:
		id := o.Application.ID
		labels["argosy.dev/tenant"], labels["argosy.dev/environment"], labels["argosy.dev/deployment"] = string(id.Tenant), string(id.Environment), string(id.Deployment)
		spec := map[string]any{
			"source": map[string]any{"targetRevision": o.Application.Source.TargetRevision}}
		if o.Application.Sync.Automated {
			spec["syncPolicy"] = map[string]any{"automated": map[string]any{}}
		}
		if o.Application.Hold != "" {
			annotations["argosy.dev/hold"] = string(o.Application.Hold)
		}
		body["spec"] = spec
	}
	b, err := json.Marshal(body)
	if err != nil {
		return fleet.Manifest{}, err
	}
	sum := sha256.Sum256(b)
	return fleet.Manifest{Body: b, Hash: hex.EncodeToString(sum[:])}, nil
}

// NewFixture returns the fake engine eu-1 of the server as a fixture of the conformance suite.
func NewFixture(s *Server) *Fixture {
	f := s.Connect("eu-1")
	f.Pause = 300 * time.Millisecond
	var stopped atomic.Bool
	f.Stopped = func(fleet.TenantName) bool { return stopped.Load() }
	return &Fixture{Name: "eu-1", Engine: f, Render: PlainRenderer{}, External: s,
		Stop:   stopped.Store,
		Reopen: func(*testing.T) *Fixture { return NewFixture(s) }}
}
