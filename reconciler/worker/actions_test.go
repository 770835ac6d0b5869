package worker

import (
	"context"
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

// actionStore has one row and open actions, which updates change from several goroutines.
type actionStore struct {
	noRows
	mu   *sync.Mutex
	row  *mirror.Row
	open *[]mirror.Action
}

func (s actionStore) Row(context.Context, fleet.ObjectKey) (mirror.Row, bool, error) {
	return *s.row, true, nil
}

func (s actionStore) OpenActions(context.Context, fleet.EngineName) (open []mirror.Action,
	_ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range *s.open {
		if !a.State.Ended() {
			open = append(open, a)
		}
	}
	return open, nil
}

func (s actionStore) UpdateAction(_ context.Context, _ mirror.Lease, u mirror.ActionUpdate) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(*s.open, func(a mirror.Action) bool { return a.ID == u.ID })
	(*s.open)[i].State, (*s.open)[i].Message = u.State, u.Message
	return nil
}

// acting is a worker on a fake with one applied Application.
type acting struct {
	*actions
	t      *testing.T
	server *enginetest.Server
	row    mirror.Row
	store  actionStore
}

func newActing(t *testing.T, open ...mirror.Action) *acting {
	t.Helper()
	server := enginetest.NewServer()
	s := workOn(t, server, 0, time.Hour)
	row := renderedRow(t)
	if _, err := s.target.Apply(t.Context(), row, fleet.Secret{}, s.lease.Lease()); err != nil {
		t.Fatal(err)
	}
	for i := range open {
		open[i].Key, open[i].Tenant, open[i].State = row.Key, "acme", mirror.OperationPending
	}
	store := actionStore{mu: &sync.Mutex{}, row: &row, open: &open}
	s.Rows, s.Reports = store, store
	s.confirmed.Store(true)
	return &acting{newActions(s.connection, s.parking), t, server, row, store}
}

func (a *acting) steps(want ...string) {
	a.t.Helper()
	once, cancel := context.WithCancel(a.t.Context())
	cancel()
	_ = a.target.Watch(once, engine.Sink{}) // one list
	if err := a.advance(a.t.Context()); err != nil {
		a.t.Fatal(err)
	}
	var got []string
	for _, q := range *a.store.open {
		got = append(got, string(q.State)+" "+q.Message)
	}
	if !slices.Equal(got, want) {
		a.t.Errorf("%q, want %q", got, want)
	}
}

// The engine remembers the last action of each kind: the second one waits until the first has
// ended, and is not lost. A terminate overtakes the sync that it ends.
func TestActionsOfOneKindFollowEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newActing(t, mirror.Action{ID: "1", Kind: mirror.ActionSync},
			mirror.Action{ID: "2", Kind: mirror.ActionSync})
		a.steps("Running ", "Pending ")
		*a.store.open = append(*a.store.open, mirror.Action{ID: "3", Kind: mirror.ActionTerminate,
			Key: a.row.Key, Tenant: "acme", State: mirror.OperationPending})
		a.steps("Running ", "Pending ", "Pending ")
		const by = `"operation":{"initiatedBy":{"username":"argosy"},` +
			`"info":[{"name":"argosy.dev/sync","value":"1"}]}`
		a.server.Merge(a.row.Key, `{"status":{"operationState":{"phase":"Running",`+by+`}}}`)
		time.Sleep(actionRetry)
		a.steps("Running ", "Pending ", "Running ")
		a.server.Merge(a.row.Key, `{"operation":null,"status":{"operationState":{"phase":"Failed",`+
			`"message":"terminated",`+by+`}}}`)
		time.Sleep(actionRetry)
		a.steps("Failed terminated", "Pending ", "Succeeded ")
		a.steps("Failed terminated", "Running ", "Succeeded ")
	})
}

func TestAnActionBeginsOnlyOnTheDeclaredApplication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newActing(t, mirror.Action{ID: "1", Kind: mirror.ActionRefresh})
		written := a.row.Manifest.Hash
		a.store.row.Moving = true
		a.steps("Pending the Application moves to another engine; it begins when the move has ended")
		a.store.row.Moving, a.store.row.Manifest.Hash = false, "other"
		time.Sleep(actionRetry)
		a.steps("Pending the declared Application is not applied yet")
		a.store.row.Manifest.Hash = written
		a.Stops.set(records(mirror.Stop{Scope: mirror.StopTenant, Name: "acme"}),
			time.Now().Add(time.Hour))
		time.Sleep(actionRetry)
		a.steps("Pending an emergency stop is in force")
		(*a.store.open)[0].Late = true
		a.steps("Failed it has not begun in time, and is given up: an emergency stop is in force")
		a.steps("Failed it has not begun in time, and is given up: an emergency stop is in force")
	})
}

// Before the rows are confirmed, the database may be an older one, in which an action that was
// carried out is open again.
func TestAnUnconfirmedWorkerBeginsNoAction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newActing(t, mirror.Action{ID: "1", Kind: mirror.ActionRefresh})
		a.confirmed.Store(false)
		a.steps("Pending ")
		a.confirmed.Store(true)
		a.steps("Running ")
		a.server.Merge(a.row.Key,
			`{"metadata":{"annotations":{"argocd.argoproj.io/refresh":null}}}`)
		time.Sleep(actionRetry)
		a.steps("Succeeded ")
	})
}
