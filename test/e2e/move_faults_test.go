package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/test/example"
	"argosy.dev/argosy/test/stack"
)

var everyMoveFault = flag.Bool("move.faults", false,
	"every fault at every step of a move, instead of one fault at some steps")

// faultySteps are the rows of the table, in the order of a move. Return is the step of an undo.
var faultySteps = []mirror.MoveStep{mirror.MoveCheck, mirror.MoveCompare, mirror.MoveFreeze,
	mirror.MoveAdopt, mirror.MoveDelete, mirror.MoveEnable, mirror.MoveReturn}

// moveFaults are the columns of the table. A is the engine that the environment leaves, B the other
// one. begin returns what ends the fault; after is called once the move has ended.
var moveFaults = []struct {
	name  string
	begin func(t *testing.T, c *faultyMove) (end, after func())
}{
	{"replica killed", func(t *testing.T, c *faultyMove) (end, after func()) {
		c.plane.Process.Kill()
		return func() { c.startPlane(t) }, nil
	}},
	{"replica paused until another one has moved it", pauseFirst},
	{"controller of A killed", killController(0)},
	{"controller of B killed", killController(1)},
	{"controller of A paused", pauseController(0)},
	{"controller of B paused", pauseController(1)},
	{"API server of A killed", loseServer(0)},
	{"API server of B killed", loseServer(1)},
}

// inEachRun are the cells that run without -move.faults: a step and a column.
var inEachRun = map[mirror.MoveStep]int{mirror.MoveAdopt: 1, mirror.MoveDelete: 2,
	mirror.MoveReturn: 7}

// pauseFirst stops the replica as SIGSTOP does. Its leases run out, and a second one goes on. The
// first one continues when the move has ended.
func pauseFirst(t *testing.T, c *faultyMove) (end, after func()) {
	first, paused := c.plane, c.plane.Process
	paused.Pause()
	second, err := c.StartPlane(t.Context(), example.PlaneOptions{Binary: binary, Name: "second",
		Database: c.database, Progress: func(string, ...any) {}})
	if err != nil {
		paused.Resume()
		t.Fatal(err)
	}
	c.plane = second
	return func() {}, func() {
		paused.Resume()
		second.Stop()
		c.plane = first
	}
}

func killController(of int) func(*testing.T, *faultyMove) (end, after func()) {
	return func(t *testing.T, c *faultyMove) (end, after func()) {
		a := c.sides[of].ArgoCD
		a.Controller.Kill()
		return func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
			defer cancel()
			check(t, a.Start(ctx))
		}, nil
	}
}

func pauseController(of int) func(*testing.T, *faultyMove) (end, after func()) {
	return func(_ *testing.T, c *faultyMove) (end, after func()) {
		p := c.sides[of].ArgoCD.Controller
		p.Pause()
		return p.Resume, nil
	}
}

func loseServer(of int) func(*testing.T, *faultyMove) (end, after func()) {
	return func(t *testing.T, c *faultyMove) (end, after func()) {
		return c.lose(t, c.sides[of].Engine), nil
	}
}

// faultLasts is how long a fault lasts unless the move ends in spite of it.
const faultLasts = 4 * time.Second

// faultyMove moves acme/staging from engine to engine. Each move meets another fault.
type faultyMove struct {
	*system
	*movesOf
	sides [2]*example.Place // of the present move: A and B
}

// movesOf follows the moves of one environment, one after the other.
type movesOf struct {
	tenant, environment string
	conn                *pgx.Conn
	earlier             string // operation of the move before the present one
}

// followMoves follows the moves of an environment.
func (f *system) followMoves(t *testing.T, tenant, environment string) *movesOf {
	t.Helper()
	m := &movesOf{tenant: tenant, environment: environment, conn: f.connect(t)}
	t.Cleanup(func() { _ = m.conn.Close(context.Background()) })
	return m
}

// next is called before a move is requested.
func (m *movesOf) next(t *testing.T) {
	t.Helper()
	check(t, m.conn.QueryRow(t.Context(), `SELECT coalesce(max(operation), '')
		FROM application_moves WHERE tenant = $1 AND environment = $2`, m.tenant, m.environment).
		Scan(&m.earlier))
}

