package place

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/reconciler/plan/applied"
)

// find fills the scope from the declarations, deleted objects, SyncRuns and freed holds.
func (s *scope) find() {
	s.forgetDeleted()
	s.touch()
	for _, id := range s.Input.Environments {
		s.touchEnvironment(id)
	}
	if s.Applied.Restored {
		for id := range s.Slices.Base() {
			s.joinable[id] = true // a lost mirror may have had them on other engines
		}
	}
	s.removeEnvironments()
	s.beginSyncs()
	s.rollBack()
	for id := range s.Freed {
		s.touchUnwanted(id)
	}
	for id := range s.Thawing {
		s.touchFrozen(id)
	}
	for _, step := range s.Steps {
		s.stepRollout(step)
	}
}

// touchFrozen touches an Application whose change a freeze no longer holds.
func (s *scope) touchFrozen(id fleet.ApplicationID) {
	if slices.Contains(s.after.DeploymentsIn(id.In()), id.Deployed()) &&
		!s.Declared.Removing[id.In()] {
		s.applications[id] = true
	} else {
		s.touchUnwanted(id)
	}
}

// forgetDeleted removes the rows of objects that are proven deleted.
func (s *scope) forgetDeleted() {
	for _, k := range s.Deleted {
		r, ok := s.Rows.Get(k)
		if !ok || !r.Unwanted {
			continue
		}
		s.RemoveRow(k)
		if k.Kind == fleet.ObjectRepository {
			s.LeaveClones(k.Engine, r.Tenant, s.Now)
		}
		if k.Kind != fleet.ObjectApplication {
			continue
		}
		s.Terminating.Delete(k)
		s.count(k.Engine, r.Application(), r.RepoURLs, -1)
		s.CountApplication(k.Engine, r.Application(), -1)
		s.shrunk = append(s.shrunk, r.Application().In())
		s.countUse(k.Engine, r.Application(), r.Use, -1)
		s.retry = true
		s.endMove(s.SliceOf(r.Application()))
	}
}

// countUse adds an Application's use of its environment (n = 1) or removes it (-1), and touches the
// shared objects that change by that: an environment with prefixes lists the namespaces in use.
func (s *scope) countUse(engine fleet.EngineName, id fleet.ApplicationID, u applied.Use, n int) {
	namespaces, creates := s.CountUse(engine, id, u, n)
	env := s.after.Environment(id.In())
	if namespaces = namespaces && env != nil && env.Environment.HasPrefixes(); namespaces {
		s.out.Environments[id.In()] = true
	}
	if namespaces || creates {
		s.out.Shares[applied.Share{Tenant: id.Tenant, Engine: engine}] = true
	}
}

// count adds an Application's use of its repositories (n = 1) or removes it (-1), and touches the
// shared objects that may change by that.
func (s *scope) count(
	engine fleet.EngineName, id fleet.ApplicationID, urls fleet.RepoURLs, n int,
) {
	for url := range urls.All() {
		r := applied.Repo{Engine: engine, Key: applied.RepoKey(url)}
		c := s.CountRead(engine, id, url, n)
		if c.Listed {
			s.out.Shares[applied.Share{Tenant: id.Tenant, Engine: engine}] = true
		}
		if c.Used || c.Respelled {
			s.touchReader(applied.Reader{Repo: r, Tenant: id.Tenant})
			s.retry = s.retry || n < 0
		}
		if _, conflict := s.CredentialConflicts.Get(r); c.UsedIn && conflict {
			s.out.Environments[id.In()] = true
		}
	}
}

