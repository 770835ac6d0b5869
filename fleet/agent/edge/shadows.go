package edge

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
)

// This file implements worker.Shadows (ADR 0082).

// setShadow replaces the comparison that the agent has to make. A state that differs from the one
// reported here is newer: an Application is not compared yet, or the hub has lost a report.
func (f *Follower) setShadow(sent *agent.Shadow) {
	f.mu.Lock()
	f.shadow = sent
	f.mu.Unlock()
	call(f.Wake)
}

// WantedShadow returns the comparison that the agent has to make; false if there is none. Without a
// session nothing is compared: the hub cannot name the Applications.
func (f *Follower) WantedShadow(_ context.Context, lease mirror.Lease) (w mirror.Shadow, ok bool,
	err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.validLocked(lease) {
		return w, false, mirror.ErrFenced
	}
	if f.shadow == nil || !f.Outbox.isOpen() {
		return w, false, nil
	}
	return mirror.Shadow{Engine: f.mirror.engine, Version: f.shadow.Version,
		Digest: f.shadow.Digest, State: f.shadow.State, Message: f.shadow.Message}, true, nil
}

// ShadowTasks asks the hub for the next Applications to compare.
func (f *Follower) ShadowTasks(ctx context.Context, lease mirror.Lease, digest, basis,
	after string, limit int) ([]mirror.ShadowTask, error) {
	if err := f.checkLease(lease); err != nil {
		return nil, err
	}
	return f.Client.comparisons(ctx, agent.ComparisonsRequest{Digest: digest, Basis: basis,
		After: after}, limit)
}

// acceptWithin bounds the wait for the hub to accept comparisons.
const acceptWithin = time.Minute

var errNotAccepted = errors.New("the hub has not accepted the comparisons yet")

// RecordShadow queues comparisons and waits until the hub has accepted them, so that at most one
// batch is in memory, and no report of a complete comparison precedes it.
func (f *Follower) RecordShadow(ctx context.Context, lease mirror.Lease, digest string,
	results []mirror.ShadowResult) error {
	if err := f.checkLease(lease); err != nil {
		return err
	}
	all := make([]agent.Comparison, len(results))
	for i, r := range results {
		all[i] = bounded(agent.Comparison{Digest: digest, Name: r.Name, Inputs: r.Inputs,
			Revision: cut(r.Revision), Unrendered: cut(r.Unrendered), Error: cut(r.Error),
			Hash: r.Hash, Resources: r.Resources, MoreResources: r.MoreResources})
	}
	f.Outbox.reportComparisons(all)
	ctx, cancel := context.WithTimeoutCause(ctx, acceptWithin, errNotAccepted)
	defer cancel()
	return f.Outbox.awaitAccepted(ctx, listComparisons)
}

// ReportShadow queues how far the comparison has come. During a hold of the cluster's admin, the
// hold is the reason why it does not go on.
func (f *Follower) ReportShadow(_ context.Context, lease mirror.Lease, digest string,
	state mirror.ShadowState, why string) error {
	if state == mirror.ShadowFailed && f.Local != nil {
		if hold := f.Local().Hold; hold != "" {
			state, why = mirror.ShadowRendering, hold
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !f.validLocked(lease):
		return mirror.ErrFenced
	case f.shadow == nil || f.shadow.Digest != digest,
		(f.shadow.State == mirror.ShadowEnding) != (state == mirror.ShadowEnded):
		return nil // the hub has sent another one
	}
	if now := *f.shadow; state == mirror.ShadowEnded {
		f.shadow = nil
	} else {
		now.State, now.Message = state, why
		f.shadow = &now
	}
	f.Outbox.reportShadow(agent.ShadowReport{Digest: digest, State: state, Message: why})
	return nil
}

// bounded shortens a comparison to agent.MaxComparison bytes of JSON: first the fields of each
// resource, then the resources.
func bounded(c agent.Comparison) agent.Comparison {
	for fields := mirror.MaxDifferentFields / 2; tooLarge(c) && fields > 0; fields /= 2 {
		c.Resources = append([]mirror.ResourceDifference{}, c.Resources...)
		for i, r := range c.Resources {
			if more := len(r.Fields) - fields; more > 0 {
				c.Resources[i].Fields = r.Fields[:fields]
				c.Resources[i].MoreFields += more
			}
		}
	}
	for n := len(c.Resources); tooLarge(c) && n > 0; n-- {
		c.Resources = c.Resources[:n-1]
		c.MoreResources++
	}
	return c
}

func tooLarge(c agent.Comparison) bool {
	text, err := json.Marshal(c)
	return err != nil || len(text) > agent.MaxComparison
}

// comparisons returns the next Applications to compare, at most limit.
func (c *Client) comparisons(ctx context.Context, request agent.ComparisonsRequest, limit int) (
	[]mirror.ShadowTask, error) {
	var got agent.ComparisonTasks
	if err := c.post(ctx, agent.PathComparisons, request, &got); err != nil {
		return nil, err
	}
	tasks := make([]mirror.ShadowTask, min(limit, len(got.Tasks)))
	for i := range tasks {
		tasks[i] = mirror.ShadowTask{Name: got.Tasks[i].Name, Inputs: got.Tasks[i].Inputs}
	}
	return tasks, nil
}
