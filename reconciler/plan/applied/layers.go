package applied

import (
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// Share is one tenant on one engine.
type Share struct {
	Tenant fleet.TenantName
	Engine fleet.EngineName
}

// Repo is one repository on one engine. Spellings of one URL have the same Key: see RepoKey.
type Repo struct {
	Engine fleet.EngineName
	Key    string
}

// Reader is one tenant's use of a repository on one engine.
type Reader struct {
	Repo
	Tenant fleet.TenantName
}

// Row is the index entry of a row: the row without its manifest.
type Row struct {
	Hash        string
	Tenant      fleet.TenantName
	Environment fleet.EnvironmentName
	Deployment  fleet.DeploymentName
	Credential  fleet.CredentialSource
	Deletion    fleet.DeletionPolicy
	RepoURLs    fleet.RepoURLs // of an Application
	Use                        // of an Application
	Unwanted    bool           // its object is not proven deleted
}

// Use is the part of its environment that an Application uses.
type Use struct {
	// Namespaces are those that the Application deploys to or did before, sorted, with a space
	// between them. Argo CD prunes what an Application left behind in its former namespace.
	Namespaces string `json:"namespaces,omitempty"`
	Creates    bool   `json:"creates,omitempty"` // CreateNamespace
}

// Moved is an Application that changed its namespace.
type Moved struct {
	Key        fleet.ObjectKey `json:"key"`
	Namespaces string          `json:"namespaces"` // all that it used, as in Use
}

// UseOf returns the use of an Application that is rendered from a target.
func (l *Layers) UseOf(k fleet.ObjectKey, t fleet.Target) Use {
	before, _ := l.Rows.Get(k)
	moved, _ := l.Moved.Get(k)
	u := Use{Namespaces: t.Namespace, Creates: t.Sync.CreateNamespace}
	if former := before.Namespaces + moved; former != "" && former != t.Namespace {
		all := append(strings.Fields(before.Namespaces+" "+moved), t.Namespace)
		slices.Sort(all)
		u.Namespaces = strings.Join(slices.Compact(all), " ")
	}
	return u
}

// moved reports whether the Application used another namespace before.
func (u Use) moved() bool { return strings.Contains(u.Namespaces, " ") }

// SetUse remembers the use of an Application that moved.
func (l *Layers) SetUse(k fleet.ObjectKey, u Use) {
	if u.moved() {
		l.Moved.Set(k, u.Namespaces)
	}
}

// Application is the Application of an Application's row.
func (r Row) Application() fleet.ApplicationID {
	return fleet.ApplicationID{
		Tenant: r.Tenant, Deployment: r.Deployment, Environment: r.Environment,
	}
}

// Layers is everything that a plan may change. An Application counts as existing as long as it has
// a row, wanted or not.
type Layers struct {
	Placements          Layer[fleet.SliceID, fleet.Placement]     // without alternatives
	Slices              Layer[fleet.EnvironmentID, []fleet.Slice] // of split environments, sorted
	Unplaced            Layer[fleet.SliceID, struct{}]            // in effect, without an engine
	Rows                Layer[fleet.ObjectKey, Row]
	RowsOn              Layer[fleet.EngineName, int]
	Loads               Layer[fleet.EngineName, fleet.EngineLoad]
	Held                Layer[fleet.ApplicationID, Held]
	Frozen              Layer[fleet.ApplicationID, Frozen]
	ApplicationsOf      Layer[fleet.TenantName, int] // existing
	Terminating         Layer[fleet.ObjectKey, Terminating]
	SyncHolds           Layer[fleet.ApplicationID, mirror.SyncHold]
	Moved               Layer[fleet.ObjectKey, string]
	CredentialConflicts Layer[Repo, struct{}]       // whose readers must not share the engine
	Clones              Layer[Repo, []mirror.Clone] // that tenants left behind

	Environments   Counter[Share, fleet.EnvironmentName]          // placed
	EnvironmentsOn Counter[fleet.EngineName, fleet.EnvironmentID] // the same by engine
	EnginesOf      Counter[fleet.TenantName, fleet.EngineName]    // the same by tenant
	ApplicationsIn Counter[fleet.SliceID, fleet.EngineName]       // Applications
	Repos          Counter[Share, string]                         // uses by source URL
	Readers        Counter[Repo, fleet.TenantName]                // uses by tenant
	ReadIn         Counter[Reader, fleet.EnvironmentName]         // uses by environment
	PrivateReaders Counter[Repo, fleet.TenantName]                // see SetPrivate
	Spellings      Counter[Reader, string]                        // uses by URLs other than Key
	NamespacesIn   Counter[fleet.EnvironmentID, string]           // Applications by namespace
	Creators       Counter[Share, struct{}]                       // with CreateNamespace

	Rollouts Layer[fleet.DeploymentID, mirror.Rollout] // that have not ended
	// EndedRollouts are those that end with the plan of a draft.
	EndedRollouts Once[mirror.Rollout]
}

// SetRollout changes the rollout of a deployment, and forgets a rollout that has ended.
func (l *Layers) SetRollout(r mirror.Rollout) {
	if r.State.Ended() {
		l.Rollouts.Delete(r.Of())
		l.EndedRollouts.Add(r)
		return
	}
	l.Rollouts.Set(r.Of(), r)
}

// Rolling returns the place of an Application in the members of its deployment's rollout, or -1.
func (l *Layers) Rolling(id fleet.ApplicationID) (mirror.Rollout, int) {
	r, _ := l.Rollouts.Get(id.Deployed())
	return r, r.Member(id.Environment)
}

// layer is one field of Layers.
type layer interface {
	init()
	commit()
}

// all lists the layers, once for every function that goes through them.
func (l *Layers) all() [27]layer {
	return [...]layer{
		&l.Placements, &l.Unplaced, &l.Rows, &l.RowsOn, &l.Loads, &l.Held, &l.ApplicationsOf,
		&l.Terminating, &l.SyncHolds, &l.CredentialConflicts, &l.Environments, &l.EnvironmentsOn,
		&l.EnginesOf, &l.ApplicationsIn,
		&l.Repos, &l.Readers, &l.ReadIn, &l.PrivateReaders, &l.Spellings, &l.NamespacesIn,
		&l.Creators, &l.Moved, &l.Clones, &l.Slices, &l.Frozen, &l.Rollouts, &l.EndedRollouts,
	}
}

// Draft returns committed layers for changes that leave the receiver as it is until Commit.
func (l *Layers) Draft() *Layers {
	draft := *l
	return &draft
}

// Commit makes the changes of a draft in the layers that it was made from.
func (l *Layers) Commit() {
	for _, layer := range l.all() {
		layer.commit()
	}
}

// Place adds a slice of an environment to an engine (n = 1) or removes it (-1). A slice is as much
// load as an environment.
func (l *Layers) Place(id fleet.EnvironmentID, engine fleet.EngineName, n int) {
	l.Environments.Add(Share{id.Tenant, engine}, id.Name, n)
	l.EnvironmentsOn.Add(engine, id, n)
	l.EnginesOf.Add(id.Tenant, engine, n)
	load, _ := l.Loads.Get(engine)
	load.Environments += n
	l.Loads.Set(engine, load)
}

// ReferenceChanges is what begins or ends with an Application's use of a repository.
type ReferenceChanges struct {
	Listed bool // the tenant's list of repositories on the engine changes
	Used   bool // the tenant's use of the repository there begins or ends
	UsedIn bool // the environment's does
	// the spellings of the repository's URL that the tenant uses there change
	Respelled bool
}

// CountRead adds the use of one repository by an Application (n = 1) or removes it (-1).
func (l *Layers) CountRead(
	engine fleet.EngineName, id fleet.ApplicationID, url string, n int,
) (c ReferenceChanges) {
	r := Repo{engine, RepoKey(url)}
	c.Listed = l.Repos.Add(Share{id.Tenant, engine}, url, n)
	c.Used = l.Readers.Add(r, id.Tenant, n)
	c.UsedIn = l.ReadIn.Add(Reader{r, id.Tenant}, id.Environment, n)
	if url != r.Key {
		c.Respelled = l.Spellings.Add(Reader{r, id.Tenant}, url, n)
	}
	return c
}

// SetPrivate records whether a tenant reads a repository on an engine with a credential of its own.
// A repository that the platform shares has no such reader.
func (l *Layers) SetPrivate(r Reader, private bool) {
	switch was := l.PrivateReaders.Count(r.Repo, r.Tenant) > 0; {
	case private && !was:
		l.PrivateReaders.Add(r.Repo, r.Tenant, 1)
	case was && !private:
		l.PrivateReaders.Add(r.Repo, r.Tenant, -1)
	}
}

// Conflicting reports whether tenants who must not share the engine read a repository there: two or
// more, of whom one has a credential of its own.
func (l *Layers) Conflicting(r Repo) bool {
	return l.PrivateReaders.Size(r) > 0 && l.Readers.Size(r) > 1
}

// Separated reports whether a tenant must not read a repository on an engine because of another
// tenant that reads it there: one of the two has, or would have, a credential of its own. Argo CD
// keeps one clone of a repository for all of its readers. It costs the revision's changes, however
// many tenants read the repository.
func (l *Layers) Separated(r Reader, private bool) bool {
	others, owners := l.Readers.Size(r.Repo), l.PrivateReaders.Size(r.Repo)
	if l.Readers.Count(r.Repo, r.Tenant) > 0 {
		others--
	}
	if l.PrivateReaders.Count(r.Repo, r.Tenant) > 0 {
		owners--
	}
	return owners > 0 || private && others > 0
}

// URLOf returns the URL of a repository as a tenant's Applications on the engine spell it. Of
// several spellings, which Argo CD takes for one repository, it is the first that differs from the
// key: a case-sensitive Git host does not have a URL in lower case.
func (l *Layers) URLOf(r Reader) string {
	if urls := l.Spellings.Keys(r); len(urls) > 0 {
		return slices.Min(urls)
	}
	return r.Key
}

// KeysBelow returns the keys of the repositories of a folder that a tenant's Applications on an
// engine read. It costs all that they read.
func (l *Layers) KeysBelow(s Share, folder string) []string {
	var keys []string
	for _, url := range l.Repos.Keys(s) {
		if key := RepoKey(url); fleet.RepoScopeCovers(folder, key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// CountUse adds an Application's use of its environment (n = 1) or removes it (-1). It reports
// whether the environment's namespaces in use change, and whether the tenant's first Application
// with CreateNamespace on the engine appears or the last one disappears.
func (l *Layers) CountUse(
	engine fleet.EngineName, id fleet.ApplicationID, u Use, n int,
) (namespaces, creates bool) {
	for ns := range strings.FieldsSeq(u.Namespaces) {
		namespaces = l.NamespacesIn.Add(id.In(), ns, n) || namespaces
	}
	if u.Creates {
		creates = l.Creators.Add(Share{id.Tenant, engine}, struct{}{}, n)
	}
	return namespaces, creates
}

// CountApplication adds an Application to its engine (n = 1) or removes it (-1).
func (l *Layers) CountApplication(engine fleet.EngineName, id fleet.ApplicationID, n int) {
	l.ApplicationsIn.Add(l.SliceOf(id), engine, n)
	load, _ := l.Loads.Get(engine)
	load.Applications += n
	l.Loads.Set(engine, load)
	of, _ := l.ApplicationsOf.Get(id.Tenant)
	l.ApplicationsOf.Set(id.Tenant, of+n)
}

// SetRow sets a row and counts it on its engine.
func (l *Layers) SetRow(k fleet.ObjectKey, r Row) {
	if _, ok := l.Rows.Get(k); !ok {
		n, _ := l.RowsOn.Get(k.Engine)
		l.RowsOn.Set(k.Engine, n+1)
	}
	l.Rows.Set(k, r)
}

// RemoveRow removes a row whose object is deleted.
func (l *Layers) RemoveRow(k fleet.ObjectKey) {
	if _, ok := l.Rows.Get(k); !ok {
		return
	}
	l.Rows.Delete(k)
	l.Moved.Delete(k)
	if n, _ := l.RowsOn.Get(k.Engine); n > 1 {
		l.RowsOn.Set(k.Engine, n-1)
	} else {
		l.RowsOn.Delete(k.Engine)
	}
}
