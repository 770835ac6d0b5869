package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

var managed = []mirror.MovedResource{
	{Group: "apps", Kind: "Deployment", Namespace: "acme-web", Name: "web"},
	{Kind: "Service", Namespace: "acme-web", Name: "web"}}

// movers is a house in which acme/prod moves, with the Applications web and api. Both engines
// compare all the time, and two owners of an Application are an error.
type movers struct {
	*house
	from, to *site
	armed    atomic.Bool
	failed   atomic.Pointer[string]
}

func newMovers(t *testing.T, start func(*movers) *replica) *movers {
	t.Helper()
	m := &movers{house: newHouse(t, together(small(), unhealed()))}
	m.watch(func() { start(m) })
	return m
}

// watch starts the fleet, and then two engines which compare all the time.
func (m *movers) watch(start func()) {
	m.t.Helper()
	start()
	m.eventually("the fleet is in sync", m.converged)
	m.from = m.engineOf("acme", "prod")
	m.to = m.engines["eu-1"]
	if m.from == m.to {
		m.to = m.engines["eu-2"]
	}
	done, one, other := make(chan struct{}), m.from, m.to
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(30 * time.Millisecond):
			}
			one.reconcile()
			other.reconcile()
			m.oneOwner(one, other)
		}
	})
	m.t.Cleanup(func() { close(done); all.Wait() })
}

// unhealed is a deployment without selfHeal.
func unhealed() map[string]string {
	files := deployment("acme", "api", "v1", "Delete", "prod")
	for path, text := range files {
		files[path] = strings.TrimSuffix(text, "\n") +
			"\n  sync: {mode: automated, prune: true, selfHeal: false}\n"
	}
	return files
}

// start starts a replica which may apply an Application only when its move has come to that.
func (m *movers) start(name string, o options) *replica {
	inner := o.engine
	o.engine = func(call string, key fleet.ObjectKey) error {
		if call == "apply" && key.Kind == fleet.ObjectApplication && m.early(key) {
			text := fmt.Sprintf("%s is applied on %s before it is adopted", key.Name, key.Engine)
			m.failed.CompareAndSwap(nil, &text)
		}
		if inner == nil {
			return nil
		}
		return inner(call, key)
	}
	return m.house.start(name, o)
}

// early reports whether an Application moves to the engine and may not be applied there yet.
func (m *movers) early(key fleet.ObjectKey) bool {
	moves, _, err := m.store.Views.Moves(context.Background(), view.Scope{},
		view.Filter{Tenant: "acme", Environment: "prod"}, view.Page{Limit: 1})
	if err != nil {
		m.t.Error(err)
	}
	for _, move := range moves {
		for _, a := range move.Applications {
			name := fleet.ApplicationName(fleet.ApplicationID{Tenant: "acme",
				Deployment: a.Deployment, Environment: "prod"})
			if move.To == key.Engine && name == key.Name && a.Step != mirror.MoveEnable &&
				a.Step != mirror.MoveDone {
				return true
			}
		}
	}
	return false
}

// automated reports whether an engine syncs an Application.
func automated(s *site, name string) bool {
	key := keyOf(s, "acme", name, "prod")
	return s.server.Field(key, "spec.syncPolicy.automated") != "" &&
		s.server.Field(key, "metadata.annotations|argocd.argoproj.io/skip-reconcile") != "true"
}

func (m *movers) oneOwner(one, other *site) {
	for _, name := range []string{"web", "api"} {
		if automated(one, name) && automated(other, name) {
			text := name + " has two owners"
			m.failed.CompareAndSwap(nil, &text)
		}
	}
}

// move requests a move until it has begun: the mirror gets the status of the Applications later.
func (m *movers) move(to fleet.EngineName) {
	m.t.Helper()
	m.moveOf(fleet.EnvironmentID{Tenant: "acme", Name: "prod"}, to)
}

func (h *house) moveOf(env fleet.EnvironmentID, to fleet.EngineName) {
	h.t.Helper()
	id := ""
	h.eventually(fmt.Sprintf("the move of %s to %s begins", env, to), func() (err error) {
		if id == "" {
			if id, err = h.request(env, to); err != nil {
				return err
			}
		}
		o, err := h.operation(id)
		switch {
		case err != nil:
			return err
		case o.State == mirror.OperationPending:
			return errors.New("no plan has taken it up")
		case o.State == mirror.OperationFailed:
			id = ""
			return errors.New(o.Message)
		}
		return nil
	})
}

