package place

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/reconciler/plan/applied"
)

// rejectSharing rejects the changes by which a tenant begins to share a clone of Argo CD with
// another tenant, although one of the two has a credential of its own: declarations by which it
// begins to read the repository on an engine, or its new credential. A tenant that read the
// repository so before keeps what it has. Of two newcomers neither gets in.
//
// After a rebuild no row shows who read it first: then the readers without a credential are
// rejected, and those with one stay.
//
// A conflict that no change of the newcomer's own causes stays and is shown as misplaced: nothing
// that runs is deleted for it.
func (p placer) rejectSharing() {
	for _, r := range slices.SortedFunc(maps.Keys(p.out.Readers), compareReaders) {
		reads := p.Readers.Count(r.Repo, r.Tenant) > 0
		if !reads || r.Engine.OfEnvironment() {
			continue
		}
		if p.separated(r) {
			p.rejectReader(r, fmt.Sprintf("engine %s serves another tenant that reads %s, and one "+
				"of the two has a credential of its own: Argo CD would deploy from one clone for "+
				"both", r.Engine, r.Key), "move the environment to another engine")
		} else if p.findsClone(r) {
			p.rejectReader(r, fmt.Sprintf("Argo CD of engine %s has a clone of %s that another "+
				"tenant left behind, which read it with a credential of its own", r.Engine, r.Key),
				fmt.Sprintf("replace the Pods of its repo-server and write when to "+
					"spec.repoServerRestartedAt of fleet/engines/%s.yaml", r.Engine))
		}
	}
	if len(p.after.SharingClones()) > 0 {
		p.findLoosened()
	}
}

// findsClone reports whether a tenant begins to read a repository on an engine where another tenant
// left its clone behind.
func (p placer) findsClone(r applied.Reader) bool {
	return p.Applied.Readers.Count(r.Repo, r.Tenant) == 0 && !p.shared.Covers(r.Key) &&
		p.LeftByAnother(r)
}

func compareReaders(a, b applied.Reader) int {
	if c := strings.Compare(string(a.Engine), string(b.Engine)); c != 0 {
		return c
	}
	if c := strings.Compare(a.Key, b.Key); c != 0 {
		return c
	}
	return strings.Compare(string(a.Tenant), string(b.Tenant))
}

// rejectReader rejects what makes a reader one that must not share the engine.
func (p placer) rejectReader(r applied.Reader, why, fix string) {
	before := &p.Applied.Layers
	switch {
	case !p.Applied.Started() && p.PrivateReaders.Count(r.Repo, r.Tenant) > 0:
	case before.Readers.Count(r.Repo, r.Tenant) == 0:
		if !p.rejectKind(r, fleet.KindGitOpsDeployment, why, fix) {
			p.rejectKind(r, fleet.KindManagedEnvironment, why, fix)
		}
	case before.PrivateReaders.Count(r.Repo, r.Tenant) == 0 &&
		p.PrivateReaders.Count(r.Repo, r.Tenant) > 0:
		p.rejectKind(r, fleet.KindRepositoryCredential, why, fix)
	}
}

// rejectKind rejects the tenant's changes of one kind that concern the repository on the engine,
// and reports whether there are any.
func (p placer) rejectKind(r applied.Reader, kind fleet.Kind, why, fix string) bool {
	found := false
	for _, c := range p.Declared.Changes {
		if c.After == nil || c.Key.Kind != kind || c.Key.Tenant != r.Tenant {
			continue
		}
		if field := p.changedField(c, r); field != "" {
			found = true
			p.reject(c.After, field, why, fix)
		}
	}
	return found
}

// changedField returns the field of a changed declaration that concerns a reader, or "".
func (p placer) changedField(c catalog.Change, r applied.Reader) string {
	switch d := c.After; {
	case d.Credential != nil:
		if fleet.RepoScopeCovers(d.Credential.Scope(), r.Key) {
			return "spec.repoURL"
		}
	case d.Environment != nil:
		if p.ReadIn.Count(r, fleet.EnvironmentName(c.Key.Name)) > 0 {
			return "metadata.labels"
		}
	case d.Deployment != nil:
		on := func(id fleet.EnvironmentID) bool {
			pl, _ := p.PlacementOf(applied.ApplicationID(applied.DeploymentID(c.Key), id))
			return pl.Engine == r.Engine
		}
		if field := sourceField(d.Deployment, r.Key); field != "" &&
			slices.ContainsFunc(p.after.Targets(applied.DeploymentID(c.Key)), on) {
			return field
		}
	}
	return ""
}

// sourceField returns the field of a deployment's source from a repository, or "".
func sourceField(d *fleet.DeploymentSpec, key string) string {
	for i, s := range d.Sources {
		if applied.RepoKey(s.RepoURL) == key {
			return fmt.Sprintf("spec.sources[%d].repoURL", i)
		}
	}
	for url := range d.RepoURLs().All() {
		if applied.RepoKey(url) == key {
			return "spec.source.repoURL"
		}
	}
	return ""
}

func (p placer) reject(d *fleet.Declaration, field, why, fix string) {
	if _, generated := fleet.SetOf(d.Key, d.Path); generated {
		field = fleet.TemplateField + field
	}
	p.out.Sharing = append(p.out.Sharing, fleet.Problem{
		Key: d.Key, Path: d.Path, Field: field, Severity: fleet.SeverityError,
		Code: catalog.CodeSharedClone, Message: why,
		Fix: "ask the platform to " + fix +
			", or, if every tenant with a grant may read all of the " +
			"repository, to list it in sharedRepositories of fleet/fleet.yaml",
	})
}

// Loosened is what may let rejected changes in: repositories that lost a reader or the credential
// of one, all of them if the platform shares others, and tenants whose environments, credentials or
// placements changed.
type Loosened struct {
	Repositories map[string]bool
	Tenants      map[fleet.TenantName]bool
}

func (p placer) findLoosened() {
	before := &p.Applied.Layers
	for r := range p.out.Readers {
		loose := p.reshared ||
			p.Readers.Size(r.Repo) < before.Readers.Size(r.Repo) ||
			p.PrivateReaders.Size(r.Repo) < before.PrivateReaders.Size(r.Repo)
		if loose {
			applied.Set(&p.out.Loosened.Repositories, r.Key, true)
		}
	}
	for id := range p.out.Placements {
		applied.Set(&p.out.Loosened.Tenants, id.Tenant, true)
	}
	for _, c := range p.Declared.Changes {
		switch c.Key.Kind {
		case fleet.KindManagedEnvironment, fleet.KindRepositoryCredential:
			applied.Set(&p.out.Loosened.Tenants, c.Key.Tenant, true)
		}
	}
}
