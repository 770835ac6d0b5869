package reconciler_test

import (
	"context"
	"flag"
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

var allFaults = flag.Bool("move.faults", false,
	"every fault at every point of a move, instead of one fault at each point")

// movePoint is an instant of a move at which a fault begins: the first or a later request of a step
// to its engine, or the record of its end, after the last request.
type movePoint struct {
	step    mirror.MoveStep
	request int // 0: the record
}

func (p movePoint) String() string {
	switch p.request {
	case 0:
		return string(p.step) + ", record"
	case 1:
		return string(p.step)
	}
	return fmt.Sprintf("%s, request %d", p.step, p.request)
}

// movePoints are the rows of the table, in the order of a move. A request after the first one
// follows a write of the same step.
var movePoints = []movePoint{
	{mirror.MoveCheck, 1}, {mirror.MoveCheck, 0},
	{mirror.MoveCompare, 1}, {mirror.MoveCompare, 2}, {mirror.MoveCompare, 0},
	{mirror.MoveReady, 1},
	{mirror.MoveFreeze, 1}, {mirror.MoveFreeze, 2}, {mirror.MoveFreeze, 0},
	{mirror.MoveAdopt, 1}, {mirror.MoveAdopt, 2}, {mirror.MoveAdopt, 0},
	{mirror.MoveDelete, 1}, {mirror.MoveDelete, 0},
	{mirror.MoveEnable, 1}, {mirror.MoveEnable, 0},
	{mirror.MoveReturn, 1}, {mirror.MoveReturn, 2}, {mirror.MoveReturn, 0},
}

// stepRequests are the requests of the steps to an engine. An Application is Ready while another
// one of its environment is compared.
var stepRequests = map[mirror.MoveStep]string{mirror.MoveCheck: "checkdeparture",
	mirror.MoveCompare: "compare", mirror.MoveReady: "compare", mirror.MoveFreeze: "freeze",
	mirror.MoveAdopt: "adopt", mirror.MoveDelete: "delete", mirror.MoveEnable: "apply",
	mirror.MoveReturn: "return"}

// moveFaults are the columns of the table. begin is called at the point, in the call of the replica
// that reaches it, and returns the call's error. end is called afterwards by the test.
var moveFaults = []struct {
	name  string
	begin func(c *moveColumn, by *pausable, at fleet.EngineName) error
	end   func(c *moveColumn, by *pausable)
}{
	{"replica killed", func(_ *moveColumn, by *pausable, _ fleet.EngineName) error {
		by.dead.Store(true)
		return errDead
	}, func(c *moveColumn, by *pausable) {
		c.kill(by.replica)
		c.startReplica()
	}},
	{"replica paused until another one has its leases", pauseReplica,
		func(c *moveColumn, by *pausable) {
			c.takeOver(by)
			by.resume()
			by.stop()
		}},
	{"replica paused until the move has ended", pauseReplica, func(c *moveColumn, by *pausable) {
		c.takeOver(by)
		c.eventually("it has moved", c.ended)
		by.resume()
		by.stop()
	}},
	{"controller of A stopped", stopController(0), startController(0)},
	{"controller of B stopped", stopController(1), startController(1)},
	{"API server of A away", loseEngine(0), regainEngine(0)},
	{"API server of B away", loseEngine(1), regainEngine(1)},
}

// pauseReplica stops a replica as SIGSTOP does: the present call and every later one wait.
func pauseReplica(_ *moveColumn, by *pausable, _ fleet.EngineName) error {
	by.pause()
	return nil
}

func stopController(of int) func(*moveColumn, *pausable, fleet.EngineName) error {
	return func(c *moveColumn, _ *pausable, _ fleet.EngineName) error {
		c.sides[of].idle.Store(true)
		return nil
	}
}

// startController lets the controller compare again once the move has waited for it, or has ended
// without it.
func startController(of int) func(*moveColumn, *pausable) {
	return func(c *moveColumn, _ *pausable) {
		before := c.requests.Load()
		c.eventually("the move goes on or waits", func() error {
			if c.ended() == nil || c.requests.Load() >= before+4 {
				return nil
			}
			return fmt.Errorf("%d requests", c.requests.Load()-before)
		})
		c.sides[of].idle.Store(false)
	}
}

func loseEngine(of int) func(*moveColumn, *pausable, fleet.EngineName) error {
	return func(c *moveColumn, _ *pausable, at fleet.EngineName) error {
		c.sides[of].away.Store(true)
		if at == c.sides[of].name {
			return errAway
		}
		return nil
	}
}

func regainEngine(of int) func(*moveColumn, *pausable) {
	return func(c *moveColumn, _ *pausable) {
		c.eventually("the engine is unreachable", func() error {
			all, _, err := c.store.Views.Engines(context.Background(), view.Scope{},
				view.Filter{Engine: c.sides[of].name}, view.Page{Limit: 1})
			if err != nil || len(all) != 1 || all[0].Reachable {
				return fmt.Errorf("%+v, %w", all, err)
			}
			return nil
		})
		c.sides[of].away.Store(false)
	}
}

// pausable is a replica whose calls can be made to wait.
type pausable struct {
	*replica
	gate atomic.Pointer[chan struct{}] // until it is closed, every call waits
}

func (p *pausable) pause() {
	gate := make(chan struct{})
	p.gate.Store(&gate)
}

func (p *pausable) resume() {
	if gate := p.gate.Swap(nil); gate != nil {
		close(*gate)
	}
}

// moveColumn is a column of the table: a fleet in which acme/prod moves from engine to engine. Each
// move meets the fault at another point.
type moveColumn struct {
	*movers
	starts   int
	sides    [2]*site // of the present move: A and B
	requests atomic.Int64
	trap     atomic.Pointer[trap]
	undo     bool // the present move is undone
}

// trap begins a fault once.
type trap struct {
	movePoint
	at    fleet.EngineName // carries out the step
	begin func(c *moveColumn, by *pausable, at fleet.EngineName) error

	mu     sync.Mutex
	seen   map[string]int // requests of the step for each Application
	sprung chan *pausable
	done   bool
}

// reached reports whether the call is the trap's point, for the first time.
func (p *trap) reached(c *moveColumn, call string, key fleet.ObjectKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.done:
		return false
	case p.request == 0:
		p.done = call == "advancemove "+string(p.step) || call == "endmove"
	case key.Kind == fleet.ObjectApplication && key.Engine == p.at && call == stepRequests[p.step]:
		p.seen[key.Name]++
		p.done = p.seen[key.Name] == p.request
	}
	if p.done && p.step == mirror.MoveReady {
		p.done = key.Name == applicationOf("api") && c.stepOf("web") == mirror.MoveReady
		p.seen[key.Name]--
	}
	return p.done
}