func (h *house) request(env fleet.EnvironmentID, to fleet.EngineName) (string, error) {
	return h.store.Decisions.RequestMove(h.t.Context(), mirror.MoveRequest{Environment: env, To: to,
		By: "token:ann"})
}

func (h *house) operation(id string) (mirror.Operation, error) {
	found, _, err := h.store.Views.Operations(h.t.Context(), view.Scope{}, view.Filter{Name: id},
		view.Page{Limit: 1})
	if err != nil || len(found) != 1 {
		return mirror.Operation{}, fmt.Errorf("%+v, %w", found, err)
	}
	return found[0], nil
}

// on returns an error while acme/prod is not on the engine alone, with all that it needs.
func (m *movers) on(s *site) error {
	other := m.from
	if s == m.from {
		other = m.to
	}
	for _, name := range []string{"web", "api"} {
		if !automated(s, name) || other.server.Exists(keyOf(other, "acme", name, "prod")) {
			moves, _, err := m.store.Views.Moves(context.Background(), view.Scope{},
				view.Filter{Tenant: "acme", Environment: "prod"}, view.Page{Limit: 1})
			return errors.Join(fmt.Errorf("%s is not on %s alone; its move: %+v", name, s.name,
				moves), err)
		}
	}
	if err := m.converged(); err != nil {
		return err
	}
	if got := m.engineOf("acme", "prod"); got != s {
		return fmt.Errorf("the Cluster is on %s", got.name)
	}
	return nil
}

// check fails if an Application had two owners, or if a deletion took its workload along.
func (m *movers) check() {
	m.t.Helper()
	m.checkOwners()
	for _, s := range m.engines {
		if err := s.backwards(); err != nil {
			m.t.Error(err)
		}
	}
}

// checkOwners is check without the order of the epochs: a replica that was paused may write under
// its former lease, to an object that the next holder has not written yet.
func (m *movers) checkOwners() {
	m.t.Helper()
	if why := m.failed.Load(); why != nil {
		m.t.Error(*why)
	}
	for _, s := range m.engines {
		s.mu.Lock()
		for _, key := range s.cascaded {
			m.t.Errorf("the deletion of %s on %s took its workload along", key.Name, s.name)
		}
		s.mu.Unlock()
	}
}

func TestAnEnvironmentMovesWithItsApplications(t *testing.T) {
	t.Parallel()
	m := newMovers(t, func(m *movers) *replica { return m.start("a", options{}) })
	m.triesOut()
	m.move(m.to.name)
	m.eventually("it has moved", func() error { return m.on(m.to) })
	m.check()
	m.move(m.from.name)
	m.eventually("and back", func() error { return m.on(m.from) })
	m.check()
}

// A request is refused for what its dry run names, before anything is written.
func TestAMoveThatCannotWorkIsRefusedBeforeItBegins(t *testing.T) {
	t.Parallel()
	m := newMovers(t, func(m *movers) *replica { return m.start("a", options{}) })
	key := keyOf(m.from, "acme", "web", "prod")
	for _, c := range []struct {
		why        string
		begin, end func()
	}{
		{"acme/web@prod is OutOfSync; sync it first", func() {
			m.from.idle.Store(true)
			m.from.server.Merge(key, `{"status":{"sync":{"status":"OutOfSync"}}}`)
		}, func() { m.from.idle.Store(false) }},
		{"engine " + string(m.to.name) + " does not answer", func() {
			m.to.unfit.Store(true)
			m.to.away.Store(true)
		}, func() { m.to.away.Store(false) }},
		{"engine " + string(m.to.name) + " refuses writes: Argo CD tracks by label", func() {},
			func() {}},
	} {
		c.begin()
		m.eventually("a dry run names: "+c.why, m.dryRun(m.to.name, mirror.OperationFailed, c.why))
		written := m.writes()
		id, err := m.request(fleet.EnvironmentID{Tenant: "acme", Name: "prod"}, m.to.name)
		if err != nil {
			t.Fatal(err)
		}
		m.eventually("it is refused: "+c.why, func() error {
			o, err := m.operation(id)
			if err != nil || o.State != mirror.OperationFailed ||
				!strings.Contains(o.Message, c.why) {
				return fmt.Errorf("%+v, %w", o, err)
			}
			return nil
		})
		if n := m.writes() - written; n != 0 || m.engineOf("acme", "prod") != m.from {
			t.Errorf("%s: %d writes", c.why, n)
		}
		c.end()
	}
}

