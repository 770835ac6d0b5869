package adoption

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// contest is a cluster on which another tenant keeps one from a namespace or a repository of its
// Applications.
type contest struct {
	tenant  fleet.TenantName
	cluster *cluster
}

// openTo reports whether a project of the tenant permits every namespace of a cluster.
func (im *importer) openTo(t *tenant, c *cluster) bool {
	for _, a := range im.apps {
		if a.tenant == t.name && a.cluster == c && im.open(a.project, c) {
			return true
		}
	}
	return false
}

// open reports whether a project permits every namespace of a cluster. Argo CD creates the project
// default with every permission.
func (im *importer) open(name string, c *cluster) bool {
	found := false
	for _, o := range im.of(KindProject) {
		if o.Name != name {
			continue
		}
		found = true
		for _, d := range list(o.Object, "spec", "destinations") {
			m, _ := d.(map[string]any)
			any := text(m, "server") == "*" || text(m, "server") == "" && text(m, "name") == "*"
			if text(m, "namespace") == "*" && (any || im.clusters.known(m) == c) {
				return true
			}
		}
	}
	return !found && name == defaultProject
}

// openProjects are the projects that permit every namespace of a cluster on which tenants keep each
// other from one. A person who chose the tenants (--tenant-by) is not overruled.
func (im *importer) openProjects() map[string]bool {
	if im.TenantBy.chosen() {
		return nil
	}
	disputed := map[*cluster]bool{}
	for _, p := range im.contests {
		disputed[p.cluster] = true
	}
	open := map[string]bool{}
	for _, a := range im.apps {
		if a.cluster != nil && disputed[a.cluster] && im.open(a.project, a.cluster) {
			open[a.project] = true
		}
	}
	return open
}

// noteMerged adds the note about projects that became one tenant.
func (im *importer) noteMerged() {
	if len(im.merged) > 0 {
		names := slices.Sorted(maps.Keys(im.merged))
		im.notes = append(im.notes, fmt.Sprintf("projects %s may deploy to every namespace of "+
			"one cluster, so they do not keep their Applications apart: they become tenant %s; "+
			"choose other tenants with --tenant-by FILE", strings.Join(names, ", "),
			im.DefaultTenant))
	}
}
