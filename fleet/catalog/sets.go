package catalog

import (
	"maps"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// A set generates deployments. Each has an entry of its own, judged as if it had a file. Its head
// comes from the head of its set, so that a commit changes the entries whose items changed and no
// other. A name that a file and a set declare, or two sets, is refused until one of them lets it
// go; what is in effect stays.

// generates returns the term of the sets that generate a deployment.
func generates(t fleet.TenantName, name fleet.DeploymentName) term {
	return term{what: generatedName, tenant: t, a: string(name)}
}

// current returns the declaration of a set that its deployments come from: its head or, while that
// does not decode or is not expanded, the one in effect.
func (e *entry) current() *fleet.Declaration {
	switch {
	case e == nil || e.removed:
		return nil
	case e.head != nil && len(e.head.Set.Unexpanded) == 0:
		return e.head
	}
	return e.effective
}

// find returns a deployment of the set.
func find(set *fleet.Declaration, name fleet.DeploymentName) (fleet.Generated, bool) {
	if set == nil {
		return fleet.Generated{}, false
	}
	i, found := slices.BinarySearchFunc(set.Set.Generated, name,
		func(g fleet.Generated, name fleet.DeploymentName) int {
			return strings.Compare(string(g.Name), string(name))
		})
	if !found {
		return fleet.Generated{}, false
	}
	return set.Set.Generated[i], true
}

// setsOf returns the keys of the sets that generate a deployment now, sorted.
func (s *state) setsOf(k fleet.Key) []fleet.Key {
	var sets []fleet.Key
	name := fleet.DeploymentName(k.Name)
	for set := range s.index.each(generates(k.Tenant, name)) {
		if _, is := find(s.entries.get(set).current(), name); is {
			sets = append(sets, set)
		}
	}
	slices.SortFunc(sets, compareKeys)
	return sets
}

// generatedBy adds the deployments whose head may change with that of a key: those of a set, or the
// one that a file declares.
func (w *work) generatedBy(k fleet.Key, into map[fleet.Key]bool) {
	switch k.Kind {
	case fleet.KindGitOpsDeployment:
		into[k] = true
	case fleet.KindGitOpsDeploymentSet:
		for _, d := range w.st.entries.get(k).versions() {
			for _, g := range d.Set.Generated {
				into[deploymentKey(fleet.DeploymentID{Tenant: k.Tenant, Name: g.Name})] = true
			}
		}
	}
}

// derive sets the head of a deployment that no file declares to that of its set.
func (w *work) derive(k fleet.Key) {
	old, sets := w.st.entries.get(k), w.st.setsOf(k)
	present := old != nil && !old.removed
	var from string
	generated := false
	if present {
		from, generated = fleet.SetOf(k, old.path)
	}
	switch {
	case present && !generated:
		w.enqueue(k) // a file declares it; a set may do so too, or no longer
	case len(sets) == 0 && generated:
		w.put(Input{Key: k, Path: old.path, Blob: old.blob, Removed: true})
	case len(sets) > 0:
		set := w.st.entries.get(sets[0])
		g, _ := find(set.current(), fleet.DeploymentName(k.Name))
		if generated && fleet.SetKey(k.Tenant, from) == sets[0] && old.blob == g.Blob {
			if old.quarantined() || len(old.advice) > 0 || len(sets) > 1 {
				w.enqueue(k) // the lines of its problems may have moved
			}
			return
		}
		w.put(Input{Key: k, Path: set.path, Blob: g.Blob, Declaration: g.Declaration,
			Problems: g.Problems})
	}
}

// put sets the head of a deployment of the commit's sets. Policies judge it as a file of the
// commit.
func (w *work) put(i Input) {
	if w.policies.files != nil {
		w.policies.files[i.Key] = true
	}
	w.set(i)
}

// checkName refuses a deployment that a file and a set declare, or two sets.
func (ch *checker) checkName(e *entry) []fleet.Problem {
	sets := ch.st.setsOf(e.key)
	if _, generated := fleet.SetOf(e.key, e.path); generated && len(sets) > 0 {
		sets = sets[1:]
	}
	if len(sets) == 0 {
		return nil
	}
	return []fleet.Problem{e.problem("metadata.name", codeDuplicate,
		"keep one of the two, or give them different names",
		"%s gives a deployment named %q too", ch.st.entries.get(sets[0]).path, e.key.Name)}
}

// checkSet refuses a set that is not expanded, and one whose repositories are not granted. Without
// a grant, the set is judged by that alone: its repositories are not read.
func (ch *checker) checkSet(e *entry, set *fleet.SetSpec,
	grant *fleet.TenantSpec) []fleet.Problem {
	if problems := ch.checkDiscoveries(e, set, grant); len(problems) > 0 {
		return problems
	}
	return set.Unexpanded
}

func (ch *checker) checkDiscoveries(e *entry, set *fleet.SetSpec,
	grant *fleet.TenantSpec) (problems []fleet.Problem) {
	if set.Directories != nil {
		problems = ch.checkRepository(e, "spec.directories.repoURL", set.Directories.RepoURL, grant)
	}
	if set.Files != nil {
		problems = append(problems,
			ch.checkRepository(e, "spec.files.repoURL", set.Files.RepoURL, grant)...)
	}
	return problems
}

// askedBy returns the term of the sets that ask for a listing.
func askedBy(r fleet.ListingRequest) term {
	return term{what: asksFor, tenant: r.Tenant, a: r.RepoURL, b: r.String()}
}

// SetFile is the file of a set at the head.
type SetFile struct {
	Key        fleet.Key
	Path, Blob string
	// that the head was decoded with; nil: with none, so that any listing is news
	Listing *fleet.Listing
}

// ListingRequests returns what the sets ask for, at the head and in effect, sorted, each once. A
// request that the tenant's grant does not cover is left out: its repository must not be read. It
// costs every set of the fleet.
func (v *View) ListingRequests() []fleet.ListingRequest {
	v.mu.RLock()
	defer v.mu.RUnlock()
	ch := &checker{st: v.st, guess: map[string]string{}}
	asked := map[fleet.ListingRequest]bool{}
	for k, e := range v.st.entries.all() {
		if k.Kind != fleet.KindGitOpsDeploymentSet {
			continue
		}
		t := v.st.get(tenantKey(k.Tenant))
		for _, d := range e.versions() {
			if t != nil && len(ch.checkDiscoveries(e, d.Set, t.Tenant)) == 0 {
				for _, r := range d.Set.Requests(k.Tenant) {
					asked[r] = true
				}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(asked), fleet.CompareRequests)
}

// SetsAsking returns the files of the sets that ask for a listing, at the head or in effect,
// sorted. When a listing arrives, each file whose own is not the same is decoded again with it.
func (v *View) SetsAsking(r fleet.ListingRequest) []SetFile {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var files []SetFile
	for k := range v.st.index.each(askedBy(r)) {
		if e := v.st.entries.get(k); e != nil && !e.removed {
			files = append(files, SetFile{Key: k, Path: e.path, Blob: e.blob,
				Listing: listingOf(e.head, r)})
		}
	}
	slices.SortFunc(files, func(a, b SetFile) int { return compareKeys(a.Key, b.Key) })
	return files
}

// Listing returns the listing of a request that a set contains: the last one that was read for a
// head or, without one, that of a set in effect. It is how a set that is edited is decoded while
// its repository cannot be read, and after a restart.
func (v *View) Listing(r fleet.ListingRequest) (fleet.Listing, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	keys := slices.SortedFunc(v.st.index.each(askedBy(r)), compareKeys)
	for _, of := range []func(*entry) *fleet.Declaration{
		func(e *entry) *fleet.Declaration { return e.head }, effectiveOf} {
		for _, k := range keys {
			if l := listingOf(of(v.st.entries.get(k)), r); l != nil {
				return *l, true
			}
		}
	}
	return fleet.Listing{}, false
}

func listingOf(set *fleet.Declaration, r fleet.ListingRequest) *fleet.Listing {
	if set == nil {
		return nil
	}
	i := slices.IndexFunc(set.Set.Listings, func(l fleet.Listing) bool { return l.Request == r })
	if i < 0 {
		return nil
	}
	return &set.Set.Listings[i]
}