// The old engine refuses to apply an Application that a commit has declared, and the move begins.
func TestAnApplicationThatWasNeverAppliedIsCreatedOnTheNewEngine(t *testing.T) {
	t.Parallel()
	m := newMovers(t, func(m *movers) *replica {
		return m.start("a", options{engine: func(call string, key fleet.ObjectKey) error {
			if call == "apply" && m.armed.Load() && key.Engine == m.from.name &&
				key.Name == keyOf(m.from, "acme", "late", "prod").Name {
				return errAway
			}
			return nil
		}})
	})
	m.armed.Store(true)
	m.commit("a late one", deployment("acme", "late", "v1", "Delete", "prod"))
	m.eventually("it is recorded", func() error {
		if _, ok := m.rows()[keyOf(m.from, "acme", "late", "prod")]; !ok {
			return fmt.Errorf("it has no row")
		}
		return nil
	})
	m.move(m.to.name)
	m.eventually("it has moved", func() error {
		if !automated(m.to, "late") {
			return fmt.Errorf("late is not there")
		}
		return m.on(m.to)
	})
	m.check()
}

// triesOut requests a move that a dry run refuses, and one that it accepts. Nothing moves.
func (m *movers) triesOut() {
	m.t.Helper()
	written := m.writes()
	for _, c := range []struct {
		to    fleet.EngineName
		state mirror.OperationState
		want  string
	}{
		{m.from.name, mirror.OperationFailed, "it is on engine " + string(m.from.name)},
		{m.to.name, mirror.OperationSucceeded, "2 Applications would move from engine " +
			string(m.from.name) + " to " + string(m.to.name)},
	} {
		m.eventually("the dry run ends with "+c.want, m.dryRun(c.to, c.state, c.want))
	}
	if n := m.writes() - written; n != 0 || m.engineOf("acme", "prod") != m.from {
		m.t.Errorf("the dry runs made %d writes", n)
	}
}

// dryRun returns what requests dry runs until one ends as wanted: the mirror gets the status of the
// Applications later.
func (m *movers) dryRun(to fleet.EngineName, state mirror.OperationState,
	want string) func() error {
	id := ""
	return func() (err error) {
		if id == "" {
			if id, err = m.store.Decisions.RequestMove(m.t.Context(), mirror.MoveRequest{
				Environment: fleet.EnvironmentID{Tenant: "acme", Name: "prod"}, To: to,
				By: "token:ann", DryRun: true}); err != nil {
				return err
			}
		}
		found, err := m.operation(id)
		if err != nil || found.EndedAt == nil {
			return fmt.Errorf("%+v, %w", found, err)
		}
		if found.State != state || !strings.Contains(found.Message, want) {
			id = ""
			return fmt.Errorf("%+v", found)
		}
		return nil
	}
}

// away is a house in which, once armed, the new engine answers a step of a move with an error.
func away(t *testing.T, step string) *movers {
	t.Helper()
	return newMovers(t, func(m *movers) *replica {
		return m.start("a", options{engine: m.failing(step)})
	})
}

func (m *movers) failing(step string) func(string, fleet.ObjectKey) error {
	return func(call string, key fleet.ObjectKey) error {
		name, of, only := strings.Cut(step, " of ")
		if !m.armed.Load() || call != name || key.Kind != fleet.ObjectApplication ||
			only && key.Name != keyOf(m.from, "acme", of, "prod").Name {
			return nil
		}
		if call == "checkdeparture" || call == "freeze" || call == "delete" ||
			key.Engine == m.to.name {
			return errAway
		}
		return nil
	}
}