// touch finds what the catalog's changes reach, by the catalog's own reverse indexes.
func (s *scope) touch() {
	for _, c := range s.Declared.Changes {
		switch c.Key.Kind {
		case fleet.KindFleet:
			s.touchFleet()
		case fleet.KindEngine:
			s.touchEngine(c)
		case fleet.KindCluster:
			for _, id := range s.after.EnvironmentsOn(c.Key) {
				s.out.Environments[id] = true
			}
		case fleet.KindTenant:
			s.touchTenant(fleet.TenantName(c.Key.Name))
			if c.After == nil {
				s.DisownClones(fleet.TenantName(c.Key.Name))
			}
		case fleet.KindManagedEnvironment:
			if relabels(c) && !s.Declared.Removing[applied.EnvironmentID(c.Key)] {
				s.touchLabels(applied.EnvironmentID(c.Key))
			} else {
				s.touchEnvironment(applied.EnvironmentID(c.Key))
			}
		case fleet.KindGitOpsDeployment:
			s.touchDeployment(c)
		case fleet.KindTenantDefaults:
			s.touchDefaults(c.Key.Tenant)
		case fleet.KindRepositoryCredential:
			s.touchCredential(c)
		case fleet.KindSealedSecret:
			s.touchSealed(c.Key)
		}
	}
	if !s.Applied.Started() || s.Applied.Blocked {
		// After a rebuild engines report environments that have no rows yet, or that may be
		// removed.
		for id, pl := range s.Applied.Placements.Base() {
			if s.recovered(id, pl) {
				s.touchEnvironment(id.In())
			}
		}
	}
	if s.Applied.Restored {
		for r := range s.CredentialConflicts.Base() {
			s.touchReaders(r) // of an earlier version, which let them in
		}
	}
	s.touchDeferred()
}

// touchReaders touches the environments that read a repository on an engine.
func (s *scope) touchReaders(r applied.Repo) {
	for _, t := range s.Readers.Keys(r) {
		for _, env := range s.ReadIn.Keys(applied.Reader{Repo: r, Tenant: t}) {
			s.out.Environments[fleet.EnvironmentID{Tenant: t, Name: env}] = true
		}
	}
}

// touchDeferred touches what was deferred and no longer is, the environments whose removal is
// deferred from now on, and those whose placement may not be where a deferred change wants it.
func (s *scope) touchDeferred() {
	before, removing := s.Applied.Deferred, s.Declared.Removing
	for id := range removing {
		if !before[applied.EnvironmentKey(id)].Removing {
			s.touchEnvironment(id)
		}
	}
	for k, x := range before {
		if _, still := s.Declared.Deferred[k]; k.Kind == fleet.KindEngine && !still {
			s.retry = true // the engine may take environments again
		}
		if x.Removing && !removing[applied.EnvironmentID(k)] {
			s.touchEnvironment(applied.EnvironmentID(k))
		}
		if now, still := s.Declared.Deferred[k]; k.Kind == fleet.KindManagedEnvironment &&
			(!still || now.Input.Blob != x.Input.Blob) {
			s.out.Environments[applied.EnvironmentID(k)] = true
		}
	}
	for k := range s.Declared.Deferred {
		if _, was := before[k]; k.Kind == fleet.KindManagedEnvironment && !was {
			s.out.Environments[applied.EnvironmentID(k)] = true
		}
	}
}

// recovered reports whether an engine reported a placement after a rebuild that is not recorded
// yet: every recorded placement has its Cluster row. An agent's environment has none, and is not
// reported.
func (s *scope) recovered(id fleet.SliceID, pl fleet.Placement) bool {
	if pl.Engine == "" || pl.Engine.OfEnvironment() {
		return false
	}
	_, recorded := s.Applied.Rows.Get(applied.ClusterKey(pl.Engine, id.In()))
	return !recorded
}

// touchFleet reaches every Application if the defaults change: each inherits them.
func (s *scope) touchFleet() {
	s.touchShared()
	if !reflect.DeepEqual(s.Applied.Catalog.Fleet().Freezes, s.Declared.Fleet.Freezes) {
		for _, t := range s.after.Tenants() {
			for _, engine := range s.EnginesOf.Keys(t) {
				s.out.Shares[applied.Share{Tenant: t, Engine: engine}] = true
			}
		}
	}
	before, now := s.Applied.Catalog.Fleet().Placement, s.Declared.Fleet.Placement
	s.retry = s.retry || before.Slices != now.Slices
	if reflect.DeepEqual(s.Applied.Catalog.Fleet().Defaults, s.Declared.Fleet.Defaults) {
		return
	}
	for _, t := range s.after.Tenants() {
		for _, id := range s.after.DeploymentsOf(t) {
			s.touchWanted(id)
		}
	}
	for id := range s.Held.Base() {
		s.touchUnwanted(id)
	}
}

