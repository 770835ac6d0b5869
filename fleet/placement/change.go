package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// ChangeKind is what happens to an engine in a simulation.
type ChangeKind string

// Kinds of changes. An engine that drains or is lost gives all its environments away; one that
// joins or gets another capacity takes environments, or gives some, until its load is near the
// average.
const (
	Drain ChangeKind = "drain"
	Join  ChangeKind = "join"
	Lose  ChangeKind = "lose"
	Scale ChangeKind = "scale"
	// Rebalance is the change of no engine: those with a high measured load give environments away.
	Rebalance ChangeKind = "rebalance"
)

// Change is a what-if about one engine.
type Change struct {
	Kind   ChangeKind       `json:"change"`
	Engine fleet.EngineName `json:"engine,omitempty"` // "" of Rebalance
	// Like is the declared engine whose region, labels, taints, dedication and capacity an engine
	// that is not declared yet joins with.
	Like fleet.EngineName `json:"like,omitempty"`
	// Capacity is the new one of Join and Scale; a field of 0 keeps its value.
	Capacity fleet.Capacity `json:"capacity,omitzero"`
	// Misplaced drains the engine of its misplaced environments alone.
	Misplaced bool `json:"-"`
	// Pool lets the engine take environments from the other serving instances of its pool alone. It
	// gives none, and none that waits is placed; of Join.
	Pool string `json:"-"`
}

// Snapshot is a fleet at one moment.
type Snapshot struct {
	Engines      []Engine
	Environments []Served
	// Measured is the CPU in use of the engines that are measured, in cores; for Rebalance.
	Measured map[fleet.EngineName]float64
	// Conflicts returns why an engine cannot take a slice from another one ("": it waits for one)
	// for a reason that placement does not know, or "". nil: there is none.
	Conflicts func(id fleet.SliceID, from, to fleet.EngineName) string
	// Halves divides a slice that fits on no engine; false if it cannot be divided. nil: none is.
	Halves func(Served) (first, second Served, ok bool)
}

// Served is an environment with the engine that serves it.
type Served struct {
	Item
	Engine  fleet.EngineName // "": it waits for one
	Fixed   string           // why it cannot leave its engine, or ""
	Own     fleet.EngineName // its own cluster, where its declaration wants it; "": anywhere
	Unready int              // Applications that are not Synced and Healthy
	// Misplaced: its engine violates a constraint
	Misplaced bool
	// Reads are the repositories that it reads with a credential of its tenant, ReadsOpen those
	// that it reads without one: no two tenants read one repository on one engine if one of them
	// has a credential. Repositories that the platform shares are in neither.
	Reads     []string
	ReadsOpen []string
	// Adopts are the names of Applications that it brings to its engine: no two environments bring
	// one name to one engine.
	Adopts []string
}

// Outcome is what a change leads to.
type Outcome struct {
	Change
	// Moves are in the order in which they are made: the riskiest last.
	Moves []Move `json:"moves"`
	// Left are the environments that should move, or wait for an engine, and get none.
	Left    []Left   `json:"left"`
	Engines []Effect `json:"engines"` // by name
}

// Move is an environment that gets another engine.
type Move struct {
	Environment fleet.EnvironmentID `json:"environment"`
	Slice       fleet.Slice         `json:"slice,omitempty"` // of the environment
	// the slice is halved, and its second half moves
	Split        bool             `json:"split,omitempty"`
	From         fleet.EngineName `json:"from,omitempty"` // "": it waited for an engine
	To           fleet.EngineName `json:"to"`
	Applications int              `json:"applications"`
	Unready      int              `json:"unready,omitempty"` // of them, not Synced and Healthy
}

// ID identifies the placed slice that the move names.
func (m Move) ID() fleet.SliceID { return m.Environment.Slice(m.Slice) }

// ID identifies the slice that stays.
func (l Left) ID() fleet.SliceID { return l.Environment.Slice(l.Slice) }

// Left is an environment that stays where it is.
type Left struct {
	Environment  fleet.EnvironmentID `json:"environment"`
	Slice        fleet.Slice         `json:"slice,omitempty"`  // of the environment
	Engine       fleet.EngineName    `json:"engine,omitempty"` // "": it waits for one
	Applications int                 `json:"applications"`
	Reason       string              `json:"reason"`
}