func TestAMoveIsUndoneWhileAnEngineDoesNotAnswer(t *testing.T) {
	t.Parallel()
	m := away(t, "adopt")
	m.armed.Store(true)
	m.move(m.to.name)
	m.eventually("both wait for the adoption", func() error {
		for _, name := range []string{"web", "api"} {
			if automated(m.from, name) || automated(m.to, name) {
				return fmt.Errorf("%s is served", name)
			}
		}
		if text := m.application("acme/web@prod").ApplyMessage; !strings.Contains(text, "Adopt") {
			return fmt.Errorf("the reason is %q", text)
		}
		return nil
	})
	m.move(m.from.name)
	m.eventually("it is back", func() error { return m.on(m.from) })
	m.check()
	// what does not heal itself has its resources marked again before it is served
	for name, want := range map[string]bool{"web": false, "api": true} {
		marked := m.from.server.Field(keyOf(m.from, "acme", name, "prod"),
			"status.operationState.operation.sync.resources") != ""
		if marked != want {
			t.Errorf("%s: marked %t", name, marked)
		}
	}
}

// The new engine has the Application, and everything that makes a worker apply a row happens.
func TestAnArrivingApplicationIsAppliedAfterItsAdoptionAlone(t *testing.T) {
	for _, step := range []string{"compare", "adopt"} {
		t.Run("it waits for "+step, func(t *testing.T) {
			t.Parallel()
			var a *replica
			m := newMovers(t, func(m *movers) *replica {
				a = m.start("a", options{engine: m.failing(step)})
				return a
			})
			m.armed.Store(true)
			m.move(m.to.name)
			m.waitsAt(step)
			key := keyOf(m.to, "acme", "web", "prod")
			m.commit("another version", deployment("acme", "web", "v2", "Delete", "prod",
				"staging"))
			m.eventually("the commit is recorded", func() error {
				if got := m.rows()[key].Revision; got != m.head() {
					return fmt.Errorf("at %s", got.Short())
				}
				return nil
			})
			if m.to.server.Exists(key) {
				m.to.server.Merge(key, `{"spec":{"source":{"path":"meddled"}}}`)
			}
			m.kill(a)
			b := m.start("b", options{engine: m.failing(step)})
			m.passes(b, 5)
			m.waitsAt(step)
			m.check()
			m.armed.Store(false)
			m.eventually("it has moved", func() error { return m.on(m.to) })
			m.check()
		})
	}
}

// waitsAt waits until an Application waits for a step.
func (m *movers) waitsAt(step string) {
	m.t.Helper()
	m.eventually("it waits for "+step, func() error {
		for _, name := range []string{"web", "api"} {
			text := strings.ToLower(m.application("acme/" + name + "@prod").ApplyMessage)
			if strings.Contains(text, "step "+step+" of its move from") {
				return nil
			}
		}
		return fmt.Errorf("it does not")
	})
}

// The mirror is lost, or rebuilt, during a move. The environment goes on where its Applications
// are, and no Application gets a second owner.
func TestALostMirrorGivesNoMovingApplicationTwoOwners(t *testing.T) {
	losses := map[string]func(m *movers, a *replica){
		"a new database": func(m *movers, a *replica) {
			a.stop()
			m.armed.Store(false)
			m.newDatabase()
			m.house.start("b", options{})
		},
		"a rebuild": func(m *movers, _ *replica) {
			if err := m.store.Reset(m.t.Context()); err != nil {
				m.t.Fatal(err)
			}
			m.armed.Store(false)
		},
	}
	for step, on := range map[string]string{"checkdeparture": "from", "compare": "from",
		"freeze": "from", "adopt": "from", "delete": "from", "apply": "to",
		"freeze of api": "to"} {
		for name, lose := range losses {
			t.Run(name+" at "+step, func(t *testing.T) {
				t.Parallel()
				loses(t, step, on, lose)
			})
		}
	}
}

