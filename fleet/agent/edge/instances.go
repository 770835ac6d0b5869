package edge

import (
	"context"

	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
)

// This file implements worker.Instances.

// setInstance replaces the Argo CD that the engine is to have. A state that differs from the one
// reported here is newer: a person has resumed the ring, or the hub has lost a report.
func (f *Follower) setInstance(sent *agent.Instance) {
	f.mu.Lock()
	was := f.instance
	f.instance = sent
	f.mu.Unlock()
	if sent == nil || was == nil || *sent != *was {
		f.Outbox.forgetInstance()
	}
	call(f.Wake)
}

// WantedInstance returns the Argo CD that the engine is to have; false if it is not managed, or if
// the hub has not sent it yet.
func (f *Follower) WantedInstance(_ context.Context, lease mirror.Lease) (i mirror.Instance,
	managed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.validLocked(lease) {
		return i, false, mirror.ErrFenced
	}
	if f.instance == nil {
		return i, false, nil
	}
	return mirror.Instance{Engine: f.mirror.engine, Version: f.instance.Version,
		Digest: f.instance.Digest, State: f.instance.State, Message: f.instance.Message,
		Since: f.instance.Since, AgentVersion: f.instance.AgentVersion,
		AgentDigest: f.instance.AgentDigest}, true, nil
}

// WantedAgent returns the version of the agent that its ring brings; false if the agent stays as it
// is, or if the hub has not sent it yet.
func (f *Follower) WantedAgent() (version string, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.instance == nil || f.instance.AgentDigest == "" {
		return "", false
	}
	return f.instance.AgentVersion, true
}

// Manifests asks the hub for the files of a version, and checks them against the digest.
func (f *Follower) Manifests(ctx context.Context, digest string) (mirror.RingManifests, error) {
	return f.Client.Manifests(ctx, digest)
}

// ReportInstance queues how far the Argo CD has come. During a hold of the cluster's admin, the
// hold is the reason.
func (f *Follower) ReportInstance(_ context.Context, lease mirror.Lease, release string,
	state mirror.InstanceState, why string) error {
	if state == mirror.InstanceInstalling && f.Local != nil {
		if hold := f.Local().Hold; hold != "" {
			why = hold
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := f.instance; i != nil && state == mirror.InstanceRunning && i.AgentDigest != "" &&
		f.Upgrader == nil {
		why = "its agent stays as it is, because it may not replace itself (selfUpgrade of the " +
			"chart argosy-agent)"
	}
	switch {
	case !f.validLocked(lease):
		return mirror.ErrFenced
	case f.instance == nil || f.instance.Release() != release ||
		f.instance.State == mirror.InstanceReleasing:
		return nil // the hub has sent another one
	}
	now := *f.instance
	now.State, now.Message = state, why
	f.instance = &now
	f.Outbox.reportInstance(agent.InstanceReport{Release: release, State: state, Message: why})
	return nil
}

// Upgrade implements worker.Upgrader.
func (f *Follower) Upgrade(ctx context.Context, wanted mirror.Instance) (string, error) {
	if f.Upgrader == nil || wanted.AgentDigest == "" {
		return "", nil
	}
	return f.Upgrader(ctx, wanted)
}

// ForgetInstance queues that the Argo CD was given back.
func (f *Follower) ForgetInstance(_ context.Context, lease mirror.Lease) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.validLocked(lease) {
		return mirror.ErrFenced
	}
	f.instance = nil
	f.Outbox.reportInstance(agent.InstanceReport{State: mirror.InstanceReleasing, Released: true})
	return nil
}

// Manifests returns the manifests of a version of Argo CD. A response with other files than those
// of the digest is an error.
func (c *Client) Manifests(ctx context.Context, digest string) (mirror.RingManifests, error) {
	var got agent.Manifests
	if err := c.post(ctx, agent.PathManifests, agent.ManifestsRequest{Digest: digest},
		&got); err != nil {
		return mirror.RingManifests{}, err
	}
	return mirror.UnpackManifests(got.Version, digest, got.Packed)
}
