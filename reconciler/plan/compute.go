package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
)

// Compute says what r changes. The AppliedState stays as it is.
//
// An error means that nothing may be done. A declaration that no object can be rendered from is no
// error: it is quarantined alone.
//
// A panic on the way quarantines the files that it comes from, and is an error when it comes from
// none.
func (w *AppliedState) Compute(r Request, render Renderer) (*Plan, error) {
	p, err := w.guarded(r, render)
	var failed *fault
	if errors.As(err, &failed) {
		return w.isolated(r, render, failed)
	}
	return p, err
}

func (w *AppliedState) compute(r Request, render Renderer) (*Plan, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	r, enforced := w.enforce(r)
	d, err := w.settle(r, enforced, render)
	if err != nil {
		return nil, err
	}
	return d.plan(w.waitsFor(d))
}

// settle drafts the plan, and again for as long as the draft takes away something that still
// stands: each time less of the head is let in.
func (w *AppliedState) settle(r Request, e enforcement, render Renderer) (*draft, error) {
	withheld, again, refused := map[fleet.Key]deferred{}, map[fleet.Key]bool{},
		map[fleet.Key]fleet.Problem{}
	for {
		d := w.draft(r, render, withheld, again, refused)
		d.enforcement = e
		if err := d.run(); err != nil {
			return nil, err
		}
		if len(d.unrendered) > 0 {
			if err := d.refuse(refused); err != nil {
				return nil, err
			}
			continue
		}
		if !d.withhold(withheld) && !d.unjudged(again) {
			return d, nil
		}
	}
}

// unjudged finds environments that get an engine, or another reason for having none, without their
// file having changed. They are judged again for the one purpose that all of their problems can be
// told anew with the plan.
func (d *draft) unjudged(again map[fleet.Key]bool) bool {
	n := len(again)
	var checked map[fleet.Key]bool
	for id := range d.decided {
		was, known := d.w.placements.base[id]
		if !known || was.Engine != "" {
			continue
		}
		if checked == nil {
			checked = map[fleet.Key]bool{}
			for _, k := range d.changeset.Checked() {
				checked[k] = true
			}
		}
		if k := environmentKey(id); !checked[k] {
			again[k] = true
		}
	}
	return len(again) > n
}

// draft is a plan in the making.
type draft struct {
	w         *AppliedState
	version   int
	r         Request
	render    Renderer
	changeset *catalog.Changeset
	changes   []catalog.Change
	after     fleet.FleetSpec
	state

	deferred map[fleet.Key]deferred // after this plan
	// environments whose removal is deferred: nothing is wanted in them
	going       map[fleet.EnvironmentID]bool
	blocked     bool
	started     bool // there was a revision before
	filesNow    files
	enforcement enforcement
	waitingNow  *fleet.Hold

	touchedApps         map[fleet.ApplicationID]bool // wanted or not
	touchedEnvironments map[fleet.EnvironmentID]bool
	touchedShares       map[share]bool
	touchedReaders      map[reader]bool
	retry               bool // environments without an engine may find one now
	needsEngines        bool // see Plan.NeedsEngines

	unwanted   []unwanted
	released   map[fleet.ApplicationID]bool
	rowChanges map[fleet.ObjectKey]*RowChange
	decided    map[fleet.EnvironmentID]fleet.Placement
	unplaced   map[fleet.EnvironmentID]bool
	freed      map[fleet.ObjectKey]bool
	approved   map[fleet.ObjectKey]bool
	syncs      []fleet.SyncRequest
	problems   []fleet.Problem
	unrendered []unrendered
}

func (w *AppliedState) draft(r Request, render Renderer, withheld map[fleet.Key]deferred,
	again map[fleet.Key]bool, refused map[fleet.Key]fleet.Problem) *draft {
	d := &draft{
		w: w, version: w.version, r: r, render: render, state: w.layered(),
		started:  w.revision != "",
		deferred: map[fleet.Key]deferred{}, going: map[fleet.EnvironmentID]bool{},
		touchedApps:         map[fleet.ApplicationID]bool{},
		touchedEnvironments: map[fleet.EnvironmentID]bool{}, touchedShares: map[share]bool{},
		touchedReaders: map[reader]bool{},
		released:       map[fleet.ApplicationID]bool{},
		rowChanges:     map[fleet.ObjectKey]*RowChange{},
		decided:        map[fleet.EnvironmentID]fleet.Placement{},
		unplaced:       map[fleet.EnvironmentID]bool{}, freed: map[fleet.ObjectKey]bool{},
		approved: map[fleet.ObjectKey]bool{},
	}
	maps.Copy(d.deferred, withheld)
	if d.r.Relation == "" {
		d.r.Relation = RelationDescendant
	}
	d.changeset = w.prepare(d.inputs(withheld), slices.SortedFunc(maps.Keys(again), compareDeclarations),
		refused, d)
	d.filesNow = d.filesAtHead()
	d.changes = d.changeset.Changes()
	d.after = d.changeset.Fleet()
	for _, x := range d.deferred {
		if x.Going {
			d.going[environmentID(x.Input.Key)] = true
		}
	}
	return d
}