func loses(t *testing.T, step, on string, lose func(*movers, *replica)) {
	var a *replica
	m := newMovers(t, func(m *movers) *replica {
		a = m.house.start("a", options{engine: m.failing(step)})
		return a
	})
	m.armed.Store(true)
	m.move(m.to.name)
	name, of, only := strings.Cut(step, " of ")
	m.eventually("all others are through", func() error {
		waits := 0
		for _, name := range []string{"web", "api"} {
			text := strings.ToLower(m.application("acme/" + name + "@prod").ApplyMessage)
			if strings.Contains(text, errAway.Error()) {
				waits++
			}
		}
		if waits == 2 || only && waits == 1 && automated(m.to, "web") {
			return nil
		}
		return fmt.Errorf("%d wait for %s", waits, name)
	})
	lose(m, a)
	want := m.from
	if on == "to" {
		want = m.to
	}
	m.eventually("the environment is where its Applications are", func() error {
		if got := m.placements()["acme/prod"]; got != want.name {
			return fmt.Errorf("on %q, want %s", got, want.name)
		}
		for _, name := range []string{"web", "api"} {
			if name != of && !automated(want, name) {
				return fmt.Errorf("%s is not served", name)
			}
		}
		if !only {
			return nil
		}
		if text := m.application("acme/api@prod").ApplyMessage; !strings.Contains(text,
			"waits") {
			return fmt.Errorf("the reason is %q", text)
		}
		return nil
	})
	if only && (!automated(m.from, of) || automated(m.to, of)) {
		t.Errorf("%s is not on its former engine alone", of)
	}
	m.check()
}

// The old engine loses an Application before it is frozen. It is not created there again: the
// database may be older than the end of its move.
func TestAnApplicationThatItsEngineLosesDuringAMoveIsNotCreatedThereAgain(t *testing.T) {
	t.Parallel()
	var created atomic.Bool
	m := newMovers(t, func(m *movers) *replica {
		away := m.failing("freeze")
		return m.start("a", options{engine: func(call string, key fleet.ObjectKey) error {
			if call == "apply" && m.from != nil &&
				key == keyOf(m.from, "acme", "web", "prod") {
				created.Store(true)
			}
			return away(call, key)
		}})
	})
	m.armed.Store(true)
	m.move(m.to.name)
	m.waitsAt("freeze")
	m.from.server.Remove(keyOf(m.from, "acme", "web", "prod"))
	created.Store(false)
	m.armed.Store(false)
	m.eventually("it has moved", func() error { return m.on(m.to) })
	if created.Load() {
		t.Errorf("web is applied on %s", m.from.name)
	}
	m.check()
}

// A person creates an Application on the old engine again, from a file that was exported before the
// move, after its deletion and before the new engine enables it.
func TestAnApplicationThatAPersonCreatesAgainOnTheOldEngineHoldsItsMove(t *testing.T) {
	for name, step := range map[string]string{"before its absence is recorded": "delete",
		"before it is enabled": "apply"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var create func()
			var key fleet.ObjectKey
			var once sync.Once
			m := newMovers(t, func(m *movers) *replica {
				return m.start("a", options{engine: func(call string, of fleet.ObjectKey) error {
					if !m.armed.Load() || of.Name != key.Name {
						return nil
					}
					switch {
					case step == "delete" && call == "delete" && !m.from.server.Exists(key):
						once.Do(create)
					case step == "apply" && call == "apply" && of.Engine == m.to.name:
						once.Do(create)
						return errAway // for as long as the old engine's worker needs to see it
					}
					return nil
				}})
			})
			key = keyOf(m.from, "acme", "web", "prod")
			create = m.from.server.Copy(key)
			m.armed.Store(true)
			m.move(m.to.name)
			m.eventually("it waits, and names the reason", func() error {
				for _, move := range m.moving() {
					for _, a := range move.Applications {
						if strings.Contains(a.Message, "engine "+string(m.from.name)+" has ") {
							return nil
						}
					}
				}
				if why := m.failed.Load(); why != nil {
					return errors.New(*why)
				}
				return fmt.Errorf("it does not: %+v", m.moving())
			})
			m.armed.Store(false)
			m.check()
			if !automated(m.from, "web") || automated(m.to, "web") {
				t.Error("web is not served by its recreated Application alone")
			}
			m.from.server.Remove(key)
			m.eventually("it has moved", func() error { return m.on(m.to) })
			m.check()
		})
	}
}

// moving are the last moves of acme/prod.
func (m *movers) moving() []view.Move {
	m.t.Helper()
	moves, _, err := m.store.Views.Moves(m.t.Context(), view.Scope{},
		view.Filter{Tenant: "acme", Environment: "prod"}, view.Page{Limit: 1})
	if err != nil {
		m.t.Fatal(err)
	}
	return moves
}

