package agentruntime

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/edge"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

// A Deployment that replaces its Pod starts the new process while the old one works. Two processes
// with one session would take over from each other, which is how a copied identity shows. So a new
// process proves that it works, is ready, and waits for the Lease that the old one gives back when
// its Pod ends (ADR 0075).
const (
	leaseDuration = time.Minute
	leaseRenewal  = 40 * time.Second
	leaseRetry    = 2 * time.Second
)

var errElsewhere = errors.New("another process of this agent has the Lease " + edge.Name +
	", or the API server did not answer for " + leaseRenewal.String())

// await waits until this process is the one that works. lost is called if it has to end. release
// lets the next process begin.
func (a *Agent) await(ctx context.Context, lost func(error)) (release func(), err error) {
	if err := a.prove(ctx); err != nil {
		return nil, err
	}
	elected := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Name: edge.Name,
			Namespace: a.c.Namespace}, Client: a.kube.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{
				Identity: cmp.Or(os.Getenv("POD_NAME"), rand.Text())}},
		LeaseDuration: leaseDuration, RenewDeadline: leaseRenewal, RetryPeriod: leaseRetry,
		ReleaseOnCancel: true, Name: edge.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(elected) },
			OnStoppedLeading: func() { lost(errElsewhere) }},
	})
	if err != nil {
		return nil, fmt.Errorf("read the Lease %s: %w", edge.Name, err)
	}
	// the Lease outlives ctx, until the work has ended
	holding, end := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() { defer close(done); elector.Run(holding) }()
	release = func() { end(); <-done }
	select {
	case <-elected:
		return release, nil
	case <-ctx.Done():
		release()
		return nil, context.Cause(ctx)
	}
}

// prove waits until the control plane has accepted this process, and makes it ready then.
func (a *Agent) prove(ctx context.Context) error {
	logged := ""
	for {
		err := a.client.Authenticate(ctx)
		var ended *edge.TerminalError
		switch {
		case err == nil:
			a.mu.Lock()
			a.proven = true
			a.mu.Unlock()
			a.log.Info("the agent waits", "for", "the end of the process before it")
			return nil
		case errors.As(err, &ended):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err.Error() != logged:
			logged = err.Error()
			a.log.Info("the agent waits", "for", logged)
		}
		if !pacing.Sleep(ctx, identifyEvery) {
			return context.Cause(ctx)
		}
	}
}

// upgrade takes a step towards the agent that the engine is to have. It changes nothing but the
// image of its own Deployment and the name of the upgrade, and stays in the repository of its
// image.
func (a *Agent) upgrade(ctx context.Context, wanted mirror.Instance) (waits string, err error) {
	hello, _ := a.declared()
	if a.stops.Stopped(hello.Engine)("") {
		return "", engine.ErrStopped
	}
	deployments := a.kube.AppsV1().Deployments(a.c.Namespace)
	d, err := deployments.Get(ctx, edge.Name, metav1.GetOptions{})
	if err != nil {
		return "", upgradeError("read", err)
	}
	image, err := agentImage(d)
	if err != nil {
		return "", err
	}
	if id := upgradeID(wanted); id != "" && d.Annotations[annotationFailed] == id {
		return "", fmt.Errorf("%w: %s", engine.ErrRefused, d.Annotations[annotationFailure])
	}
	previous := d.Annotations[annotationPrevious]
	to := targetImage(image, previous, wanted.AgentDigest)
	if to != image {
		change := imageChange{version: d.ResourceVersion, from: image, to: to,
			upgrade: upgradeID(wanted)}
		if wanted.AgentDigest == fleet.PreviousAgent || to == previous {
			change.from, change.upgrade = "", ""
		}
		if err := a.changeImage(ctx, change); err != nil {
			return "", upgradeError("change the image of", err)
		}
		a.log.Info("the agent changes its own image", "from", image, "to", to)
		return "its agent gets the image " + to, nil
	}
	switch s := d.Status; {
	case s.ObservedGeneration < d.Generation || s.UpdatedReplicas < 1 ||
		s.Replicas != s.UpdatedReplicas || s.ReadyReplicas < 1:
		return fmt.Sprintf("its agent has version %s; the Pod with the image %s is not ready",
			a.c.Version, image), nil
	case wanted.AgentDigest != fleet.PreviousAgent && wanted.AgentVersion != a.c.Version &&
		"v"+wanted.AgentVersion != a.c.Version:
		return fmt.Sprintf("the image %s has version %s, and the ring declares %s", image,
			a.c.Version, wanted.AgentVersion), nil
	}
	return "", nil
}

