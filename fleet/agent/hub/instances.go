package hub

import (
	"context"
	"errors"
	"net/http"
	"regexp"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

// sendInstance sends the Argo CD that the engine is to have, and its shadow, if they differ from
// those sent last. A database that went back in time may have earlier ones: nothing is sent before
// the config repo has confirmed the rows.
func (s *stream) sendInstance() error {
	if !s.sendable(nil) {
		return nil // the confirmation of the rows sends it
	}
	var found registry.Instance
	err := s.read(func(ctx context.Context) (err error) {
		found, err = s.hub.store.AgentInstance(ctx, s.engine())
		return err
	})
	if err != nil || found.Life != s.opening.Lease.Life {
		return err
	}
	switch i := found.Wanted; {
	case i != nil && i.AgentOnly() && s.protocol < agent.ProtocolUpgrade:
		// it stays as it is, and holds nothing
		err = s.explainInstance(i, mirror.InstanceRunning, "its agent stays as it is: version "+
			message(s.version)+" upgrades itself only with a managed Argo CD; upgrade it once by "+
			"hand (docs/agents.md)")
	case s.protocol < agent.ProtocolInstall:
		err = s.explainInstance(i, mirror.InstanceInstalling, "its agent has version "+
			message(s.version)+", which installs no Argo CD; upgrade the agent (docs/agents.md)")
	default:
		var out *agent.Instance
		if i != nil {
			out = &agent.Instance{Version: i.Version, Digest: i.Digest, State: i.State,
				Message: i.Message, Since: i.Since.UTC(), AgentVersion: i.AgentVersion,
				AgentDigest: i.AgentDigest}
		}
		err = s.sendList(agent.EventInstance, out, &s.instances)
	}
	if err != nil {
		return err
	}
	return s.sendShadow(found.Shadow)
}

// explainInstance records for an agent of an earlier version, which ignores the message, why
// nothing changes.
func (s *stream) explainInstance(wanted *mirror.Instance, state mirror.InstanceState,
	why string) error {
	if wanted == nil || wanted.State != mirror.InstanceInstalling || wanted.Message == why {
		return nil
	}
	return s.explain(func(ctx context.Context) error {
		return s.hub.store.ReportInstance(ctx, s.opening.Lease, wanted.Release(), state, why)
	})
}

// explain records what the agent cannot do, unless another process of it has taken over.
func (s *stream) explain(record func(context.Context) error) error {
	err := s.read(record)
	if errors.Is(err, mirror.ErrFenced) {
		return nil
	}
	return err
}

const manifestsRequest = 1 << 10 // bytes

// manifests serves PathManifests. An agent gets the version that its engine is to have.
func (h *Hub) manifests(w http.ResponseWriter, r *http.Request) error {
	who, body, err := h.authenticatePost(w, r, agent.PathManifests, manifestsRequest)
	if err != nil {
		return err
	}
	var asked agent.ManifestsRequest
	if err := decode(body, &asked); err != nil {
		return err
	}
	return h.snapshots.run(r.Context(), func() error {
		var out agent.Manifests
		err := h.withTimeout(r.Context(), h.reads, func(ctx context.Context) (err error) {
			out.Version, out.Packed, err = h.store.AgentManifests(ctx, who.Engine, asked.Digest)
			return err
		})
		if errors.Is(err, mirror.ErrNotFound) {
			return refused(http.StatusNotFound, agent.CodeInvalid,
				"the engine is not to have the manifests of this digest",
				"wait for the next message of the stream")
		}
		if err != nil {
			return err
		}
		return writeJSON(w, out)
	})
}

// releasePattern is an Argo CD, an agent, or both.
var releasePattern = regexp.MustCompile(`^(sha256:[0-9a-f]{64})?(sha256:[0-9a-f]{64}|` +
	fleet.PreviousAgent + `)$`)

// instanceReportOf keeps a report about a possible release, in a state that an agent may report.
func instanceReportOf(r agent.InstanceReport) (agent.InstanceReport, bool) {
	r.Message = message(r.Message)
	switch r.State {
	case mirror.InstanceInstalling, mirror.InstanceRunning, mirror.InstanceRefused:
	case mirror.InstanceReleasing:
		return r, r.Released
	default:
		return r, false
	}
	return r, releasePattern.MatchString(r.Release)
}

// recordInstance records how far an agent has come. The store ignores another release than the one
// that the engine is to have.
func (h *Hub) recordInstance(ctx context.Context, lease mirror.Lease,
	r agent.InstanceReport) error {
	if r.Released {
		return h.store.ForgetInstance(ctx, lease)
	}
	return h.store.ReportInstance(ctx, lease, r.Release, r.State, r.Message)
}