// Every process of a move fails at every step. The move ends on the engine that it was requested
// for, the workload keeps its objects and UIDs, and no two engines automate the Application.
func TestMovesMeetFaultsOnRealParts(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	c := &faultyMove{system: f, movesOf: f.followMoves(t, "acme", "staging")}
	const environment, grant = "tenants/acme/environments/staging.yaml", "fleet/tenants/acme.yaml"
	const checkout = "tenants/acme/deployments/checkout-staging.yaml"
	before := map[string]string{environment: f.exampleFile(t, environment),
		grant: f.exampleFile(t, grant), checkout: f.exampleFile(t, checkout)}
	f.commit(t, "acme may be in the US", map[string]string{
		// With selfHeal an undo has no step Return: Argo CD marks the resources by itself.
		checkout: before[checkout] + "  sync: {mode: automated, prune: true, selfHeal: false}\n",
		grant:    strings.Replace(before[grant], "regions: [eu]", "regions: [eu, us]", 1)})
	workload, audited := f.workloadOf(t), len(f.audited(t))
	owners := f.watchOwners(t)

	permitted := ""
	permit := func(to *example.Place) {
		t.Helper()
		region, _, _ := strings.Cut(to.Engine, "-")
		if region == permitted {
			return
		}
		permitted = region
		f.commit(t, "staging belongs to "+region, map[string]string{environment: strings.Replace(
			before[environment], "region: eu", "region: "+region, 1)})
		f.allHealthy(t)
	}
	c.sides = [2]*example.Place{f.Place("eu-1"), f.Place("us-1")}
	cells := 0
	for _, step := range faultySteps {
		for i, fault := range moveFaults {
			if column, ok := inEachRun[step]; !*everyMoveFault && (!ok || column != i) {
				continue
			}
			permit(c.sides[1])
			took := c.meet(t, step, fault.begin)
			cells++
			t.Logf("%-8s %-50s %5.1f s", step, fault.name, took.Seconds())
			f.allHealthy(t)
			if now := f.workloadOf(t); !slices.Equal(workload, now) {
				t.Errorf("the workload was\n%q\nand is\n%q", workload, now)
			}
			for _, e := range f.audited(t)[audited:] {
				t.Errorf("during the move: %s", e)
			}
			if t.Failed() {
				t.Fatalf("%s: %s", step, fault.name)
			}
			if step != mirror.MoveReturn {
				slices.Reverse(c.sides[:])
			}
		}
	}
	if c.sides[0].Engine != "eu-1" {
		permit(c.sides[1])
		f.must(t, "move", "environment", staging, "--to", "eu-1", "--watch")
	}
	owners()
	f.commit(t, "as before", before)
	f.allHealthy(t)
	t.Logf("%d cells", cells)
}

// meet moves the environment from A to B, and begins the fault when the step is next. It returns
// how long that took.
func (c *faultyMove) meet(t *testing.T, step mirror.MoveStep,
	begin func(*testing.T, *faultyMove) (end, after func())) time.Duration {
	t.Helper()
	from, to := c.sides[0].Engine, c.sides[1].Engine
	eventually(t, "a dry run finds nothing against the move", func() string {
		out, errs, code := c.argosy(t, "move", "environment", staging, "--to", to, "--dry-run")
		return map[bool]string{true: out + errs}[code != 0]
	})
	c.next(t)
	began, unpause := time.Now(), func() {}
	c.must(t, "move", "environment", staging, "--to", to)
	if step == mirror.MoveReturn {
		c.reaches(t, mirror.MoveFreeze)
		adopts := c.sides[1].ArgoCD.Controller
		adopts.Pause()
		unpause = adopts.Resume
		defer adopts.Resume()
		c.reaches(t, mirror.MoveAdopt)
		defer c.undo(t, staging, from)()
		to = from
	}
	c.reaches(t, step)
	end, after := begin(t, c)
	limit, cancel := context.WithTimeout(t.Context(), faultLasts)
	stack.Until(limit, func() string { return c.unfinished(t, to) })
	cancel()
	end()
	unpause()
	eventually(t, "the move ends on "+to, func() string { return c.unfinished(t, to) })
	if after != nil {
		after()
	}
	return time.Since(began)
}