// upgradeFinding reports that the agent's ring brings a version, and that the agent may not change
// its own image.
func (a *Agent) upgradeFinding(ctx context.Context) (engine.Finding, bool) {
	version, ok := a.follower.WantedAgent()
	if !ok {
		return engine.Finding{}, false
	}
	found := engine.Finding{Code: "self-upgrade",
		Message: fmt.Sprintf("the agent stays at version %s and does not get %s of its ring, "+
			"because it may not replace itself", a.c.Version,
			cmp.Or(version, "the version before")),
		Fix: "the admin of the cluster sets selfUpgrade of the chart argosy-agent " +
			"(--self-upgrade), or upgrades the agent by hand"}
	if !a.c.SelfUpgrade {
		return found, true
	}
	review, err := a.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
		&authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorization.ResourceAttributes{Namespace: a.c.Namespace,
				Verb: "patch", Group: "apps", Resource: "deployments", Name: edge.Name}}},
		metav1.CreateOptions{})
	return found, err == nil && !review.Status.Allowed
}

// targetImage returns the image with a digest in the repository of the present one, or the image
// before.
func targetImage(image, previous, digest string) string {
	if digest == fleet.PreviousAgent {
		return cmp.Or(previous, image)
	}
	repository, _, _ := strings.Cut(image, "@")
	if tag := strings.LastIndex(repository, ":"); tag > strings.LastIndex(repository, "/") {
		repository = repository[:tag]
	}
	return repository + "@" + digest
}

// imageChange is another image of the agent's Deployment.
type imageChange struct {
	version string // of the Deployment: another change meanwhile makes this one fail
	// from is the image to return to, and upgrade the upgrade that the new process has to prove;
	// both are "" if the change is the return.
	from, to, upgrade string
	failed, failure   string // the upgrade that the change undoes, and why
}

func (a *Agent) changeImage(ctx context.Context, c imageChange) error {
	text, err := json.Marshal(c.patch())
	if err != nil {
		return err
	}
	_, err = a.kube.AppsV1().Deployments(a.c.Namespace).Patch(ctx, edge.Name,
		types.StrategicMergePatchType, text, metav1.PatchOptions{FieldManager: edge.Name})
	return err
}

// patch returns a strategic merge patch. It removes what it does not set.
func (c imageChange) patch() map[string]any {
	set := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	upgrade := map[string]any{"name": EnvUpgrade, "value": c.upgrade}
	if c.upgrade == "" {
		upgrade = map[string]any{"name": EnvUpgrade, "$patch": "delete"}
	}
	return map[string]any{
		"metadata": map[string]any{"resourceVersion": c.version, "annotations": map[string]any{
			annotationPrevious: set(c.from), annotationUpgrade: set(c.upgrade),
			annotationBegan: nil, annotationFailed: set(c.failed),
			annotationFailure: set(c.failure)}},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"containers": []map[string]any{{"name": "agent", "image": c.to,
				"env": []map[string]any{upgrade}}}}}}}
}

func agentImage(d *appsv1.Deployment) (string, error) {
	for _, c := range d.Spec.Template.Spec.Containers {
		if c.Name == "agent" {
			return c.Image, nil
		}
	}
	return "", fmt.Errorf("%w: Deployment %s has no container \"agent\"", engine.ErrRefused,
		edge.Name)
}

func upgradeError(doing string, err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		err = fmt.Errorf("%w: %w; set selfUpgrade of the chart argosy-agent, or remove "+
			"--self-upgrade", engine.ErrRefused, err)
	}
	return fmt.Errorf("%s Deployment %s of the agent: %w", doing, edge.Name, err)
}
