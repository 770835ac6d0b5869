package applied

import (
	"fmt"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
)

// Restore returns the State that was stored. It neither checks declarations nor renders. After a
// rebuild, a Snapshot with only the placements and sync holds that engines reported keeps every
// environment on its engine.
//
// An error means that the snapshot is inconsistent: run argosy rebuild.
func Restore(snapshot mirror.Snapshot) (*State, error) {
	m, err := readMemory(snapshot.Memory)
	if err != nil {
		return nil, err
	}
	s := New()
	s.Revision, s.Memory, s.Blocked, s.RevisionHold = snapshot.Applied, snapshot.Memory, m.Blocked,
		m.RevisionHold
	s.Rebuilt, s.Restored = m.Rebuilt, true
	for _, x := range m.Deferred {
		s.Deferred[x.Input.Key] = x
	}
	s.Unreviewed = map[string]HeldFile{}
	for _, h := range m.Unreviewed {
		s.Unreviewed[h.Input.Path] = h
	}
	s.Catalog = catalog.Restore(snapshot.Declarations, snapshot.Quarantines)
	if err := s.restorePlacements(snapshot.Placements); err != nil {
		return nil, err
	}
	for _, h := range m.Held {
		s.Held.base[h.Application] = h
	}
	for _, f := range m.Frozen {
		s.Frozen.base[f.Application] = f
		if f.Lost {
			s.count(f.Key.Engine, f.Application, f.RepoURLs, f.Use)
		}
	}
	for _, r := range snapshot.Rollouts {
		s.Rollouts.base[r.Of()] = r
	}
	for _, t := range m.Terminating {
		s.Terminating.base[t.Key] = t
	}
	for _, x := range m.Moved {
		s.Moved.base[x.Key] = x.Namespaces
	}
	for _, c := range m.Clones {
		s.Clones.base[repoOf(c)] = append(s.Clones.base[repoOf(c)], c)
	}
	for _, h := range snapshot.SyncHolds {
		s.SyncHolds.base[h.Application] = h
	}
	if err := s.restoreRows(snapshot.Objects); err != nil {
		return nil, err
	}
	s.restoreVanished()
	s.restoreCredentialConflicts()
	s.countFiles()
	s.Layers.Commit()
	return s, nil
}

func (s *State) restorePlacements(placements []fleet.Placement) error {
	for _, p := range placements {
		known, ok := s.Placements.base[p.ID()]
		if ok && (p.Engine == "" || known.Engine != "") {
			continue // an engine that was found comes before none, and the first before any other
		}
		p.Alternatives = nil
		s.Placements.base[p.ID()] = p
		if p.Slice != "" && !ok {
			s.Slices.base[p.Environment] = append(s.Slices.base[p.Environment], p.Slice)
		}
		if p.Engine == "" {
			s.Unplaced.base[p.ID()] = struct{}{}
			continue
		}
		delete(s.Unplaced.base, p.ID())
		s.Place(p.Environment, p.Engine, 1)
		if p.From != "" {
			s.Place(p.Environment, p.From, 1)
		}
	}
	for id, of := range s.Slices.base {
		slices.Sort(of)
		if _, whole := s.Placements.base[id.Whole()]; whole || !fleet.Partition(of) {
			return fmt.Errorf("the placed slices of environment %s are no partition of it: %q; "+
				"run argosy rebuild", id, of)
		}
	}
	return nil
}

// restoreRows indexes and counts the rows. The index does not have an Application's repositories:
// they come from the deployment that the Application was rendered from, as its use of the
// environment does.
func (s *State) restoreRows(objects []mirror.Indexed) error {
	for _, o := range objects {
		r := Row{
			Hash: o.Hash, Tenant: o.Tenant, Environment: o.Environment, Deployment: o.Deployment,
			Deletion: o.Deletion, Unwanted: o.Unwanted,
		}
		if o.Credential != nil {
			r.Credential = *o.Credential
		}
		if o.Key.Kind == fleet.ObjectApplication {
			urls, use, ok := s.uses(o.Key, r)
			if !ok {
				return fmt.Errorf(
					"application %s on engine %s has neither a deployment nor a memory of it;"+
						" run argosy rebuild", r.Application(), o.Key.Engine)
			}
			r.RepoURLs, r.Use = urls, use
			s.count(o.Key.Engine, r.Application(), urls, use)
		}
		s.SetRow(o.Key, r)
	}
	return nil
}

// restoreVanished indexes terminating Applications whose rows the store no longer has: their
// objects were deleted, and no plan has been recorded since. Until the next plan gets them as
// deleted, AppProjects allow what they needed.
func (s *State) restoreVanished() {
	for key, t := range s.Terminating.base {
		if _, ok := s.Rows.Get(key); ok {
			continue
		}
		s.count(key.Engine, t.Application, t.RepoURLs, t.Use)
		s.SetRow(key, Row{
			Tenant: t.Application.Tenant, Environment: t.Application.Environment,
			Deployment: t.Application.Deployment, RepoURLs: t.RepoURLs, Use: t.Use,
			Unwanted: true,
		})
	}
}

func (s *State) count(
	engine fleet.EngineName, id fleet.ApplicationID, urls fleet.RepoURLs, use Use,
) {
	s.CountApplication(engine, id, 1)
	s.CountUse(engine, id, use, 1)
	for url := range urls.All() {
		s.CountRead(engine, id, url, 1)
	}
}

// uses returns what an Application uses: its repositories and its part of the environment.
func (s *State) uses(k fleet.ObjectKey, r Row) (fleet.RepoURLs, Use, bool) {
	if t, ok := s.Terminating.base[k]; ok && r.Unwanted {
		return t.RepoURLs, t.Use, true
	}
	if f, ok := s.Frozen.base[r.Application()]; ok && f.Key == k && f.RepoURLs != "" {
		return f.RepoURLs, f.Use, true
	}
	d := s.Catalog.Deployment(r.Application().Deployed())
	if h, ok := s.Held.base[r.Application()]; ok {
		d = h.Deployment
	}
	if d == nil {
		return "", Use{}, false
	}
	urls := d.Deployment.RepoURLs()
	env := s.Catalog.Environment(r.Application().In())
	if env == nil {
		return urls, Use{}, true
	}
	target, _ := d.TargetIn(env, s.Catalog.Defaults(r.Tenant))
	return urls, s.UseOf(k, target), true
}

func (s *State) restoreCredentialConflicts() {
	shared := SharedRepositories(s.Catalog.Fleet())
	for r, tenants := range s.Readers.delta {
		for t := range tenants {
			s.SetPrivate(Reader{r, t}, s.Catalog.CredentialFor(t, r.Key) != nil &&
				!shared.Covers(r.Key))
		}
		if s.Conflicting(r) {
			s.CredentialConflicts.base[r] = struct{}{}
		}
	}
}

// countFiles counts the files of the applied revision: those in effect and those in quarantine,
// without removed files.
func (s *State) countFiles() {
	seen := map[fleet.Key]bool{}
	for _, d := range s.Catalog.Effective() {
		seen[d.Key] = true
	}
	for _, q := range s.Catalog.Quarantines() {
		seen[q.Key] = true
	}
	for k := range seen {
		path, _, there := s.Accepted(k)
		if there && !fleet.IsGenerated(k, path) {
			s.Files.add(k, 1)
		}
	}
}
