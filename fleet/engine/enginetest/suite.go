// Package enginetest is the conformance suite of engine.Engine, and an engine in memory with fault
// injection.
//
// Every implementation passes Run, including the fake, so that a test against the fake is a test
// against the contract.
package enginetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// Fixture is an engine under test, with access that bypasses it.
type Fixture struct {
	Name     fleet.EngineName
	Spec     fleet.EngineSpec
	Engine   engine.Engine // before its first Preflight and Watch
	Render   engine.Renderer
	External ExternalWriter
	Stop     func(stopped bool) // sets the emergency stop that the engine reads
	// connects another control plane to the same engine, as after a restart
	Reopen func(t *testing.T) *Fixture
}

// ExternalWriter is another writer on the engine, which also counts the writes.
type ExternalWriter interface {
	// Exists reports whether the object exists, ours or not.
	Exists(key fleet.ObjectKey) bool
	// Field returns the text of a field such as "spec.project" or
	// "metadata.annotations|argosy.dev/epoch" (the part after | is a single key), or "".
	Field(key fleet.ObjectKey, path string) string
	// Merge sends a JSON merge patch as another manager named "meddler".
	Merge(key fleet.ObjectKey, patch string)
	// Remove deletes the object and its finalizers.
	Remove(key fleet.ObjectKey)
	// CreateForeign creates an object without our labels.
	CreateForeign(key fleet.ObjectKey)
	// Writes counts the writes of the engine under test.
	Writes() int
}

// patience bounds the wait for a condition on a busy machine.
const patience = 20 * time.Second

// harness is a running fixture.
type harness struct {
	*testing.T
	*Fixture
	ctx   context.Context
	lease mirror.Lease

	mu       sync.Mutex
	seen     map[fleet.ObjectKey][]mirror.Observation
	wakes    map[fleet.ObjectKey]int
	contacts map[fleet.ObjectKey]engine.Contact
}

// start runs the preflight and the watch, and waits for the first complete read.
func start(t *testing.T, b *Fixture) *harness {
	t.Helper()
	r := newHarness(t, b)
	r.until("the engine is read completely", b.Engine.Synced)
	return r
}

// newHarness returns a harness before the first complete read.
func newHarness(t *testing.T, b *Fixture) *harness {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &harness{T: t, Fixture: b, ctx: ctx, lease: mirror.Lease{Name: "engine/" + string(b.Name),
		Holder: "test", Epoch: 7, Expires: time.Now().Add(time.Hour)},
		seen: map[fleet.ObjectKey][]mirror.Observation{}, wakes: map[fleet.ObjectKey]int{},
		contacts: map[fleet.ObjectKey]engine.Contact{}}
	report, err := b.Engine.Preflight(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		if f.Blocks {
			t.Fatalf("preflight: %s; %s", f.Message, f.Fix)
		}
	}
	done := make(chan error, 1)
	go func() {
		done <- b.Engine.Watch(
			ctx, engine.Sink{Observe: r.observe, Wake: r.wake, Contact: r.recordContacts})
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Watch ends with %v, not with its context's error", err)
			}
		case <-time.After(patience):
			t.Error("Watch does not end with its context")
		}
	})
	return r
}

func (r *harness) observe(seen []mirror.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range seen {
		r.seen[o.Key] = append(r.seen[o.Key], o)
	}
}

func (r *harness) wake(keys []fleet.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range keys {
		r.wakes[k]++
	}
}

func (r *harness) recordContacts(contacts []engine.Contact) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range contacts {
		r.contacts[c.Key] = c
	}
}

func (r *harness) contact(key fleet.ObjectKey) (engine.Contact, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.contacts[key]
	return c, ok
}

func (r *harness) woken(key fleet.ObjectKey) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wakes[key]
}

// last returns the latest observation of an Application.
func (r *harness) last(key fleet.ObjectKey) (mirror.Observation, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.seen[key]
	if len(all) == 0 {
		return mirror.Observation{}, false
	}
	return all[len(all)-1], true
}

func (r *harness) until(what string, ok func() bool) {
	r.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			r.Fatalf("after %s still not: %s (health: %v)", patience, what, r.Engine.Health())
		}
		<-tick.C
	}
}

func (r *harness) apply(row mirror.Row, secret fleet.Secret) engine.Outcome {
	r.Helper()
	out, err := r.Engine.Apply(r.ctx, row, secret, r.lease)
	if err != nil {
		r.Fatal(err)
	}
	return out
}

// mustApply applies the row and expects a successful write.
func (r *harness) mustApply(row mirror.Row) {
	r.Helper()
	if out := r.apply(row, secretFor(row)); !out.Changed || out.State != mirror.ApplyApplied {
		r.Fatalf("%s %s: %+v, want a write", row.Key.Kind, row.Key.Name, out)
	}
}

// deleteFully calls Delete until it reports absence.
func (r *harness) deleteFully(row mirror.Row) {
	r.Helper()
	r.until("deleted: "+row.Key.Name, func() bool {
		done, err := r.Engine.Delete(r.ctx, row, r.lease)
		if err != nil {
			r.Fatal(err)
		}
		return done
	})
	if r.External.Exists(row.Key) {
		r.Fatalf("%s is reported as deleted and exists", row.Key.Name)
	}
}

// writes counts the writes of f.
func (r *harness) writes(f func()) int {
	before := r.External.Writes()
	f()
	return r.External.Writes() - before
}