// Effect is an engine before and after the change and its moves.
type Effect struct {
	Engine   fleet.EngineName  `json:"engine"`
	State    fleet.EngineState `json:"state"`    // after the change
	Capacity fleet.Capacity    `json:"capacity"` // after the change
	Before   fleet.EngineLoad  `json:"before"`
	After    fleet.EngineLoad  `json:"after"`
	Measured *Use              `json:"measured,omitempty"` // of Rebalance
}

// Use is the CPU of an engine, in cores.
type Use struct {
	Before float64 `json:"before"`
	After  float64 `json:"after"` // by the Applications that move
	// the engine is not measured: its Applications count, each as an average one
	Estimated bool `json:"estimated,omitempty"`
}

// Lost is the state of an engine that a change loses.
const Lost fleet.EngineState = "Lost"

// Simulate returns what a change leads to, by these rules:
//
//   - no move violates a constraint, a conflict or a capacity, in the order of the moves;
//   - an engine that drains or is lost gives every environment away, each to the engine that is the
//     least loaded with it, after the earlier moves. No other environment moves;
//   - an engine that joins or is scaled takes or gives only while it or the other engine is
//     outside of the bound: see relieve;
//   - engines with a high measured load are relieved: see rebalance;
//   - the riskiest environments come last: those with more Applications that are not Synced and
//     Healthy, then those with more Applications.
//
// The same snapshot gives the same outcome, in any order of its lists. After any number of moves
// off a draining engine, Simulate returns the remaining moves.
func Simulate(s Snapshot, c Change) (Outcome, error) {
	m, err := newSimulation(s, c)
	if err != nil {
		return Outcome{}, err
	}
	switch c.Kind {
	case Drain, Lose:
		m.evacuate()
	case Join, Scale:
		if c.Pool == "" {
			m.placeWaiting()
		}
		m.relieve()
	case Rebalance:
		if err := m.rebalance(); err != nil {
			return Outcome{}, err
		}
	default:
		return Outcome{}, &ImpossibleError{Why: fmt.Sprintf("%q is no change of an engine", c.Kind),
			Fix: "write drain, join, lose, scale or rebalance"}
	}
	return m.outcome(), nil
}

// ImpossibleError is a change that cannot be simulated.
type ImpossibleError struct{ Why, Fix string }

// Error implements error.
func (e *ImpossibleError) Error() string { return e.Why + "; " + e.Fix }

func undeclared(e fleet.EngineName) error {
	return &ImpossibleError{Why: fmt.Sprintf("engine %s is not declared", e),
		Fix: "`argosy get engines` lists the engines"}
}

// simulation is a fleet that changes with each move.
type simulation struct {
	Snapshot
	*Fleet
	change    Change
	subject   int // the index of the change's engine
	before    []fleet.EngineLoad
	arrived   map[arrival]readers
	names     map[arrival]bool
	givers    [][]*Served // by engine: see findGivers
	exchanged []exchange
	moves     []Move
	left      []Left

	// of Rebalance
	cores, coresBefore []float64                 // by engine
	parts              map[fleet.SliceID]float64 // of its engine's cores
	gives              []bool                    // engines that are relieved
}

// arrival is a repository that environments read on the engine to which they have moved, or the
// name of an Application that they adopt there.
type arrival struct {
	engine fleet.EngineName
	what   string
}

func newSimulation(s Snapshot, c Change) (*simulation, error) {
	engines := slices.SortedFunc(slices.Values(s.Engines), func(a, b Engine) int {
		return strings.Compare(string(a.Name), string(b.Name))
	})
	at := func(name fleet.EngineName) int {
		return slices.IndexFunc(engines, func(e Engine) bool { return e.Name == name })
	}
	subject := at(c.Engine)
	switch {
	case c.Kind == Rebalance && c.Engine != "":
		return nil, &ImpossibleError{Why: "a rebalance concerns all engines",
			Fix: "leave out the engine"}
	case c.Kind == Rebalance:
	case c.Engine == "":
		return nil, &ImpossibleError{Why: "no engine is named", Fix: "name the engine that changes"}
	case subject < 0 && c.Kind != Join:
		return nil, undeclared(c.Engine)
	case subject < 0 && c.Like == "":
		return nil, &ImpossibleError{Why: fmt.Sprintf("engine %s is not declared", c.Engine),
			Fix: "declare it under fleet/engines/, or name a declared engine that it is like"}
	case subject >= 0 && c.Like != "":
		return nil, &ImpossibleError{Why: fmt.Sprintf("engine %s is declared", c.Engine),
			Fix: "leave out the engine that it is like"}
	case subject < 0:
		like := at(c.Like)
		if like < 0 {
			return nil, undeclared(c.Like)
		}
		joining := engines[like]
		joining.Name, joining.Load = c.Engine, fleet.EngineLoad{}
		engines = append(engines, joining)
		subject = len(engines) - 1
	}
	if subject >= 0 {
		change(&engines[subject], c)
	}
	m := &simulation{Snapshot: s, Fleet: newFleet(engines), change: c, subject: subject,
		arrived: map[arrival]readers{}, names: map[arrival]bool{},
		moves: []Move{}, left: []Left{}, parts: map[fleet.SliceID]float64{}}
	m.Environments = slices.SortedFunc(slices.Values(s.Environments), compareRisk)
	for _, e := range engines {
		m.before = append(m.before, e.Load)
	}
	return m, nil
}

