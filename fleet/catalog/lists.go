package catalog

import (
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

func (v *view) SyncRunsOf(d fleet.DeploymentID) []fleet.SyncRunID {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var ids []fleet.SyncRunID
	for _, k := range v.st.index.list(referrersOf(deploymentKey(d))) {
		if run := v.st.get(k); run != nil && run.SyncRun != nil &&
			run.SyncRun.Deployment == d.Name {
			ids = append(ids, fleet.SyncRunID{Tenant: k.Tenant, Name: fleet.SyncRunName(k.Name)})
		}
	}
	return ids
}

func (v *view) Targets(id fleet.DeploymentID) []fleet.EnvironmentID {
	v.mu.RLock()
	defer v.mu.RUnlock()
	d := v.st.get(deploymentKey(id))
	if d == nil {
		return nil
	}
	return v.st.targets(d)
}

func (v *view) DeploymentsIn(id fleet.EnvironmentID) []fleet.DeploymentID {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.st.deploymentsIn(id)
}

func (s *state) deploymentsIn(id fleet.EnvironmentID) []fleet.DeploymentID {
	env := s.get(environmentKey(id))
	if env == nil || env.Environment.Agent.Autonomous() {
		return nil
	}
	var ids []fleet.DeploymentID
	for k := range s.index.each(referrersOf(env.Key)) {
		if d := s.get(k); d != nil && d.Deployment != nil &&
			slices.Contains(d.Deployment.Destination.Environments, id.Name) {
			ids = append(ids, deploymentID(k))
		}
	}
	for _, k := range s.selecting(env) {
		ids = append(ids, deploymentID(k))
	}
	slices.SortFunc(ids, func(a, b fleet.DeploymentID) int {
		return strings.Compare(string(a.Name), string(b.Name))
	})
	return slices.Compact(ids)
}

func (v *view) DeploymentsFrom(t fleet.TenantName, repoURL string) []fleet.DeploymentID {
	key := repositoryKey(repoURL)
	v.mu.RLock()
	defer v.mu.RUnlock()
	var ids []fleet.DeploymentID
	for _, k := range v.st.index.list(term{what: sourceFrom, tenant: t, a: key}) {
		if d := v.st.get(k); d != nil && repositoryKey(d.Deployment.Source.RepoURL) == key {
			ids = append(ids, deploymentID(k))
		}
	}
	return ids
}

func (v *view) CredentialFor(t fleet.TenantName, repoURL string) *fleet.Declaration {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.st.credentialFor(t, repositoryKey(repoURL))
}

func (s *state) credentialFor(t fleet.TenantName, key string) *fleet.Declaration {
	for k := range s.index.each(term{what: accessTo, tenant: t, a: key}) {
		if d := s.get(k); d != nil && repositoryKey(d.Credential.RepoURL) == key {
			return d // no other is in effect: contested
		}
	}
	return nil
}

func (v *view) Repositories(id fleet.EnvironmentID) []Repository {
	v.mu.RLock()
	defer v.mu.RUnlock()
	seen := map[string]bool{}
	var rs []Repository
	for _, dep := range v.st.deploymentsIn(id) {
		key := repositoryKey(v.st.get(deploymentKey(dep)).Deployment.Source.RepoURL)
		if seen[key] {
			continue
		}
		seen[key] = true
		r := Repository{Key: key}
		if c := v.st.credentialFor(id.Tenant, key); c != nil {
			r.Credential = credentialID(c.Key)
		}
		rs = append(rs, r)
	}
	slices.SortFunc(rs, func(a, b Repository) int { return strings.Compare(a.Key, b.Key) })
	return rs
}

func (v *view) Used(t fleet.TenantName) fleet.Quota {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.st.usedBy(t)
}

func (v *view) Effective() []*fleet.Declaration {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var ds []*fleet.Declaration
	for _, e := range v.st.entries.all() {
		if e.effective != nil {
			ds = append(ds, e.effective)
		}
	}
	slices.SortFunc(ds, func(a, b *fleet.Declaration) int { return compareKeys(a.Key, b.Key) })
	return ds
}

func (v *view) Quarantines() []Quarantine {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var qs []Quarantine
	for _, e := range v.st.entries.all() {
		if e.quarantined() {
			qs = append(qs, e.public())
		}
	}
	slices.SortFunc(qs, func(a, b Quarantine) int { return compareKeys(a.Key, b.Key) })
	return qs
}

func (v *view) Quarantine(k fleet.Key) (Quarantine, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	e := v.st.entries.get(k)
	if !e.quarantined() {
		return Quarantine{}, false
	}
	return e.public(), true
}

func (v *view) Count() (effective, quarantined int) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.st.effective, v.st.quarantined
}

func members[T any](v *view, t term, id func(fleet.Key) T) []T {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var ids []T
	for _, k := range v.st.index.list(t) {
		if v.st.get(k) != nil {
			ids = append(ids, id(k))
		}
	}
	return ids
}

func deploymentID(k fleet.Key) fleet.DeploymentID {
	return fleet.DeploymentID{Tenant: k.Tenant, Name: fleet.DeploymentName(k.Name)}
}

func credentialID(k fleet.Key) fleet.CredentialID {
	return fleet.CredentialID{Tenant: k.Tenant, Name: fleet.CredentialName(k.Name)}
}
