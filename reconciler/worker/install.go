package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/lease"
)

// Instances is a store that knows the Argo CDs of managed engines (ADR 0071). The methods carry the
// lease of the engine.
type Instances interface {
	// WantedInstance returns the instance to bring about; false if the engine is not managed.
	WantedInstance(ctx context.Context, lease mirror.Lease) (mirror.Instance, bool, error)
	// Manifests returns the files of a version.
	Manifests(ctx context.Context, digest string) (mirror.RingManifests, error)
	// ReportInstance records how far the engine has come with a release: see Instance.Release.
	ReportInstance(ctx context.Context, lease mirror.Lease, release string,
		state mirror.InstanceState, why string) error
	// ForgetInstance records that the instance is given back.
	ForgetInstance(ctx context.Context, lease mirror.Lease) error
}

// Sizes is a store that knows the sizes of instances (ADR 0080). An agent reports none.
type Sizes interface {
	// ReportSize records what the Pods have: see mirror.Instance.Size.
	ReportSize(ctx context.Context, lease mirror.Lease, size string) error
}

// Upgrader is a store in an agent, which replaces the agent's own process by another version.
type Upgrader interface {
	// Upgrade takes a step towards the agent that the engine is to have. It returns the reason why
	// it has to be repeated, or "" once this process is of that version. engine.ErrRefused: a
	// person has to fix something first.
	Upgrade(ctx context.Context, wanted mirror.Instance) (waits string, err error)
}

// installer brings the engine's Argo CD to the version of its ring and corrects drift. It begins
// with the session: before the first installation, the engine cannot be read.
type installer struct {
	*connection
	manifests mirror.RingManifests // of the last step
	applied   time.Time            // the last step that left nothing to do
	asked     time.Time            // a refresh of the probe since the Pods are ready
	sized     string               // what the Pods have since that step
}

const (
	installEvery = 5 * time.Second // between two steps of a change
	driftEvery   = 5 * time.Minute // between two comparisons of an instance that runs
	// between two questions for work, of an engine that is not managed
	wantedEvery = 30 * time.Second
)

// run takes steps until ctx ends.
func (i *installer) run(ctx context.Context) error {
	store, ok := i.Rows.(Instances)
	target, is := engine.As[engine.Installer](i.target)
	_, agent := i.Rows.(Upgrader)
	if !ok || !is || i.Evacuated || i.Engine.OfEnvironment() && !agent {
		return nil
	}
	for {
		pause, err := i.step(ctx, store, target)
		if err != nil && !i.retryable(ctx, err) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(min(pause, i.Poll)):
		}
	}
}

// step takes the next step and returns the pause until another one.
func (i *installer) step(ctx context.Context, store Instances, target engine.Installer) (
	time.Duration, error) {
	if !i.lease.Valid() {
		return installEvery, nil
	}
	wanted, ok, err := store.WantedInstance(ctx, i.lease.Lease())
	switch {
	case err != nil || !ok:
		return wantedEvery, err
	case wanted.State == mirror.InstanceReleasing:
		return installEvery, i.release(ctx, store, target)
	case wanted.State == mirror.InstanceRemoving:
		return installEvery, i.uninstall(ctx, store, target, wanted)
	case !wanted.AgentOnly() && !i.Spec.ArgoCD.Managed:
		return installEvery, nil // the leader releases it
	case wanted.AgentOnly() && wanted.State != mirror.InstanceInstalling:
		return installEvery, nil
	case wanted.State == mirror.InstanceRefused:
		return wantedEvery, nil // until a person resumes the ring, or Git declares another version
	case wanted.State == mirror.InstanceRunning && wanted.Digest == i.manifests.Digest &&
		time.Since(i.applied) < min(driftEvery, 30*i.Poll):
		return installEvery, nil
	}
	state, why := i.install(ctx, store, target, wanted)
	if state == "" || state == wanted.State && why == wanted.Message {
		return installEvery, nil
	}
	i.Log.Info("Argo CD or agent of a ring", "engine", i.Engine, "version", wanted.Version,
		"agent", wanted.AgentVersion, "state", state, "reason", why)
	return installEvery, store.ReportInstance(ctx, i.lease.Lease(), wanted.Release(), state,
		short(why))
}

func (i *installer) release(ctx context.Context, store Instances, target engine.Installer) error {
	writing, end := i.lease.Writing(ctx)
	defer end()
	if err := target.Release(writing, i.lease.Lease().Epoch); err != nil {
		return err
	}
	return store.ForgetInstance(ctx, i.lease.Lease())
}

// uninstall removes the instance of a pool that does not need it any more.
func (i *installer) uninstall(ctx context.Context, store Instances, target engine.Installer,
	wanted mirror.Instance) error {
	writing, end := i.lease.Writing(ctx)
	defer end()
	waits, err := target.Uninstall(writing, i.lease.Lease().Epoch)
	switch {
	case ctx.Err() != nil || !i.lease.Valid():
		return err
	case err != nil:
		waits = err.Error()
	case waits == "":
		i.manifests = mirror.RingManifests{}
		return store.ForgetInstance(ctx, i.lease.Lease())
	}
	if waits == wanted.Message {
		return nil
	}
	i.Log.Info("the Argo CD of an instance is being removed", "engine", i.Engine, "reason", waits)
	return store.ReportInstance(ctx, i.lease.Lease(), wanted.Digest, wanted.State, short(waits))
}

