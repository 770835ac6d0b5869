package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/engine/enginetest"
	"argosy.dev/argosy/fleet/mirror"
)

// knownRows knows which engines have the Application.
type knownRows struct {
	noRows
	elsewhere mirror.Elsewhere
	err       error
	current   *mirror.Row // nil: there is no row any more
}

func (r knownRows) LeasedRow(context.Context, mirror.Lease, fleet.ObjectKey) (mirror.Row, bool,
	error) {
	if r.current == nil {
		return mirror.Row{}, false, nil
	}
	return *r.current, true, nil
}

func (r knownRows) Elsewhere(context.Context, fleet.ObjectKey) (mirror.Elsewhere, error) {
	return r.elsewhere, r.err
}

func (knownRows) ReportInventory(context.Context, mirror.Lease) error { return nil }

// listedEngine has these objects.
type listedEngine struct {
	engine.Engine
	objects []engine.Live
}

func (e listedEngine) Inventory() []engine.Live { return e.objects }

func (e listedEngine) Live(key fleet.ObjectKey) (engine.Live, bool) {
	for _, o := range e.objects {
		if o.Key == key {
			return o, true
		}
	}
	return engine.Live{}, false
}

// inHalf returns the names of deployments in a half of an environment.
func inHalf(half fleet.Slice, n int) (names []fleet.DeploymentName) {
	for i := 0; len(names) < n; i++ {
		if name := fleet.DeploymentName(fmt.Sprint("d-", i)); half.Holds(name) {
			names = append(names, name)
		}
	}
	return names
}

func TestAnApplicationThatAnotherEngineMayHaveIsNotCreated(t *testing.T) {
	row := movingRow()
	row.Moving = false
	live := func(change func(*engine.Live)) []engine.Live {
		l := engine.Live{Key: fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectApplication,
			Name: "another"}, Tenant: "acme", Environment: "prod", Ours: true}
		change(&l)
		return []engine.Live{l}
	}
	half := func(half fleet.Slice, n int) (all []engine.Live) {
		for _, name := range inHalf(half, n) {
			all = append(all, live(func(l *engine.Live) { l.Deployment = name })...)
		}
		return all
	}
	in := func(half fleet.Slice, nth int) func(*mirror.Row) {
		return func(r *mirror.Row) { r.Deployment = inHalf(half, nth)[nth-1] }
	}
	unread := mirror.Elsewhere{Unread: "eu-2"}
	for name, c := range map[string]struct {
		known   mirror.Elsewhere
		err     error
		objects []engine.Live
		change  func(*mirror.Row)
		why     string // "": it is created
	}{
		"nothing is elsewhere": {},
		"another engine has it": {known: mirror.Elsewhere{Found: "eu-2"},
			why: "argosy move environment acme/prod --to eu-2"},
		"another engine was not read": {known: unread, why: "engine eu-2 may have it"},
		"the environment is served here": {known: unread,
			objects: live(func(*engine.Live) {})},
		"the environment leaves": {known: unread, why: "may have it",
			objects: live(func(l *engine.Live) { l.Leaving = true })},
		"the environment arrives": {known: unread, why: "may have it",
			objects: live(func(l *engine.Live) { l.Arriving = true })},
		"its half of the environment is served here": {known: unread,
			objects: half("0", 16), change: in("0", 17)},
		"another half of the environment is served here": {known: unread, why: "may have it",
			objects: half("0", 16), change: in("1", 1)},
		"few Applications prove no split": {known: unread, objects: half("0", 15),
			change: in("1", 1)},
		"another environment is served here": {known: unread, why: "may have it",
			objects: live(func(l *engine.Live) { l.Environment = "staging" })},
		"it exists here": {known: mirror.Elsewhere{Found: "eu-2"},
			objects: live(func(l *engine.Live) { l.Key = row.Key })},
		"a deletion": {known: mirror.Elsewhere{Found: "eu-2"},
			change: func(r *mirror.Row) { r.Unwanted = true }},
		"a cluster": {known: mirror.Elsewhere{Found: "eu-2"},
			change: func(r *mirror.Row) { r.Key.Kind = fleet.ObjectCluster }},
		"the store does not answer": {err: errors.New("no route"), why: "no route"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := workOn(t, enginetest.NewServer(), 0, time.Hour)
				s.target = listedEngine{s.target, c.objects}
				task := &task{row: row}
				if c.change != nil {
					c.change(&task.row)
				}
				s.Rows = knownRows{elsewhere: c.known, err: c.err, current: &task.row}
				pause, waits := s.waitElsewhere(t.Context(), task)
				if waits != (c.why != "") || waits && pause == 0 ||
					!strings.Contains(task.reason, c.why) {
					t.Errorf("waits %t for %s: %q", waits, pause, task.reason)
				}
			})
		})
	}
}

// A move that is recorded meanwhile gives the object on another engine a row, so that it is
// elsewhere no longer: an Application is not created from an older row.
func TestAnApplicationIsNotCreatedFromARowThatAMoveHasReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := workOn(t, enginetest.NewServer(), 0, time.Hour)
		s.target = listedEngine{s.target, nil}
		row := movingRow()
		row.Moving = false
		for name, now := range map[string]*mirror.Row{"it is gone": nil,
			"it leaves": {Key: row.Key, Seq: row.Seq + 1, Unwanted: true}} {
			s.Rows = knownRows{current: now}
			if pause, waits := s.waitElsewhere(t.Context(), &task{row: row}); !waits || pause != 0 {
				t.Errorf("%s: waits %t for %s", name, waits, pause)
			}
		}
	})
}