// touchShared reaches every reader if the platform shares other repositories: a folder may cover
// any.
func (s *scope) touchShared() {
	if maps.Equal(applied.SharedRepositories(s.Applied.Catalog.Fleet()), s.shared) {
		return
	}
	s.retry, s.reshared = true, true
	for r := range s.Readers.Base() {
		for _, t := range s.Readers.Keys(r) {
			s.touchReader(applied.Reader{Repo: r, Tenant: t})
		}
	}
}

// touchReader reaches the Secret of a reader, whose use or credential of the repository may change.
func (s *scope) touchReader(r applied.Reader) {
	s.out.Readers[r] = true
	private := s.Readers.Count(r.Repo, r.Tenant) > 0 && s.private(r.Tenant, r.Key)
	switch {
	case private:
		s.ResumeClone(r)
	case s.PrivateReaders.Count(r.Repo, r.Tenant) > 0 && !s.shared.Covers(r.Key) &&
		!r.Engine.OfEnvironment():
		s.KeepClone(r, s.secretOf(r), s.Now)
	}
	s.SetPrivate(r, private)
}

// secretOf returns the name of the Secret that a tenant reads a repository with until this plan, or
// "".
func (s *scope) secretOf(r applied.Reader) string {
	cred := s.Applied.Catalog.CredentialFor(r.Tenant, r.Key)
	if cred == nil {
		return ""
	}
	id := fleet.CredentialID{Tenant: r.Tenant, Name: fleet.CredentialName(cred.Key.Name)}
	return fleet.RepositoryName(id, cred.Credential.Part(r.Key))
}

// private reports whether a tenant reads a repository with a credential of its own, and the
// platform does not share it.
func (s *scope) private(t fleet.TenantName, key string) bool {
	return s.after.CredentialFor(t, key) != nil && !s.shared.Covers(key)
}

// touchDefaults reaches the Applications of a tenant, which inherit its defaults.
func (s *scope) touchDefaults(t fleet.TenantName) {
	for _, id := range s.after.DeploymentsOf(t) {
		s.touchWanted(id)
	}
	for id := range s.Held.Base() {
		if id.Tenant == t {
			s.touchUnwanted(id)
		}
	}
}

// touchEngine reaches the placements on the engine, and lets unplaced environments try again.
func (s *scope) touchEngine(c catalog.Change) {
	s.retry = true
	engine := fleet.EngineName(c.Key.Name)
	if restarted := restartedAt(c.After); c.After != nil && restarted != restartedAt(c.Before) {
		for _, key := range s.ForgetClones(engine, restarted) {
			applied.Set(&s.out.Loosened.Repositories, key, true)
		}
	}
	for _, id := range s.EnvironmentsOn.Keys(engine) {
		s.out.Environments[id] = true
		if c.Before != nil && c.After != nil &&
			(c.Before.Engine.PauseAdoption != c.After.Engine.PauseAdoption ||
				!slices.Equal(c.Before.Engine.ApplicationNamespaces,
					c.After.Engine.ApplicationNamespaces)) {
			s.out.Shares[applied.Share{Tenant: id.Tenant, Engine: engine}] = true
		}
		if c.Before == nil { // reported after a rebuild, before the engine was declared
			s.touchEnvironment(id)
		}
	}
}

// restartedAt returns when the platform replaced the Pods of an engine's repo-server.
func restartedAt(d *fleet.Declaration) time.Time {
	if d == nil || d.Engine.RepoServerRestartedAt == "" {
		return time.Time{}
	}
	at, _ := time.Parse(time.RFC3339, d.Engine.RepoServerRestartedAt) // zero: clears nothing
	return at
}