// install returns the state of the instance after one more step, and the reason.
func (i *installer) install(ctx context.Context, store Instances, target engine.Installer,
	wanted mirror.Instance) (mirror.InstanceState, string) {
	if upgrader, ok := store.(Upgrader); ok && wanted.State == mirror.InstanceInstalling {
		switch waits, err := upgrader.Upgrade(ctx, wanted); {
		case err != nil:
			return i.failed(ctx, wanted, err)
		case waits != "":
			return mirror.InstanceInstalling, waits
		}
	}
	if wanted.AgentOnly() {
		return mirror.InstanceRunning, ""
	}
	if i.manifests.Digest != wanted.Digest {
		m, err := store.Manifests(ctx, wanted.Digest)
		if err != nil {
			return i.failed(ctx, wanted, fmt.Errorf("read the manifests: %w", err))
		}
		i.manifests, i.asked = m, time.Time{}
	}
	writing, end := i.lease.Writing(ctx)
	defer end()
	waits, err := target.Install(writing, i.manifests, i.lease.Lease().Epoch)
	switch {
	case err != nil:
		return i.failed(ctx, wanted, err)
	case waits != "" && wanted.State == mirror.InstanceRunning && i.size() != i.sized:
		return wanted.State, waits
	case waits != "" && wanted.State == mirror.InstanceRunning:
		i.applied = time.Now()
		return wanted.State, wanted.Message // the probe reports an instance that ends later
	case waits != "":
		i.asked = time.Time{}
		return mirror.InstanceInstalling, waits
	}
	if wanted.State != mirror.InstanceRunning {
		if why, err := i.probe(writing); err != nil || why != "" {
			if err != nil {
				return i.failed(ctx, wanted, err)
			}
			return mirror.InstanceInstalling, why
		}
	}
	i.sized = i.size()
	if sizes, ok := store.(Sizes); ok && i.size() != wanted.Size {
		if err := sizes.ReportSize(ctx, i.lease.Lease(), i.size()); err != nil {
			return i.failed(ctx, wanted, fmt.Errorf("report the size: %w", err))
		}
	}
	i.applied = time.Now()
	return mirror.InstanceRunning, ""
}

// size is what the Pods are to have, as text; "" if Argosy sets no size.
func (i *installer) size() string {
	if i.Spec.ArgoCD.Size == nil {
		return ""
	}
	return i.Spec.ArgoCD.Size.String()
}

// probe asks the application-controller of the new Pods for a refresh, and returns what is missing
// until it has answered.
func (i *installer) probe(ctx context.Context) (string, error) {
	target, ok := engine.As[engine.Prober](i.target)
	if !ok {
		return "", nil
	}
	const waits = "its application-controller has not answered the probe yet"
	if i.asked.IsZero() {
		// the instance has what it lacked before
		if err := i.preflight(ctx, i.lease, i.target); err != nil {
			return "", err
		}
		if err := target.RequestProbe(ctx); err != nil {
			return "", err
		}
		i.asked = time.Now()
		return waits, nil
	}
	left, err := target.Probed(ctx)
	if errors.Is(err, engine.ErrNoProbe) {
		i.asked = time.Time{}
		return waits, nil
	}
	if err != nil || left == "" {
		return "", err
	}
	if time.Since(i.asked) > time.Minute { // a former controller may have taken the question
		i.asked = time.Time{}
	}
	return waits, nil
}

// failed returns the state after a failed step. Only what a person has to fix ends a change.
func (i *installer) failed(ctx context.Context, wanted mirror.Instance, err error) (
	mirror.InstanceState, string) {
	switch {
	case ctx.Err() != nil || !i.lease.Valid():
		return "", ""
	case wanted.State == mirror.InstanceRunning:
		i.Log.Warn("failed to compare the Argo CD of a managed engine", "engine", i.Engine, "error",
			err)
		return wanted.State, err.Error()
	case errors.Is(err, engine.ErrRefused):
		return mirror.InstanceRefused, err.Error()
	}
	return wanted.State, err.Error()
}

// raiseInstalled moves the epoch above that of the last writer of a managed instance: the database
// may have lost it.
func (w *Worker) raiseInstalled(ctx context.Context, held *lease.Held, on engine.Engine) error {
	target, ok := engine.As[engine.Installer](on)
	if !ok || !w.Spec.ArgoCD.Managed || w.Evacuated {
		return nil
	}
	highest, err := target.InstalledEpoch(ctx)
	if err != nil { // then the first step of the installer fails too, and reports it
		w.Log.Warn("failed to read the last writer of an instance", "engine", w.Engine,
			"error", err)
	}
	if highest == 0 {
		return nil
	}
	// an equal epoch of this database is that of the present holder
	return held.Raise(ctx, w.Leases, min(highest, maxEpoch), func(mirror.Lease) bool {
		return true
	})
}
