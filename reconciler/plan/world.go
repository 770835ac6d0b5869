package plan

import (
	"cmp"
	"slices"
	"sync"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
)

// AppliedState is what is applied, in memory. Any number of Computes may run at once; Commit waits for
// them.
type AppliedState struct {
	mu       sync.RWMutex
	version  int // grows with every Commit: a plan made before is outdated
	revision fleet.Revision
	catalog  *catalog.Catalog
	state
	deferred   map[fleet.Key]deferred
	unreviewed map[string]heldPath // by path
	files      files               // at the applied revision
	blocked    bool
	rebuilt    bool // argosy rebuild dropped the mirror
	waiting    *fleet.Hold
	memory     []byte // as it was stored last
}

// share is one tenant on one engine.
type share struct {
	tenant fleet.TenantName
	engine fleet.EngineName
}

// repo is one repository, in whatever spelling, on one engine.
type repo struct {
	engine fleet.EngineName
	key    string
}

// reader is one tenant's use of a repository on one engine.
type reader struct {
	repo
	tenant fleet.TenantName
}

// row is what is kept of a row.
type row struct {
	hash        string
	tenant      fleet.TenantName
	environment fleet.EnvironmentName
	deployment  fleet.DeploymentName
	credential  fleet.CredentialSource
	deletion    fleet.DeletionPolicy
	repoURL     string // of an Application
	absent      bool   // the object is not proven gone
}

func (r row) application() fleet.ApplicationID {
	return fleet.ApplicationID{Tenant: r.tenant, Deployment: r.deployment,
		Environment: r.environment}
}

// state is everything that a plan may change, as layers and counters over what the AppliedState holds. An
// Application stands as long as it has a row, absent or not, and is counted as long as it stands.
type state struct {
	placements     layer[fleet.EnvironmentID, fleet.Placement] // without alternatives
	unserved       layer[fleet.EnvironmentID, struct{}]        // in effect, without an engine
	misplaced      layer[fleet.EnvironmentID, struct{}]
	rows           layer[fleet.ObjectKey, row]
	rowsOn         layer[fleet.EngineName, int]
	loads          layer[fleet.EngineName, fleet.EngineLoad]
	held           layer[fleet.ApplicationID, held]
	applicationsOf layer[fleet.TenantName, int] // that stand
	leaving        layer[fleet.ObjectKey, leaving]
	syncHolds      layer[fleet.ApplicationID, fleet.SyncHold]

	environments counter[share, fleet.EnvironmentName]          // placed
	on           counter[fleet.EngineName, fleet.EnvironmentID] // the same by engine
	// the same by tenant: environments on each
	engines  counter[fleet.TenantName, fleet.EngineName]
	standing counter[fleet.EnvironmentID, fleet.EngineName] // Applications
	// Applications by the URL as it is written
	repos   counter[share, string]
	readers counter[repo, fleet.TenantName]        // Applications by tenant
	readIn  counter[reader, fleet.EnvironmentName] // Applications by environment
	// read by two tenants with credentials of their own
	contested layer[repo, struct{}]
}

func newState() state {
	return state{
		placements: over(map[fleet.EnvironmentID]fleet.Placement{}),
		unserved:   over(map[fleet.EnvironmentID]struct{}{}),
		misplaced:  over(map[fleet.EnvironmentID]struct{}{}),
		rows:       over(map[fleet.ObjectKey]row{}), rowsOn: over(map[fleet.EngineName]int{}),
		loads:          over(map[fleet.EngineName]fleet.EngineLoad{}),
		held:           over(map[fleet.ApplicationID]held{}),
		applicationsOf: over(map[fleet.TenantName]int{}),
		leaving:        over(map[fleet.ObjectKey]leaving{}),
		syncHolds:      over(map[fleet.ApplicationID]fleet.SyncHold{}),
		environments:   newCounter[share, fleet.EnvironmentName](), on: newCounter[fleet.EngineName,
			fleet.EnvironmentID](),
		engines:  newCounter[fleet.TenantName, fleet.EngineName](),
		standing: newCounter[fleet.EnvironmentID, fleet.EngineName](),
		repos:    newCounter[share, string](), readers: newCounter[repo, fleet.TenantName](),
		readIn:    newCounter[reader, fleet.EnvironmentName](),
		contested: over(map[repo]struct{}{}),
	}
}

// layered is the state to be changed without changing it.
func (s *state) layered() state {
	return state{
		placements: over(s.placements.base), unserved: over(s.unserved.base),
		misplaced: over(s.misplaced.base),
		rows:      over(s.rows.base), rowsOn: over(s.rowsOn.base), loads: over(s.loads.base),
		held: over(s.held.base), applicationsOf: over(s.applicationsOf.base),
		leaving: over(s.leaving.base), syncHolds: over(s.syncHolds.base),
		environments: s.environments.anew(), on: s.on.anew(), engines: s.engines.anew(),
		standing: s.standing.anew(),
		repos:    s.repos.anew(), readers: s.readers.anew(), readIn: s.readIn.anew(),
		contested: over(s.contested.base),
	}
}

