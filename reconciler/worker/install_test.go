package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/engine/enginetest"
	"argosy.dev/argosy/fleet/mirror"
)

// instanceRows is a store with the instance that the engine is to have.
type instanceRows struct {
	reports
	mu      sync.Mutex
	managed bool
	wanted  mirror.Instance
	reads   int // of manifests
	log     []string
}

func (r *instanceRows) WantedInstance(context.Context, mirror.Lease) (mirror.Instance, bool,
	error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wanted, r.managed, nil
}

func (r *instanceRows) Manifests(_ context.Context, digest string) (mirror.RingManifests, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads++
	return mirror.RingManifests{Version: r.wanted.Version, Digest: digest}, nil
}

func (r *instanceRows) ReportInstance(_ context.Context, _ mirror.Lease, release string,
	state mirror.InstanceState, why string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if release == r.wanted.Release() {
		r.wanted.State, r.wanted.Message = state, why
		r.log = append(r.log, fmt.Sprintf("%s %s", state, why))
	}
	return nil
}

func (r *instanceRows) ReportSize(_ context.Context, _ mirror.Lease, size string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wanted.Size = size
	r.log = append(r.log, "size "+size)
	return nil
}

func (r *instanceRows) ForgetInstance(context.Context, mirror.Lease) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.managed = false
	r.log = append(r.log, "forgotten")
	return nil
}

func (r *instanceRows) want(state mirror.InstanceState, digest string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wanted.State, r.wanted.Digest, r.wanted.Version = state, digest, "of "+digest
	r.wanted.Message = ""
}

// wrote returns the reports since the last call.
func (r *instanceRows) wrote() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	log := r.log
	r.log = nil
	return log
}

// installedEngine has what each step of an installation returns; without one, it is done.
type installedEngine struct {
	probedEngine
	outcomes []any // reasons and errors, in their order
	calls    []string
}

func (e *installedEngine) call(what string) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, what)
	if len(e.outcomes) == 0 {
		return "", nil
	}
	next := e.outcomes[0]
	e.outcomes = e.outcomes[1:]
	if err, failed := next.(error); failed {
		return "", err
	}
	return next.(string), nil
}

func (e *installedEngine) Install(_ context.Context, m mirror.RingManifests, _ int64) (string,
	error) {
	return e.call("install " + m.Digest)
}

func (e *installedEngine) Uninstall(context.Context, int64) (string, error) {
	return e.call("uninstall")
}

func (e *installedEngine) Release(context.Context, int64) error {
	_, err := e.call("release")
	return err
}

func (e *installedEngine) InstalledEpoch(context.Context) (int64, error) { return 0, nil }

// did returns the calls since the last one.
func (e *installedEngine) did() []string {
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	calls := e.calls
	e.calls = nil
	return calls
}

// installing runs the installer of a session in a bubble.
func installing(t *testing.T, test func(rows *instanceRows, target *installedEngine)) {
	t.Helper()
	installingSized(t, nil, func(r *instanceRows) Rows { return r }, test)
}

func installingSized(t *testing.T, size *fleet.InstanceSize, store func(*instanceRows) Rows,
	test func(rows *instanceRows, target *installedEngine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := workOn(t, enginetest.NewServer(), 0, 24*time.Hour)
		rows, target := &instanceRows{managed: true}, &installedEngine{}
		target.Engine = s.target
		s.connection.target, s.Rows, s.Poll = hiding{target}, store(rows), 10*time.Second
		s.Spec.ArgoCD.Managed, s.Spec.ArgoCD.Size = true, size
		rows.want(mirror.InstanceInstalling, "one")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- (&installer{connection: s.connection}).run(ctx) }()
		test(rows, target)
		cancel()
		<-ended
	})
}