// waitApplied waits until the watch has shown the last write.
func (r *harness) waitApplied(row mirror.Row) {
	r.Helper()
	r.until("known as applied: "+row.Key.Name, func() bool {
		live, ok := r.Engine.Live(row.Key)
		return ok && live.Ours && !live.Drifted && live.Hash == row.Manifest.Hash
	})
}

func (r *harness) waitDrifted(row mirror.Row) {
	r.Helper()
	r.until("known as drifted: "+row.Key.Name, func() bool {
		live, ok := r.Engine.Live(row.Key)
		return ok && live.Drifted
	})
}

// Run runs the conformance suite. open returns a new, empty engine for each case.
func Run(t *testing.T, open func(t *testing.T) *Fixture) {
	names := make([]string, 0, len(cases))
	for name := range cases {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		t.Run(name, func(t *testing.T) { cases[name](t, open(t)) })
	}
}

const (
	tenant      fleet.TenantName      = "acme"
	environment fleet.EnvironmentName = "prod-eu"
	deployment  fleet.DeploymentName  = "checkout"
	apiServer                         = "https://api.eu-1.example.com:6443"
	repository                        = "https://git.example.com/acme/checkout"
	commit      fleet.Revision        = "4f1c9e2a4f1c9e2a4f1c9e2a4f1c9e2a4f1c9e2a"
)

func envID() fleet.EnvironmentID { return fleet.EnvironmentID{Tenant: tenant, Name: environment} }

// row renders an object into a row.
func row(t *testing.T, b *Fixture, o fleet.Object) mirror.Row {
	t.Helper()
	o.Key.Engine = b.Name
	m, err := b.Render.Render(b.Spec, o)
	if err != nil {
		t.Fatal(err)
	}
	r := mirror.Row{Key: o.Key, Tenant: tenant, Manifest: m, Revision: commit}
	switch {
	case o.Cluster != nil:
		r.Environment, r.Credential = environment, &o.Cluster.Credential
	case o.Repository != nil:
		r.Credential = &o.Repository.Credential
	case o.Application != nil:
		r.Environment, r.Deployment, r.Deletion = environment, deployment,
			o.Application.DeletionPolicy
	}
	return r
}

func project(t *testing.T, b *Fixture) mirror.Row {
	name := fleet.ProjectName(tenant)
	return row(t, b, fleet.Object{Key: fleet.ObjectKey{Kind: fleet.ObjectProject, Name: name},
		Project: &fleet.Project{
			Tenant: tenant, Name: name, SourceRepos: []string{repository},
			Destinations: []fleet.Destination{
				{Server: fleet.ServerKey(apiServer, envID()), Namespace: "checkout"}},
		}})
}

func cluster(t *testing.T, b *Fixture) mirror.Row {
	name := fleet.ClusterName(envID())
	return row(t, b, fleet.Object{Key: fleet.ObjectKey{Kind: fleet.ObjectCluster, Name: name},
		Cluster: &fleet.Cluster{
			ID: envID(), Name: name, Project: fleet.ProjectName(tenant),
			Server: fleet.ServerKey(apiServer, envID()), Namespaces: []string{"checkout"},
			Credential: fleet.CredentialSource{Tenant: tenant, Name: string(environment)},
		}})
}

func repo(t *testing.T, b *Fixture) mirror.Row {
	id := fleet.CredentialID{Tenant: tenant, Name: "checkout"}
	name := fleet.RepositoryName(id, "")
	return row(t, b, fleet.Object{Key: fleet.ObjectKey{Kind: fleet.ObjectRepository, Name: name},
		Repository: &fleet.Repository{
			ID: id, Name: name, Project: fleet.ProjectName(tenant), URL: repository,
			Credential: fleet.CredentialSource{Tenant: tenant, Name: "checkout-git"},
		}})
}

// application returns the only Application of the suite, modified by change.
func application(t *testing.T, b *Fixture, change func(*fleet.Application)) mirror.Row {
	id := fleet.ApplicationID{Tenant: tenant, Deployment: deployment, Environment: environment}
	a := &fleet.Application{
		ID: id, Name: fleet.ApplicationName(id), Project: fleet.ProjectName(tenant),
		Sources: []fleet.Source{{RepoURL: repository, Path: "deploy", TargetRevision: "v1"}},
		Destination: fleet.Destination{Server: fleet.ServerKey(apiServer, envID()),
			Namespace: "checkout"},
		Sync:           fleet.Sync{Automated: true, Prune: true},
		DeletionPolicy: fleet.DeletionOrphan,
	}
	if change != nil {
		change(a)
	}
	return row(t, b, fleet.Object{Key: fleet.ObjectKey{Kind: fleet.ObjectApplication, Name: a.Name},
		Application: a})
}

func at(revision string) func(*fleet.Application) {
	return func(a *fleet.Application) { a.Sources[0].TargetRevision = revision }
}

// everything returns one row of each kind, in the order of creation.
func everything(t *testing.T, b *Fixture) []mirror.Row {
	return []mirror.Row{project(t, b), cluster(t, b), repo(t, b), application(t, b, nil)}
}

// secretFor returns a valid credential for the row.
func secretFor(r mirror.Row) fleet.Secret { return secretOf(r, "canary-1") }

func secretOf(r mirror.Row, token string) fleet.Secret {
	switch r.Key.Kind {
	case fleet.ObjectCluster:
		return fleet.NewSecret(map[string][]byte{"token": []byte(token)})
	case fleet.ObjectRepository:
		return fleet.NewSecret(map[string][]byte{"username": []byte("git"),
			"password": []byte(token)})
	}
	return fleet.Secret{}
}