func applicationOf(name string) string {
	return fleet.ApplicationName(fleet.ApplicationID{Tenant: "acme",
		Deployment: fleet.DeploymentName(name), Environment: "prod"})
}

// call precedes every call of a replica to an engine or to the store.
func (c *moveColumn) call(by *pausable, call string, key fleet.ObjectKey) (err error) {
	for _, of := range stepRequests {
		if of == call && key.Kind == fleet.ObjectApplication {
			c.requests.Add(1)
			break
		}
	}
	if p := c.trap.Load(); p != nil {
		if p.reached(c, call, key) {
			err = p.begin(c, by, key.Engine)
			p.sprung <- by
		} else if err = p.heldBack(c, call, key); err != nil {
			return err
		}
	}
	if gate := by.gate.Load(); gate != nil {
		<-*gate
	}
	return err
}

// heldBack keeps the move from passing the state that the trap waits for.
func (p *trap) heldBack(c *moveColumn, call string, key fleet.ObjectKey) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.done:
	case p.step == mirror.MoveReady && call == "compare" && key.Name == applicationOf("api"):
		return errAway
	case p.step == mirror.MoveReturn && call == "adopt":
		return errAway
	}
	return nil
}

// startReplica starts a replica that can be paused.
func (c *moveColumn) startReplica() *pausable {
	c.t.Helper()
	c.starts++
	p := &pausable{}
	p.replica = c.start(fmt.Sprintf("replica-%d", c.starts), options{
		engine: func(call string, key fleet.ObjectKey) error { return c.call(p, call, key) },
		fail:   func(call string) error { return c.call(p, call, fleet.ObjectKey{}) }})
	c.t.Cleanup(p.resume)
	return p
}

// takeOver starts another replica, which gets the leases of the paused one. By its own clock, the
// paused one still has them: they run out, which the test brings forward.
func (c *moveColumn) takeOver(paused *pausable) {
	c.t.Helper()
	c.expire(paused.replica)
	next := c.startReplica()
	c.eventually("another replica has the leases", func() error {
		for _, s := range c.sides {
			if _, ok := next.store.lease("engine/" + string(s.name)); !ok {
				return fmt.Errorf("not that of engine %s", s.name)
			}
		}
		return nil
	})
}

// stepOf returns the step of an Application of acme/prod; "" without a move.
func (m *movers) stepOf(name fleet.DeploymentName) mirror.MoveStep {
	moves, _, err := m.store.Views.Moves(context.Background(), view.Scope{},
		view.Filter{Tenant: "acme", Environment: "prod"}, view.Page{Limit: 1})
	if err != nil {
		m.t.Error(err)
	}
	for _, move := range moves {
		for _, a := range move.Applications {
			if a.Deployment == name {
				return a.Step
			}
		}
	}
	return ""
}

