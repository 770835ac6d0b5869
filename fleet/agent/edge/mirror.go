package edge

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// mirror holds the agent's rows in memory. Rows that the agent cannot handle are rejected: left
// alone and reported.
type rowCache struct {
	engine    fleet.EngineName
	namespace string // of the Argo CD that the agent was installed for
	rows      map[fleet.ObjectKey]mirrorRow
	rejected  map[fleet.ObjectKey]string // the reason, by object
	// rows by sequence number, so that reading changes costs only the changes
	log []logEntry
}

// mirrorRow is a row with its sealed credential.
type mirrorRow struct {
	row        mirror.Row
	credential *agent.Credential
}

type logEntry struct {
	seq int64
	key fleet.ObjectKey
}

func newRowCache(engine fleet.EngineName, namespace string) *rowCache {
	return &rowCache{engine: engine, namespace: namespace, rows: map[fleet.ObjectKey]mirrorRow{},
		rejected: map[fleet.ObjectKey]string{}}
}

// put stores a row unless a newer version is known. For a rejected row it returns the
// acknowledgement to report.
func (m *rowCache) put(r *agent.Row) (agent.Ack, bool) {
	key := fleet.ObjectKey{Engine: m.engine, Kind: r.Kind, Name: r.Name}
	known, again := m.rows[key]
	if again && known.row.Seq > r.Seq {
		return agent.Ack{}, false
	}
	row, err := m.read(key, r)
	if err != nil {
		delete(m.rows, key)
		m.rejected[key] = err.Error()
		return agent.Ack{Kind: r.Kind, Name: r.Name, Seq: r.Seq, State: mirror.ApplyFailed,
			Message: err.Error(), Hash: r.Hash}, true
	}
	delete(m.rejected, key)
	m.rows[key] = mirrorRow{row, r.Credential}
	if again && known.row.Seq == r.Seq {
		return agent.Ack{}, false
	}
	m.log = append(m.log, logEntry{row.Seq, key})
	if n := len(m.log); n > 1 && m.log[n-2].seq > row.Seq {
		slices.SortStableFunc(m.log, func(a, b logEntry) int { return cmp.Compare(a.seq, b.seq) })
	}
	if len(m.log) > 2*len(m.rows)+1000 {
		m.log = slices.DeleteFunc(m.log, func(e logEntry) bool {
			return m.rows[e.key].row.Seq != e.seq
		})
	}
	return agent.Ack{}, false
}

// read converts a row, or returns why the agent cannot handle it.
func (m *rowCache) read(key fleet.ObjectKey, r *agent.Row) (mirror.Row, error) {
	row := mirror.Row{Key: key, Tenant: r.Tenant, Environment: r.Environment,
		Deployment: r.Deployment, Deletion: r.Deletion, Revision: r.Revision, Seq: r.Seq,
		Apply: r.Apply, Manifest: fleet.Manifest{Body: r.Manifest, Hash: r.Hash}}
	switch r.Kind {
	case fleet.ObjectProject, fleet.ObjectCluster, fleet.ObjectRepository, fleet.ObjectApplication:
	default:
		return row, fmt.Errorf("unknown kind %q: upgrade the agent", plain(string(r.Kind)))
	}
	switch r.Operation {
	case agent.OperationApply:
	case agent.OperationRemove:
		row.Unwanted = true
	case agent.OperationRemoveUID:
		if row.Unwanted, row.UID = true, r.UID; r.UID == "" {
			return row, errors.New("the removal of one object has no UID; nothing is removed")
		}
	default:
		return row, fmt.Errorf("unknown operation %q: upgrade the agent",
			plain(string(r.Operation)))
	}
	switch r.Deletion {
	case "", fleet.DeletionDelete, fleet.DeletionOrphan:
	default:
		return row, fmt.Errorf("unknown deletion policy %q: upgrade the agent",
			plain(string(r.Deletion)))
	}
	if c := r.Credential; c != nil {
		row.Credential = &fleet.CredentialSource{
			Tenant: c.Tenant, Folder: r.Kind.CredentialFolder(), Name: c.Name, Sealed: locator(key)}
	}
	return row, m.checkManifest(r)
}

// checkManifest verifies the manifest's hash and its namespace.
func (m *rowCache) checkManifest(r *agent.Row) error {
	if sum := sha256.Sum256(r.Manifest); hex.EncodeToString(sum[:]) != r.Hash {
		return errors.New(
			"the manifest does not match its hash; it was damaged in transit")
	}
	var o struct {
		Metadata struct{ Namespace, Name string }
	}
	if err := json.Unmarshal(r.Manifest, &o); err != nil {
		return fmt.Errorf("failed to decode the manifest: %s", plain(err.Error()))
	}
	if ns := o.Metadata.Namespace; ns != "" && ns != m.namespace {
		return fmt.Errorf("the manifest is for namespace %q; this agent works only in %q",
			plain(ns), m.namespace)
	}
	return nil
}

// locator identifies the row of a credential for the worker's lookup: each credential is sealed for
// its own row.
func locator(key fleet.ObjectKey) string { return string(key.Kind) + "/" + key.Name }

// drop forgets a row whose removal is proven, unless the row has changed.
func (m *rowCache) drop(key fleet.ObjectKey, seq int64) bool {
	have, ok := m.rows[key]
	if !ok || have.row.Seq != seq || !have.row.Unwanted {
		return false
	}
	delete(m.rows, key)
	return true
}

// changed returns the rows above after, by sequence number.
func (m *rowCache) changed(after int64, limit int) []mirror.Row {
	from := sort.Search(len(m.log), func(i int) bool { return m.log[i].seq > after })
	var rows []mirror.Row
	for _, e := range m.log[from:] {
		if len(rows) == limit {
			break
		}
		if have, ok := m.rows[e.key]; ok && have.row.Seq == e.seq {
			rows = append(rows, have.row)
		}
	}
	return rows
}

// all returns every row, by sequence number.
func (m *rowCache) all() []mirror.Row { return m.changed(-1, len(m.rows)) }

// orphans returns the number, the environments and the list of the objects without a row. The lists
// are never nil.
func (m *rowCache) orphans(inventory []engine.Live) (int, []fleet.EnvironmentID, []agent.Orphan) {
	n, of, listed := 0, map[fleet.EnvironmentID]bool{}, []agent.Orphan{}
	for _, live := range inventory {
		_, wanted := m.rows[live.Key]
		_, aside := m.rejected[live.Key]
		if wanted || aside {
			continue
		}
		n++
		listed = append(listed, agent.Orphan{Kind: live.Key.Kind, Name: live.Key.Name,
			Tenant: live.Tenant, Environment: live.Environment,
			Deployment: live.Deployment, UID: live.UID, Revision: live.Revision, Epoch: live.Epoch,
			Pure: !live.Drifted && live.Manager == ""})
		if live.Tenant != "" && live.Environment != "" {
			of[fleet.EnvironmentID{Tenant: live.Tenant, Name: live.Environment}] = true
		}
	}
	all := slices.SortedFunc(maps.Keys(of), func(a, b fleet.EnvironmentID) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(listed, func(a, b agent.Orphan) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return n, append([]fleet.EnvironmentID{}, all[:min(len(all), mirror.MaxOrphanEnvironments)]...),
		listed[:min(len(listed), mirror.MaxListedOrphans)]
}

// deletions lists the Applications with unwanted rows.
func (m *rowCache) deletions() []fleet.ObjectKey {
	var keys []fleet.ObjectKey
	for key, have := range m.rows {
		if have.row.Unwanted && key.Kind == fleet.ObjectApplication {
			keys = append(keys, key)
		}
	}
	return keys
}
