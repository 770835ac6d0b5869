package agentruntime

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"argosy.dev/argosy/fleet/agent/edge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/fleet/printable"
)

// A process of another image may be ready and then open no session: the control plane does not
// accept its session, or it does not finish its snapshot. Nothing else works on the cluster then.
// So the new process has to prove a session, or returns the image itself (ADR 0075). The record is
// in the annotations of the Deployment, because the process may end and start again meanwhile.
const (
	annotationPrevious = "argosy.dev/previous-image" // before the last upgrade
	annotationUpgrade  = "argosy.dev/upgrade"        // that the new process has not proven yet
	annotationBegan    = "argosy.dev/upgrade-began"  // when the new process got its turn
	annotationFailed   = "argosy.dev/upgrade-failed" // the last upgrade that was undone
	annotationFailure  = "argosy.dev/upgrade-failure"
)

// EnvUpgrade is the variable of the Pod that names the upgrade which has brought its image.
const EnvUpgrade = "ARGOSY_AGENT_UPGRADE"

// SessionWithin is the default of Config.SessionWithin.
const SessionWithin = 5 * time.Minute

const (
	trialPoll    = 2 * time.Second
	trialTimeout = 10 * time.Second // of a last step when the process ends
	maxFailure   = 400              // bytes of a reason
)

// upgradeID identifies an attempt to upgrade the agent. A person who resumes the ring begins
// another one. It is "" for a control plane that does not send the time of the attempt.
func upgradeID(wanted mirror.Instance) string {
	if wanted.Since.IsZero() {
		return ""
	}
	return wanted.AgentDigest + "@" + wanted.Since.UTC().Format(time.RFC3339Nano)
}

// try waits until this process has proven the upgrade that has brought its image, or has returned
// the image.
func (a *Agent) try(ctx context.Context) {
	logged := ""
	for a.c.Upgrade != "" {
		ended, err := a.trialStep(ctx)
		switch {
		case ended || ctx.Err() != nil:
			return
		case err != nil && err.Error() != logged:
			logged = err.Error()
			a.log.Warn("failed to record whether the upgrade of the agent works", "error", err)
		}
		if !pacing.Sleep(ctx, trialPoll) {
			return
		}
	}
}

// tryLast takes a step when the process ends for another reason than the end of its Pod.
func (a *Agent) tryLast(ctx context.Context) {
	if a.c.Upgrade == "" || ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	if _, err := a.trialStep(ctx); err != nil {
		a.log.Warn("failed to record whether the upgrade of the agent works", "error", err)
	}
}

// trialStep reports whether the upgrade is proven or undone.
func (a *Agent) trialStep(ctx context.Context) (ended bool, err error) {
	d, err := a.kube.AppsV1().Deployments(a.c.Namespace).Get(ctx, edge.Name, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	if d.Annotations[annotationUpgrade] != a.c.Upgrade {
		return true, nil
	}
	began, err := time.Parse(time.RFC3339, d.Annotations[annotationBegan])
	switch {
	case a.follower.Outbox.HasReported():
		err := a.annotate(ctx, d, map[string]any{annotationUpgrade: nil, annotationBegan: nil})
		if err == nil {
			a.log.Info("the upgrade of the agent works", "version", a.c.Version)
		}
		return err == nil, err
	case err != nil && !a.isElected():
		return false, nil // the old process works
	case err != nil:
		return false, a.annotate(ctx, d, map[string]any{
			annotationBegan: time.Now().UTC().Format(time.RFC3339)})
	case time.Since(began) >= a.c.SessionWithin:
		return a.undo(ctx, d)
	}
	return false, nil
}

func (a *Agent) isElected() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.elected
}

// annotate changes annotations of the Deployment, and nothing if that has changed meanwhile.
func (a *Agent) annotate(ctx context.Context, d *appsv1.Deployment,
	annotations map[string]any) error {
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": d.ResourceVersion, "annotations": annotations}})
	if err != nil {
		return err
	}
	_, err = a.kube.AppsV1().Deployments(a.c.Namespace).Patch(ctx, edge.Name, types.MergePatchType,
		text, metav1.PatchOptions{FieldManager: edge.Name})
	return err
}

// undo returns the image. The process of the image before reports the reason.
func (a *Agent) undo(ctx context.Context, d *appsv1.Deployment) (ended bool, err error) {
	image, err := agentImage(d)
	if err != nil {
		return false, err
	}
	digest, _, _ := strings.Cut(a.c.Upgrade, "@")
	previous := d.Annotations[annotationPrevious]
	if previous == "" || !strings.HasSuffix(image, "@"+digest) {
		return true, nil // another image since, by Helm or a person
	}
	why := fmt.Sprintf("its agent with the image %s, version %s, proved no session with the "+
		"control plane within %s (%s) and has returned the image %s", image, a.c.Version,
		a.c.SessionWithin, a.follower.Problem(), previous)
	a.log.Error("the agent returns its own image", "reason", why)
	err = a.changeImage(ctx, imageChange{version: d.ResourceVersion, to: previous,
		failed: a.c.Upgrade, failure: printable.Truncate(why, maxFailure)})
	return err == nil, err
}