// change gives an engine the state and the capacity of the change.
func change(e *Engine, c Change) {
	switch c.Kind {
	case Drain, Lose:
		e.Spec.State = fleet.EngineDraining
	case Join:
		e.Spec.State = fleet.EngineActive
	}
	if c.Capacity.Applications > 0 {
		e.Spec.Capacity.Applications = c.Capacity.Applications
	}
	if c.Capacity.Environments > 0 {
		e.Spec.Capacity.Environments = c.Capacity.Environments
	}
}

// compareRisk orders environments by the risk of their move, then by name.
func compareRisk(a, b Served) int {
	return cmp.Or(cmp.Compare(a.Unready, b.Unready), cmp.Compare(a.Applications, b.Applications),
		compareNames(a.ID(), b.ID()))
}

func compareNames(a, b fleet.SliceID) int { return a.Compare(b) }

// evacuate moves every environment off the change's engine, or every misplaced one.
func (m *simulation) evacuate() {
	for i := range m.Environments {
		e := &m.Environments[i]
		if e.Engine != m.change.Engine || m.change.Misplaced && !e.Misplaced {
			continue
		}
		if e.Fixed != "" {
			m.leave(e, e.Fixed)
			continue
		}
		if e.Own != "" {
			m.depart(e, e.Own)
			continue
		}
		m.place(e, (*round).least)
	}
}

// placeWaiting places the environments that wait for an engine, as the plan of the change does: in
// the order of their names, before anything moves.
func (m *simulation) placeWaiting() {
	var waiting []*Served
	for i := range m.Environments {
		if e := &m.Environments[i]; e.Engine == "" {
			waiting = append(waiting, e)
		}
	}
	slices.SortFunc(waiting, func(a, b *Served) int {
		return compareNames(a.ID(), b.ID())
	})
	for _, e := range waiting {
		m.place(e, (*round).choose)
	}
}

// place moves an environment to the engine that choose returns, or leaves it where it is.
func (m *simulation) place(e *Served, choose func(*round) int) {
	r := m.hold(e.Item, func(engine fleet.EngineName) string { return m.conflict(e, engine) })
	to := choose(&r)
	switch {
	case to >= 0:
		m.move(e, to)
	case !m.divide(e, choose):
		m.leave(e, r.hopeless(r.tooLarge()))
	}
}

// divide divides a slice that fits on no engine: its second half moves, and then its first half is
// placed, which may be divided again. It reports whether the second half has an engine.
func (m *simulation) divide(e *Served, choose func(*round) int) bool {
	if m.Halves == nil || e.Engine == "" {
		return false
	}
	first, second, ok := m.Halves(*e)
	if !ok {
		return false
	}
	r := m.hold(second.Item, func(engine fleet.EngineName) string {
		return m.conflict(&second, engine)
	})
	to := choose(&r)
	if to < 0 {
		return false
	}
	from := m.index(e.Engine)
	load := m.engines[from].Load
	load.Environments++
	m.carry(from, load)
	m.move(&second, to)
	last := &m.moves[len(m.moves)-1]
	last.Slice, last.Split = e.Slice, true
	m.place(&first, choose)
	return true
}

func (m *simulation) leave(e *Served, why string) {
	m.left = append(m.left, Left{Environment: e.Environment, Slice: e.Slice, Engine: e.Engine,
		Applications: e.Applications, Reason: why})
}