func (s *state) fold() {
	s.placements.fold()
	s.unserved.fold()
	s.misplaced.fold()
	s.rows.fold()
	s.rowsOn.fold()
	s.loads.fold()
	s.held.fold()
	s.applicationsOf.fold()
	s.leaving.fold()
	s.syncHolds.fold()
	s.environments.fold()
	s.on.fold()
	s.engines.fold()
	s.standing.fold()
	s.repos.fold()
	s.readers.fold()
	s.readIn.fold()
	s.contested.fold()
}

// place counts an environment in on its engine (n = 1) or out (-1).
func (s *state) place(id fleet.EnvironmentID, engine fleet.EngineName, n int) {
	s.environments.add(share{id.Tenant, engine}, id.Name, n)
	s.on.add(engine, id, n)
	s.engines.add(id.Tenant, engine, n)
	l, _ := s.loads.get(engine)
	l.Environments += n
	s.loads.set(engine, l)
}

// crossings is what an Application's coming or going begins or ends.
type crossings struct {
	listed bool // the tenant's list of repositories on the engine changes
	used   bool // the tenant's use of the repository there begins or ends
	usedIn bool // the environment's does
}

// stand counts an Application in on its engine (n = 1) or out (-1).
func (s *state) stand(engine fleet.EngineName, id fleet.ApplicationID, url string,
	n int) (c crossings) {
	r := repo{engine, repoKey(url)}
	s.standing.add(id.In(), engine, n)
	c.listed = s.repos.add(share{id.Tenant, engine}, url, n)
	c.used = s.readers.add(r, id.Tenant, n)
	c.usedIn = s.readIn.add(reader{r, id.Tenant}, id.Environment, n)
	l, _ := s.loads.get(engine)
	l.Applications += n
	s.loads.set(engine, l)
	of, _ := s.applicationsOf.get(id.Tenant)
	s.applicationsOf.set(id.Tenant, of+n)
	return c
}

// put sets a row and counts it on its engine.
func (s *state) put(k fleet.ObjectKey, r row) {
	if _, ok := s.rows.get(k); !ok {
		n, _ := s.rowsOn.get(k.Engine)
		s.rowsOn.set(k.Engine, n+1)
	}
	s.rows.set(k, r)
}

func (s *state) remove(k fleet.ObjectKey) {
	if _, ok := s.rows.get(k); !ok {
		return
	}
	s.rows.drop(k)
	if n, _ := s.rowsOn.get(k.Engine); n > 1 {
		s.rowsOn.set(k.Engine, n-1)
	} else {
		s.rowsOn.drop(k.Engine)
	}
}

// NewAppliedState is a AppliedState in which nothing is applied yet.
func NewAppliedState() *AppliedState {
	return &AppliedState{catalog: catalog.New(), state: newState(), deferred: map[fleet.Key]deferred{}}
}

// Revision is the applied revision, "" before the first.
func (w *AppliedState) Revision() fleet.Revision {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.revision
}

// Catalog is the declarations in effect. It goes on with the AppliedState, and may be read by anybody
// meanwhile.
func (w *AppliedState) Catalog() *catalog.Catalog { return w.catalog }

// Leaving lists, sorted, the absent rows whose objects are not proven gone. Those that the store no
// longer has belong into Request.Gone. It costs the whole index, and is for a start and for the
// verifying pass.
func (w *AppliedState) Leaving() []fleet.ObjectKey {
	w.mu.RLock()
	defer w.mu.RUnlock()
	var keys []fleet.ObjectKey
	for k, r := range w.rows.base {
		if r.absent {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

// compareKeys orders objects by engine, then what others need first, then by name.
func compareKeys(a, b fleet.ObjectKey) int {
	return cmp.Or(cmp.Compare(a.Engine, b.Engine), a.Kind.Rank()-b.Kind.Rank(),
		cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

// Commit folds in a plan of this AppliedState that was recorded. A plan that was made before another one
// was committed is refused by a panic: its base no longer stands, and the store refuses its record
// too (fleet.ErrStale).
func (w *AppliedState) Commit(p *Plan) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := p.draft
	if d == nil || d.w != w || d.version != w.version {
		panic("plan: a plan was committed to a World that it was not made from; compute it again")
	}
	w.version++
	if p.memory != nil {
		w.memory = p.memory
	}
	w.waiting = d.waitingNow
	if p.Waiting != nil {
		return
	}
	d.changeset.Commit()
	d.state.fold()
	w.deferred, w.blocked, w.files, w.revision = d.deferred, d.blocked, d.filesNow, p.Head
	w.unreviewed, w.rebuilt = d.enforcement.held, false
}