func equal(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

const unanswered = "Installing its application-controller has not answered the probe yet"

func TestAnInstanceRunsOnceItsControllerHasAnswered(t *testing.T) {
	installing(t, func(rows *instanceRows, target *installedEngine) {
		target.mu.Lock()
		target.outcomes, target.stuck = []any{"Pod 0 is pending", errors.New("away")}, true
		target.mu.Unlock()
		time.Sleep(30 * time.Second)
		equal(t, "reports", rows.wrote(), "Installing Pod 0 is pending", "Installing away",
			unanswered)
		target.set(false, false)
		time.Sleep(10 * time.Second)
		equal(t, "reports", rows.wrote(), "Running ")
		if rows.reads != 1 {
			t.Errorf("the manifests were read %d times", rows.reads)
		}
		rows.want(mirror.InstanceInstalling, "two")
		time.Sleep(20 * time.Second)
		equal(t, "reports on the next version", rows.wrote(), unanswered, "Running ")
		if calls := target.did(); calls[len(calls)-1] != "install two" || rows.reads != 2 {
			t.Errorf("calls %q, %d reads", calls, rows.reads)
		}
	})
}

// A Pod that ends later is no reason to begin again: the probe reports it.
func TestARunningInstanceIsComparedEveryFiveMinutes(t *testing.T) {
	installing(t, func(rows *instanceRows, target *installedEngine) {
		time.Sleep(30 * time.Second)
		rows.wrote()
		target.did()
		target.mu.Lock()
		target.outcomes = []any{"Pod 0 is pending", errors.New("away")}
		target.mu.Unlock()
		time.Sleep(21 * time.Minute)
		// the one that failed is repeated at once
		equal(t, "comparisons", target.did(), "install one", "install one", "install one",
			"install one", "install one")
		equal(t, "reports", rows.wrote(), "Running away", "Running ")
	})
}

// A change of size is followed until the Pods have it, also of an instance that runs, and of one
// behind an agent, which does not report it.
func TestASizeIsFollowedUntilThePodsHaveIt(t *testing.T) {
	for name, c := range map[string]struct {
		store func(*instanceRows) Rows
		want  []string
	}{
		"reported": {func(r *instanceRows) Rows { return r }, []string{
			"Running Pod 0 has not ended", "Running Pod 1 is pending", "size 2 shards",
			"Running "}},
		"behind an agent": {func(r *instanceRows) Rows {
			return struct {
				*reports
				Instances
			}{&r.reports, r}
		}, []string{"Running Pod 0 has not ended", "Running Pod 1 is pending", "Running "}},
	} {
		t.Run(name, func(t *testing.T) {
			installingSized(t, &fleet.InstanceSize{Shards: 2}, c.store,
				func(rows *instanceRows, target *installedEngine) {
					rows.want(mirror.InstanceRunning, "one")
					target.mu.Lock()
					target.outcomes = []any{"Pod 0 has not ended", "Pod 1 is pending"}
					target.mu.Unlock()
					time.Sleep(11 * time.Second)
					equal(t, "reports", rows.wrote(), c.want...)
					target.did()
					time.Sleep(4 * time.Minute)
					equal(t, "steps at rest", target.did())
				})
		})
	}
}

func TestARefusedInstanceWaitsForAPerson(t *testing.T) {
	installing(t, func(rows *instanceRows, target *installedEngine) {
		target.mu.Lock()
		target.outcomes = []any{fmt.Errorf("%w: no right", engine.ErrRefused)}
		target.mu.Unlock()
		time.Sleep(time.Hour)
		equal(t, "steps", target.did(), "install one")
		equal(t, "reports", rows.wrote(), "Refused "+engine.ErrRefused.Error()+": no right")
		rows.want(mirror.InstanceInstalling, "one") // a person resumes the ring
		time.Sleep(time.Minute)
		equal(t, "reports", rows.wrote(), unanswered, "Running ")
	})
}

func TestAnInstanceIsGivenBackOrRemovedOnce(t *testing.T) {
	for state, want := range map[mirror.InstanceState][]string{
		mirror.InstanceReleasing: {"release", "release"},
		mirror.InstanceRemoving:  {"uninstall", "uninstall", "uninstall"},
	} {
		installing(t, func(rows *instanceRows, target *installedEngine) {
			time.Sleep(30 * time.Second)
			rows.wrote()
			target.did()
			target.mu.Lock()
			target.outcomes = []any{errors.New("away")}
			if state == mirror.InstanceRemoving {
				target.outcomes = append(target.outcomes, "an Application is left")
			}
			target.mu.Unlock()
			rows.want(state, "one")
			time.Sleep(time.Hour)
			equal(t, string(state), target.did(), want...)
			if log := rows.wrote(); len(log) == 0 || log[len(log)-1] != "forgotten" {
				t.Errorf("%s: %q", state, log)
			}
		})
	}
}