// touchTenant reaches all placements and AppProjects of the tenant.
func (s *scope) touchTenant(t fleet.TenantName) {
	for _, e := range s.EnginesOf.Keys(t) {
		s.out.Shares[applied.Share{Tenant: t, Engine: e}] = true
	}
	for _, id := range s.after.EnvironmentsOf(t) {
		s.out.Environments[id] = true
	}
}

// touchEnvironment reaches the environment's Applications, old and new.
func (s *scope) touchEnvironment(id fleet.EnvironmentID) {
	s.out.Environments[id] = true
	if s.after.Environment(id) != nil {
		s.leaveOldConnection(id)
	}
	for _, pl := range s.PlacementsOf(id) {
		if pl.Engine != "" {
			s.out.Shares[applied.Share{Tenant: id.Tenant, Engine: pl.Engine}] = true
		}
	}
	for _, dep := range s.Applied.Catalog.DeploymentsIn(id) {
		s.touchUnwanted(applied.ApplicationID(dep, id))
	}
	if !s.Declared.Removing[id] {
		for _, dep := range s.after.DeploymentsIn(id) {
			s.applications[applied.ApplicationID(dep, id)] = true
		}
	}
	for app := range s.Held.Base() {
		if app.In() == id {
			s.touchUnwanted(app)
		}
	}
}

// relabels reports whether a change of an environment concerns nothing but its labels and
// variables.
func relabels(c catalog.Change) bool {
	if c.Before == nil || c.After == nil {
		return false
	}
	before, after := *c.Before.Environment, *c.After.Environment
	before.Variables, after.Variables = nil, nil
	return reflect.DeepEqual(before, after)
}

// touchLabels reaches the Applications that an environment's labels and variables concern: of
// deployments that select it or no longer do, and of those that differ between environments.
func (s *scope) touchLabels(id fleet.EnvironmentID) {
	for _, pl := range s.PlacementsOf(id) { // freezes select environments by labels
		if pl.Engine != "" {
			s.out.Shares[applied.Share{Tenant: id.Tenant, Engine: pl.Engine}] = true
		}
	}
	before, after := s.Applied.Catalog.DeploymentsIn(id), s.after.DeploymentsIn(id)
	for _, dep := range before {
		if !slices.Contains(after, dep) {
			s.touchUnwanted(applied.ApplicationID(dep, id))
		}
	}
	for _, dep := range after {
		if !slices.Contains(before, dep) || s.after.Deployment(dep).Deployment.Varies() {
			s.applications[applied.ApplicationID(dep, id)] = true
		}
	}
	for app := range s.Held.Base() {
		if app.In() == id {
			s.touchUnwanted(app)
		}
	}
}

// leaveOldConnection takes an environment off the engine of a connection that it no longer has.
// Only its Cluster is left there.
func (s *scope) leaveOldConnection(id fleet.EnvironmentID) {
	left := false
	for _, pl := range s.PlacementsOf(id) {
		if pl.Engine == "" || s.after.Environment(id).Environment.ReachedBy(pl.Engine) {
			continue
		}
		s.leave(id, pl.Engine)
		s.Placements.Delete(pl.ID())
		left = true
	}
	if left {
		s.makeWhole(id)
	}
}

// leave takes a slice of an environment off its engine. The engine keeps the environment's Cluster
// for its other slices there.
func (s *scope) leave(id fleet.EnvironmentID, engine fleet.EngineName) {
	s.Place(id, engine, -1)
	s.out.Shares[applied.Share{Tenant: id.Tenant, Engine: engine}] = true
	if s.EnvironmentsOn.Count(engine, id) > 0 {
		s.out.Environments[id] = true // the Cluster names the slices
	} else {
		s.out.Clusters = append(s.out.Clusters, applied.ClusterKey(engine, id))
	}
	s.retry = true
}