// undo requests the undo of a move. The returned function waits for the command, which waits for
// the control plane: the undo may end before it, and a fault may end it. Only where the environment
// is afterwards shows that the undo was accepted.
func (f *system) undo(t *testing.T, environment, engine string) (ended func()) {
	t.Helper()
	var command sync.WaitGroup
	command.Go(func() { f.argosy(t, "move", "environment", environment, "--to", engine) })
	return command.Wait
}

// reaches waits until a step of the environment's Application is next, or a later one.
func (m *movesOf) reaches(t *testing.T, step mirror.MoveStep) {
	t.Helper()
	order := append(slices.Clone(faultySteps), mirror.MoveDone)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		var now mirror.MoveStep
		err := m.conn.QueryRow(ctx, `SELECT step FROM application_moves WHERE tenant = $1
			AND environment = $2 AND operation <> $3`, m.tenant, m.environment, m.earlier).Scan(&now)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			t.Fatal(err)
		}
		if slices.Index(order, now) >= slices.Index(order, step) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the move does not come to %s: %q", step, now)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// unfinished returns why the engine does not serve the environment alone; "" if it does.
func (c *faultyMove) unfinished(t *testing.T, engine string) string {
	t.Helper()
	var open int
	c.query(t, &open, `SELECT count(*) FROM application_moves
		WHERE tenant = 'acme' AND environment = 'staging' AND step <> 'Done'`)
	if open > 0 {
		return fmt.Sprintf("%d Applications are moving", open)
	}
	name := fleet.ApplicationName(fleet.ApplicationID{Tenant: "acme",
		Deployment: "checkout-staging", Environment: "staging"})
	for _, side := range c.sides {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		o, err := c.onEngine(side.Engine).Get(ctx, name, metav1.GetOptions{})
		cancel()
		switch {
		case side.Engine != engine && apierrors.IsNotFound(err):
		case side.Engine != engine:
			return fmt.Sprintf("it is on %s too: %v", side.Engine, err)
		case err != nil:
			return err.Error()
		case !syncsByItself(o):
			return "it is not automated on " + engine
		}
	}
	return ""
}

// syncsByItself reports whether an Argo CD would sync the Application by itself.
func syncsByItself(o *unstructured.Unstructured) bool {
	policy, found, _ := unstructured.NestedMap(o.Object, "spec", "syncPolicy", "automated")
	return found && policy["enabled"] != false && o.GetDeletionTimestamp() == nil &&
		o.GetAnnotations()["argocd.argoproj.io/skip-reconcile"] != "true"
}

// watchOwners reads staging's Application on both engines until the returned function is called,
// and fails the test if both automate it at one time.
func (f *system) watchOwners(t *testing.T) (end func()) {
	t.Helper()
	name := fleet.ApplicationName(fleet.ApplicationID{Tenant: "acme",
		Deployment: "checkout-staging", Environment: "staging"})
	a, b := f.onEngine("eu-1"), f.onEngine("us-1")
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	version := func(of dynamic.ResourceInterface) string {
		limit, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		o, err := of.Get(limit, name, metav1.GetOptions{})
		if err != nil || !syncsByItself(o) {
			return ""
		}
		return fmt.Sprint(o.GetUID(), o.GetGeneration())
	}
	var ended sync.WaitGroup
	reads := 0
	ended.Go(func() {
		for ctx.Err() == nil {
			// Both were automated at the second read if the first one's answer still holds.
			first := version(a)
			if second := version(b); first != "" && second != "" && version(a) == first {
				t.Errorf("both engines automate %s", name)
				return
			}
			reads++
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	end = sync.OnceFunc(func() {
		cancel()
		ended.Wait()
		t.Logf("both engines were read %d times", reads)
	})
	t.Cleanup(end)
	return end
}
