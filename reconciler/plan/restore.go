package plan

import (
	"fmt"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
)

// RestoreAppliedState is the AppliedState that was stored. It checks no declaration anew and renders nothing.
// After a rebuild, a Snapshot that holds only the placements and sync holds that the engines'
// objects tell of keeps every environment where it is.
//
// An error means that the snapshot does not fit together: run argosy rebuild.
func RestoreAppliedState(s fleet.Snapshot) (*AppliedState, error) {
	m, err := readMemory(s.Memory)
	if err != nil {
		return nil, err
	}
	w := NewAppliedState()
	w.revision, w.memory, w.blocked, w.waiting = s.Applied, s.Memory, m.Blocked, m.Waiting
	w.rebuilt = m.Rebuilt
	for _, x := range m.Deferred {
		w.deferred[x.Input.Key] = x
	}
	w.unreviewed = map[string]heldPath{}
	for _, h := range m.Unreviewed {
		w.unreviewed[h.Input.Path] = h
	}
	w.catalog = catalog.Restore(s.Declarations, quarantines(s.Quarantines))
	w.restorePlacements(s.Placements)
	for _, h := range m.Held {
		w.held.base[h.Application] = h
	}
	for _, l := range m.Leaving {
		w.leaving.base[l.Key] = l
	}
	for _, h := range s.SyncHolds {
		w.syncHolds.base[h.Application] = h
	}
	if err := w.restoreRows(s.Objects); err != nil {
		return nil, err
	}
	w.restoreContested()
	w.countFiles()
	w.state.fold()
	return w, nil
}

func quarantines(stored []fleet.Quarantine) []catalog.Quarantine {
	out := make([]catalog.Quarantine, len(stored))
	for i, q := range stored {
		out[i] = catalog.Quarantine(q)
	}
	return out
}

func (w *AppliedState) restorePlacements(placements []fleet.Placement) {
	for _, p := range placements {
		if known, ok := w.placements.base[p.Environment]; ok &&
			(p.Engine == "" || known.Engine != "") {
			// an engine that was found outdoes the waiting for one, and the first engine any other
			continue
		}
		p.Alternatives = nil
		w.placements.base[p.Environment] = p
		if p.Engine == "" {
			w.unserved.base[p.Environment] = struct{}{}
			continue
		}
		delete(w.unserved.base, p.Environment)
		w.place(p.Environment, p.Engine, 1)
	}
}

// restoreRows counts what stands. Which repository an Application reads is not in the index: it is
// known from the deployment that it was made from.
func (w *AppliedState) restoreRows(objects []fleet.Indexed) error {
	for _, o := range objects {
		r := row{hash: o.Hash, tenant: o.Tenant, environment: o.Environment,
			deployment: o.Deployment, deletion: o.Deletion, absent: o.Unwanted}
		if o.Credential != nil {
			r.credential = *o.Credential
		}
		if o.Key.Kind == fleet.ObjectApplication {
			url, ok := w.repoURL(o.Key, r)
			if !ok {
				return fmt.Errorf(
					"application %s on engine %s has neither a deployment nor a memory of it; "+
						"run argosy rebuild", r.application(), o.Key.Engine)
			}
			r.repoURL = url
			w.stand(o.Key.Engine, r.application(), url, 1)
		}
		w.put(o.Key, r)
	}
	return nil
}

func (w *AppliedState) repoURL(k fleet.ObjectKey, r row) (string, bool) {
	if l, ok := w.leaving.base[k]; ok && r.absent {
		return l.RepoURL, true
	}
	if h, ok := w.held.base[r.application()]; ok {
		return h.Deployment.Deployment.Source.RepoURL, true
	}
	if d := w.catalog.Deployment(r.application().Deployed()); d != nil {
		return d.Deployment.Source.RepoURL, true
	}
	return "", false
}

func (w *AppliedState) restoreContested() {
	seen := map[repo]map[fleet.TenantName]bool{}
	for r, tenants := range w.readers.delta {
		for t := range tenants {
			if w.catalog.CredentialFor(t, r.key) == nil {
				continue
			}
			if seen[r] == nil {
				seen[r] = map[fleet.TenantName]bool{}
			}
			seen[r][t] = true
		}
		if len(seen[r]) > 1 {
			w.contested.base[r] = struct{}{}
		}
	}
}

// countFiles counts the declarations at the applied revision: those in effect and those in
// quarantine, but for files that are gone.
func (w *AppliedState) countFiles() {
	seen := map[fleet.Key]bool{}
	for _, d := range w.catalog.Effective() {
		seen[d.Key] = true
	}
	for _, q := range w.catalog.Quarantines() {
		seen[q.Key] = true
	}
	for k := range seen {
		if w.atHead(k) {
			w.files.add(k, 1)
		}
	}
}

// remembered is the memory as it stands.
func (w *AppliedState) remembered() memory {
	m := w.state.remembered(w.deferred, w.unreviewed, w.blocked, w.waiting)
	m.Rebuilt = w.rebuilt
	return m
}