// ended returns an error until the move has ended where it should, and has left nothing.
func (c *moveColumn) ended() error {
	to := c.sides[1]
	if c.undo {
		to = c.sides[0]
	}
	if err := c.on(to); err != nil {
		return err
	}
	// the plan after the last step ends the move; until then the environment cannot move again
	moves, _, err := c.store.Views.Moves(context.Background(), view.Scope{},
		view.Filter{Tenant: "acme", Environment: "prod"}, view.Page{Limit: 1})
	if err != nil || len(moves) != 1 || moves[0].EndedAt == nil {
		return fmt.Errorf("the move is not over: %+v, %w", moves, err)
	}
	for _, name := range []string{"web", "api"} {
		if step := c.stepOf(fleet.DeploymentName(name)); step != mirror.MoveDone && !c.undo {
			return fmt.Errorf("%s is at step %s", name, step)
		}
		key := keyOf(to, "acme", name, "prod")
		for _, mark := range []string{"argosy.dev/move", "argosy.dev/parked",
			"argocd.argoproj.io/skip-reconcile"} {
			if got := to.server.Field(key, "metadata.annotations|"+mark); got != "" {
				return fmt.Errorf("%s has annotation %s=%s", name, mark, got)
			}
		}
		const operation = "status.operationState.operation"
		if to.server.Field(key, operation) != "" &&
			to.server.Field(key, operation+".sync.resources") == "" {
			return fmt.Errorf("%s was synced as a whole, with its hooks", name)
		}
	}
	return nil
}

// meet moves the environment to the other engine, and returns how long that takes with the fault at
// the point.
func (c *moveColumn) meet(p movePoint, begin func(*moveColumn, *pausable, fleet.EngineName) error,
	end func(*moveColumn, *pausable)) time.Duration {
	c.t.Helper()
	c.from = c.engineOf("acme", "prod")
	c.to = c.engines["eu-1"]
	if c.from == c.to {
		c.to = c.engines["eu-2"]
	}
	c.sides, c.undo = [2]*site{c.from, c.to}, p.step == mirror.MoveReturn
	at := mirror.ApplicationMove{From: c.from.name, To: c.to.name, Step: p.step}.At()
	switch p.step {
	case mirror.MoveReady:
		at = c.to.name
	case mirror.MoveReturn:
		at = c.from.name
	}
	sprung := make(chan *pausable, 1)
	c.trap.Store(&trap{movePoint: p, at: at, begin: begin, seen: map[string]int{}, sprung: sprung})
	began := time.Now()
	c.move(c.to.name)
	if c.undo {
		c.waitsAt("adopt")
		c.move(c.from.name)
	}
	var by *pausable
	c.eventually("the move comes to "+p.String(), func() error {
		select {
		case by = <-sprung:
			return nil
		default:
			return fmt.Errorf("it is at %s and %s", c.stepOf("web"), c.stepOf("api"))
		}
	})
	end(c, by)
	c.eventually("it has moved", c.ended)
	c.trap.Store(nil)
	return time.Since(began)
}

// Every replica, controller and API server of a move fails at every step, before its requests and
// before its record. The move ends on the engine that it was requested for, no Application has two
// owners at any time, none is synced as a whole, and nothing is left.
//
// The columns for agents are in test/e2e, on real parts.
func TestEveryStepOfAMoveMeetsEveryFault(t *testing.T) {
	var mu sync.Mutex
	took := map[string]time.Duration{}
	t.Run("faults", func(t *testing.T) {
		for n, f := range moveFaults {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				c := &moveColumn{}
				newMovers(t, func(m *movers) *replica {
					c.movers = m
					return c.startReplica().replica
				})
				for i, p := range movePoints {
					if !*allFaults && (i+n)%len(moveFaults) > 0 {
						continue
					}
					seconds := c.meet(p, f.begin, f.end)
					if c.checkOwners(); t.Failed() {
						t.Fatalf("at %s", p)
					}
					mu.Lock()
					took[p.String()+f.name] = seconds
					mu.Unlock()
				}
			})
		}
	})
	var table strings.Builder
	for i, f := range moveFaults {
		fmt.Fprintf(&table, "\n%d: %s", i+1, f.name)
	}
	fmt.Fprintf(&table, "\n%-20s", "seconds")
	for i := range moveFaults {
		fmt.Fprintf(&table, "%7d", i+1)
	}
	for _, p := range movePoints {
		fmt.Fprintf(&table, "\n%-20s", p)
		for _, f := range moveFaults {
			value := "-"
			if d, ok := took[p.String()+f.name]; ok {
				value = fmt.Sprintf("%.1f", d.Seconds())
			}
			fmt.Fprintf(&table, "%7s", value)
		}
	}
	t.Log(table.String())
}