// inputs is what the catalog is shown: the changed files, and what was deferred before unless its
// file has changed again. Without a change that could let it through, what is deferred stays so.
func (d *draft) inputs(withheld map[fleet.Key]deferred) []catalog.Input {
	in := slices.Clone(d.r.Files)
	changed := map[fleet.Key]bool{}
	for _, i := range d.r.Files {
		changed[i.Key] = true
	}
	for _, k := range slices.SortedFunc(maps.Keys(d.w.deferred), compareDeclarations) {
		if x := d.w.deferred[k]; !changed[k] && len(d.r.Files)+len(d.r.Gone) > 0 {
			in = append(in, x.Input)
		} else if !changed[k] {
			d.deferred[k] = x
		}
	}
	return stepped(d.w.catalog, in, withheld)
}

// stage judges the inputs, and once more without what cannot be rendered or would take an engine
// away from its environments.
func (w *AppliedState) prepare(in []catalog.Input, again []fleet.Key, unrendered map[fleet.Key]fleet.Problem,
	d *draft) *catalog.Changeset {
	s := w.judged(in, again, d)
	refused := slices.Collect(maps.Values(unrendered))
	// and not only the inputs: a quarantined file may have become good through another
	for _, c := range s.Changes() {
		if problem, inUse := w.connectionInUse(c, d); inUse {
			refused = append(refused, problem)
			d.deferred[c.Key] = deferred{Input: d.head(c.Key)}
			continue
		}
		name := fleet.EngineName(c.Key.Name)
		if c.Key.Kind != fleet.KindEngine || c.Before == nil || sameInstance(c.Before, c.After) ||
			!w.stillInUse(name, d.r.Gone) {
			continue
		}
		i := d.head(c.Key)
		refused = append(refused, w.engineInUse(i, name))
		d.deferred[c.Key] = deferred{Input: i}
	}
	if len(refused) == 0 {
		return s
	}
	return s.Refuse(refused...)
}

// connectionInUse reports whether a change takes an environment from one Argo CD to another while
// Applications stand in it.
func (w *AppliedState) connectionInUse(c catalog.Change, d *draft) (fleet.Problem, bool) {
	if c.Key.Kind != fleet.KindManagedEnvironment || c.Before == nil || c.After == nil ||
		sameConnection(c.Before.Environment, c.After.Environment) {
		return fleet.Problem{}, false
	}
	n := w.inhabited(environmentID(c.Key), d.r.Gone)
	if n == 0 {
		return fleet.Problem{}, false
	}
	return environmentInUse(d.head(c.Key), n, c.Before.Environment, c.After.Environment), true
}

// sameInstance reports whether a changed engine is still the one that its objects stand on.
func sameInstance(before, after *fleet.Declaration) bool {
	if after == nil {
		return false
	}
	a, b := before.Engine, after.Engine
	ref := func(c fleet.Connection) fleet.SecretRef {
		if c.KubeconfigRef == nil {
			return fleet.SecretRef{}
		}
		return *c.KubeconfigRef
	}
	return a.ArgoCD == b.ArgoCD && a.Connection.InCluster == b.Connection.InCluster &&
		ref(a.Connection) == ref(b.Connection) &&
		(a.Connection.Agent == nil) == (b.Connection.Agent == nil)
}

// stillInUse looks at the engine as it is when what is gone is gone.
func (w *AppliedState) stillInUse(name fleet.EngineName, gone []fleet.ObjectKey) bool {
	if !w.on.empty(name) {
		return true
	}
	left, _ := w.rowsOn.get(name)
	seen := map[fleet.ObjectKey]bool{}
	for _, k := range gone {
		if r, ok := w.rows.base[k]; ok && r.absent && k.Engine == name && !seen[k] {
			seen[k] = true
			left--
		}
	}
	return left > 0
}

func (w *AppliedState) engineInUse(i catalog.Input, name fleet.EngineName) fleet.Problem {
	n := w.on.size(name)
	p := fleet.Problem{Key: i.Key, Path: i.Path, Severity: fleet.SeverityError,
		Code: "engine-in-use"}
	serves := fmt.Sprintf("engine %s serves %s", name, count(n, "environment"))
	if n == 0 {
		left, _ := w.rowsOn.get(name)
		serves = fmt.Sprintf("%s of engine %s %s not removed yet", count(left, "object"), name,
			plural(left, "is", "are"))
	}
	if i.Removed {
		p.Message = serves + ": its declaration stays in force until they are gone"
		p.Fix =
			"restore the file; to empty the engine set spec.state: Draining and move its " +
				"environments"
		return p
	}
	p.Field = "spec.argocd"
	p.Message = serves + ": its argocd section and connection cannot change under them"
	p.Fix = "restore spec.argocd and spec.connection, or declare the new instance as another engine"
	return p
}

// run brings the draft's state to what the stage says.
func (d *draft) run() error {
	d.forgetGone()
	d.touch()
	d.removeEnvironments()
	d.beginSyncs()
	if err := d.applications(); err != nil {
		return err
	}
	if err := d.guard(); err != nil {
		return err
	}
	if err := d.placeWaiting(); err != nil {
		return err
	}
	d.verifyPlaced()
	if err := d.shared(); err != nil {
		return err
	}
	d.requestSyncs()
	return nil
}

func compareDeclarations(a, b fleet.Key) int {
	return slices.Compare([]string{string(a.Kind), string(a.Tenant), a.Name},
		[]string{string(b.Kind), string(b.Tenant), b.Name})
}

func count(n int, what string) string {
	return fmt.Sprintf("%d %s", n, plural(n, what, what+"s"))
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