func TestAMoveIsUndoneWhileTheGitHostIsAway(t *testing.T) {
	t.Parallel()
	var a *replica
	m := newMovers(t, func(m *movers) *replica {
		a = m.start("a", options{engine: m.failing("adopt")})
		return a
	})
	m.armed.Store(true)
	m.move(m.to.name)
	m.waitsAt("adopt")
	m.eventually("a dry run of the undo succeeds", m.dryRun(m.from.name,
		mirror.OperationSucceeded, "2 Applications would move from engine "+string(m.to.name)))
	a.source.away.Store(true)
	m.move(m.from.name)
	m.eventually("both are served again", func() error {
		for _, name := range []string{"web", "api"} {
			if !automated(m.from, name) {
				return fmt.Errorf("%s is not", name)
			}
		}
		return nil
	})
	a.source.away.Store(false)
	m.eventually("it is back", func() error { return m.on(m.from) })
	m.check()
}

func TestACommitDuringAMoveIsAppliedWhenItEnds(t *testing.T) {
	t.Parallel()
	var armed atomic.Bool
	m := newMovers(t, func(m *movers) *replica {
		return m.start("a", options{engine: func(call string, _ fleet.ObjectKey) error {
			if call == "freeze" && armed.Load() {
				return errAway
			}
			return nil
		}})
	})
	armed.Store(true)
	m.move(m.to.name)
	m.eventually("it waits", func() error {
		if !m.to.server.Exists(keyOf(m.to, "acme", "web", "prod")) {
			return fmt.Errorf("nothing is compared yet")
		}
		return nil
	})
	m.commit("another version, and one less", together(
		deployment("acme", "web", "v2", "Delete", "prod", "staging"),
		gone(deployment("acme", "api", "v1", "Delete", "prod"))))
	armed.Store(false)
	m.eventually("the head is on the new engine", func() error {
		key := keyOf(m.to, "acme", "web", "prod")
		if got := m.to.server.Field(key, "spec.source.targetRevision"); got != "v2" {
			return fmt.Errorf("revision %q", got)
		}
		for _, s := range m.engines {
			if s.server.Exists(keyOf(s, "acme", "api", "prod")) {
				return fmt.Errorf("api is on %s", s.name)
			}
		}
		return m.converged()
	})
	if why := m.failed.Load(); why != nil {
		t.Error(*why)
	}
}

// A standby that lacks a move which has ended is promoted: its placements are from before. No
// Application is created on the old engine, even while the new one cannot be read.
func TestAFailoverToBeforeAMoveGivesNoApplicationTwoOwners(t *testing.T) {
	t.Parallel()
	for name, unread := range map[string]bool{"both engines answer": false,
		"the new one does not answer": true} {
		t.Run(name, func(t *testing.T) { failsOverToBeforeAMove(t, unread) })
	}
}

func failsOverToBeforeAMove(t *testing.T, unread bool) {
	f := newFailover(t, together(small(), unhealed()))
	m := &movers{house: f.house}
	var a *replica
	m.watch(func() { a = m.house.start("a", options{}) })
	if err := f.standby.CaughtUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.standby.Pause()
	m.move(m.to.name)
	m.eventually("it has moved", func() error { return m.on(m.to) })
	a.stop()
	f.promote(true)
	m.to.away.Store(unread)
	m.house.start("b", options{})
	waits := func(why string) {
		m.eventually("it waits: "+why, func() error {
			for _, name := range []string{"web", "api"} {
				if got := m.application("acme/" + name + "@prod").ApplyMessage; !strings.Contains(
					got, why) {
					return fmt.Errorf("%s: %q", name, got)
				}
			}
			return nil
		})
	}
	if unread {
		waits("engine " + string(m.to.name) + " may have it already")
		m.to.away.Store(false)
	}
	waits("engine " + string(m.to.name) + " has it already")
	m.commit("another environment's version",
		deployment("globex", "shop", "v2", "Delete", "prod"))
	m.eventually("others go on", func() error { return m.bears("shop", "v2") })
	m.move(m.to.name)
	m.eventually("the move is recorded again", func() error { return m.on(m.to) })
	m.check()
}