// makeWhole forgets the slices of an environment without a placement and without an Application.
func (s *scope) makeWhole(id fleet.EnvironmentID) {
	for _, of := range s.SlicesOf(id) {
		s.Placements.Delete(of)
		s.Unplaced.Delete(of)
		if of.Slice != "" {
			applied.Set(&s.out.Relabelled, of, true)
		}
	}
	s.Slices.Delete(id)
}

func (s *scope) touchDeployment(c catalog.Change) {
	id := applied.DeploymentID(c.Key)
	if c.Before != nil {
		for _, env := range s.Applied.Catalog.Targets(id) {
			s.touchUnwanted(applied.ApplicationID(id, env))
		}
	}
	if c.After != nil {
		s.touchWanted(id)
	}
}

// touchCredential reaches the Secrets of the credential's repositories on every engine where the
// tenant reads them. A folder costs the repositories that the tenant reads.
func (s *scope) touchCredential(c catalog.Change) {
	s.retry = s.retry || c.Before != nil
	for _, decl := range []*fleet.Declaration{c.Before, c.After} {
		if decl == nil {
			continue
		}
		scope := decl.Credential.Scope()
		for _, e := range s.EnginesOf.Keys(c.Key.Tenant) {
			keys := []string{scope}
			if strings.HasSuffix(scope, "/") {
				keys = s.KeysBelow(applied.Share{Tenant: c.Key.Tenant, Engine: e}, scope)
			}
			for _, key := range keys {
				r := applied.Repo{Engine: e, Key: key}
				if s.Readers.Count(r, c.Key.Tenant) > 0 {
					s.touchReader(applied.Reader{Repo: r, Tenant: c.Key.Tenant})
				}
			}
		}
	}
}

// touchSealed reaches the Secrets whose content is in an encrypted file: the file has the name of a
// credentialsRef beside it.
func (s *scope) touchSealed(k fleet.Key) {
	for _, id := range s.after.EnvironmentsOf(k.Tenant) {
		c := s.after.Environment(id).Environment.Cluster
		if c != nil && k == catalog.SealedKey(k.Tenant, "environments", c.CredentialsRef.Name) {
			s.out.Environments[id] = true
		}
	}
	for _, id := range s.after.CredentialsOf(k.Tenant) {
		cred := s.after.Credential(id)
		if k == catalog.SealedKey(k.Tenant, "credentials", cred.Credential.CredentialsRef.Name) {
			s.touchCredential(catalog.Change{Key: cred.Key, After: cred})
		}
	}
}

// touchWanted touches all Applications of a deployment in effect. An environment whose removal is
// deferred wants none.
func (s *scope) touchWanted(id fleet.DeploymentID) {
	for _, env := range s.after.Targets(id) {
		if s.Declared.Removing[env] {
			s.touchUnwanted(applied.ApplicationID(id, env))
		} else {
			s.applications[applied.ApplicationID(id, env)] = true
		}
	}
}

// touchUnwanted touches an Application that may no longer be wanted.
func (s *scope) touchUnwanted(id fleet.ApplicationID) {
	if !s.applications[id] {
		s.applications[id] = false
	}
}

// removeEnvironments deletes the placements of environments that are removed and empty. While
// Applications exist in one, its removal will be deferred.
func (s *scope) removeEnvironments() {
	for id := range s.out.Environments {
		if s.after.Environment(id) != nil {
			continue
		}
		placed := s.PlacementsOf(id)
		if len(placed) == 0 || slices.ContainsFunc(placed, func(pl fleet.Placement) bool {
			return pl.From != "" ||
				pl.Engine != "" && s.ApplicationsIn.Count(pl.ID(), pl.Engine) > 0
		}) {
			continue
		}
		applied.Set(&s.out.Removed, id, true)
		s.retry = true
		for _, pl := range placed {
			if pl.Engine != "" {
				s.leave(id, pl.Engine)
			}
		}
		s.makeWhole(id)
	}
}