// conflict returns why an engine cannot take an environment besides placement's own reasons: the
// snapshot's conflicts, and repositories of environments that have moved there.
func (m *simulation) conflict(e *Served, engine fleet.EngineName) string {
	if m.Conflicts != nil {
		if why := m.Conflicts(e.ID(), e.Engine, engine); why != "" {
			return why
		}
	}
	for _, repository := range e.Reads {
		if m.arrived[arrival{engine, repository}].besides(e.Environment.Tenant) {
			return CredentialConflict(repository)
		}
	}
	for _, repository := range e.ReadsOpen {
		there := m.arrived[arrival{engine, repository}]
		if there.private && there.besides(e.Environment.Tenant) {
			return CredentialConflict(repository)
		}
	}
	for _, name := range e.Adopts {
		if m.names[arrival{engine, name}] {
			return NameConflict(name)
		}
	}
	return ""
}

// readers are the tenants that read a repository and have moved to an engine.
type readers struct {
	tenant  fleet.TenantName // the first one
	several bool             // there is another one
	private bool             // with a credential: then there is no other one
}

// besides reports whether another tenant is among the readers.
func (r readers) besides(t fleet.TenantName) bool {
	return r.several || r.tenant != "" && r.tenant != t
}

func (m *simulation) arrive(at arrival, t fleet.TenantName, private bool) {
	r := m.arrived[at]
	r.several, r.private = r.besides(t), r.private || private
	if r.tenant == "" {
		r.tenant = t
	}
	m.arrived[at] = r
}

// NameConflict is why an engine cannot take an environment with an adopted Application.
func NameConflict(name string) string { return "has another Application of the name " + name }

// CredentialConflict is why an engine cannot take an environment that reads a repository which
// another tenant reads there, if one of the two has a credential of its own. It does not name the
// other tenant.
func CredentialConflict(repository string) string {
	return servesReader + repository +
		", and one of the two has a credential of its own"
}

const (
	servesReader = "already serves another tenant that reads "
	hasClone     = "has a clone of "
)

// KeepsReadersApart reports whether a reason is a CredentialConflict or a CloneConflict.
func KeepsReadersApart(reason string) bool {
	return strings.HasPrefix(reason, servesReader) || strings.HasPrefix(reason, hasClone)
}

// CloneConflict is why an engine cannot take an environment that begins to read a repository there.
func CloneConflict(repository string) string {
	return hasClone + repository + " that another tenant left behind, which read it with " +
		"a credential of its own: replace the Pods of the repo-server, and write when to " +
		"repoServerRestartedAt of the Engine"
}

func (m *simulation) move(e *Served, to int) {
	target := m.engines[to].Name
	m.depart(e, target)
	m.carry(to, with(m.engines[to].Load, e.Item))
	for _, repository := range e.Reads {
		m.arrive(arrival{target, repository}, e.Environment.Tenant, true)
	}
	for _, repository := range e.ReadsOpen {
		m.arrive(arrival{target, repository}, e.Environment.Tenant, false)
	}
	for _, name := range e.Adopts {
		m.names[arrival{target, name}] = true
	}
}

// depart takes an environment off its engine.
func (m *simulation) depart(e *Served, to fleet.EngineName) {
	m.moves = append(m.moves, Move{Environment: e.Environment, Slice: e.Slice, From: e.Engine,
		To: to, Applications: e.Applications, Unready: e.Unready})
	if from := m.index(e.Engine); from >= 0 {
		m.carry(from, without(m.engines[from].Load, e.Item))
	}
	e.Engine = to
}

func with(l fleet.EngineLoad, i Item) fleet.EngineLoad {
	return fleet.EngineLoad{Applications: l.Applications + i.Applications,
		Environments: l.Environments + 1}
}

func without(l fleet.EngineLoad, i Item) fleet.EngineLoad {
	return fleet.EngineLoad{Applications: max(0, l.Applications-i.Applications),
		Environments: max(0, l.Environments-1)}
}

func (m *simulation) outcome() Outcome {
	out := Outcome{Change: m.change, Moves: m.moves, Left: m.left}
	for _, i := range m.byName {
		e := &m.engines[i]
		effect := Effect{Engine: e.Name, State: e.Spec.State, Capacity: e.Spec.Capacity,
			Before: m.before[i], After: e.Load}
		switch {
		case i == m.subject && m.change.Kind == Lose:
			effect.State = Lost
		case effect.State == "":
			effect.State = fleet.EngineActive
		}
		if m.cores != nil {
			_, measured := m.Measured[e.Name]
			effect.Measured = &Use{Before: m.coresBefore[i], After: m.cores[i],
				Estimated: !measured}
		}
		out.Engines = append(out.Engines, effect)
	}
	return out
}
