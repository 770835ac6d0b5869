package argocd

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet"
)

type apiGroupKind = metav1.GroupKind

func groupKind(gk fleet.GroupKind) apiGroupKind {
	return apiGroupKind{Group: gk.Group, Kind: gk.Kind}
}

const argoAPI = "argoproj.io/v1alpha1"

// argoKinds are denied to every tenant: the right to write an Application or an AppProject amounts
// to all rights of Argo CD.
var argoKinds = []fleet.GroupKind{{Group: "argoproj.io", Kind: "AppProject"},
	{Group: "argoproj.io", Kind: "Application"}, {Group: "argoproj.io", Kind: "ApplicationSet"}}

// renderProject renders a tenant's rights: exactly the granted repositories, destinations and
// cluster-scoped kinds, on clusters whose Secret belongs to the project. A missing list of sources,
// destinations or cluster-scoped kinds means "none".
func renderProject(engine fleet.EngineSpec, key fleet.ObjectKey, p fleet.Project) (object, error) {
	id := identity{tenant: p.Tenant}
	if err := id.check(key); err != nil {
		return object{}, err
	}
	if p.Name != key.Name {
		return object{}, fmt.Errorf("project name %q is not the object's", p.Name)
	}
	// Argo CD knows an environment's own cluster without a Secret, so no Secret could admit it.
	spec := v1alpha1.AppProjectSpec{PermitOnlyProjectScopedClusters: !key.Engine.OfEnvironment()}
	for _, repo := range p.SourceRepos {
		if err := exactRepo("sourceRepos", repo); err != nil {
			return object{}, err
		}
		spec.SourceRepos = append(spec.SourceRepos, repo)
	}
	at := place{tenant: p.Tenant, name: key.Engine, engine: engine}
	for _, d := range p.Destinations {
		if err := exactDestination("destinations.server", d, key.Engine,
			fleet.EnvironmentID{}); err != nil {
			return object{}, err
		}
		namespace := d.Namespace
		if d.All {
			if namespace != "" {
				return object{}, fmt.Errorf("destinations.namespace %q beside all", namespace)
			}
			namespace = every
		} else if err := at.exactNamespace("destinations.namespace", namespace,
			d.Granted); err != nil {
			return object{}, err
		}
		spec.Destinations = append(spec.Destinations, v1alpha1.ApplicationDestination{
			Server: d.Server, Namespace: namespace})
	}
	for _, ns := range p.SourceNamespaces {
		if err := at.sourceNamespace("sourceNamespaces", ns); err != nil {
			return object{}, err
		}
		spec.SourceNamespaces = append(spec.SourceNamespaces, ns)
	}
	if p.AllClusterResources {
		if len(p.ClusterResources) > 0 {
			return object{}, fmt.Errorf("clusterResources: a list beside all kinds")
		}
		spec.ClusterResourceWhitelist = []apiGroupKind{{Group: every, Kind: every}}
		for _, gk := range argoKinds {
			spec.ClusterResourceBlacklist = append(spec.ClusterResourceBlacklist, groupKind(gk))
		}
	}
	for _, gk := range p.ClusterResources {
		if err := exactGroupKind(gk); err != nil {
			return object{}, err
		}
		spec.ClusterResourceWhitelist = append(spec.ClusterResourceWhitelist, groupKind(gk))
	}
	for _, gk := range argoKinds {
		spec.NamespaceResourceBlacklist = append(spec.NamespaceResourceBlacklist, groupKind(gk))
	}
	for _, f := range p.Freezes {
		window, err := syncWindow(f, key.Engine)
		if err != nil {
			return object{}, err
		}
		spec.SyncWindows = append(spec.SyncWindows, window)
	}
	sortProject(&spec)
	return object{APIVersion: argoAPI, Kind: "AppProject", Metadata: metadata{
		Name: key.Name, Labels: id.labels()}, Spec: spec}, nil
}

// syncWindow renders a freeze. A person's sync, which Argosy requests, passes it. Argo CD matches
// the clusters as patterns; the only character of a server key that is one is the "?" before the
// environment's own mark, which matches itself.
func syncWindow(f fleet.FreezeWindow, on fleet.EngineName) (*v1alpha1.SyncWindow, error) {
	w := &v1alpha1.SyncWindow{Kind: "deny", Schedule: f.Schedule, TimeZone: f.TimeZone,
		Duration: time.Duration(f.Duration).String(), ManualSync: true}
	for _, d := range f.Clusters {
		if err := exactDestination("syncWindows.clusters", d, on,
			fleet.EnvironmentID{}); err != nil {
			return nil, err
		}
		w.Clusters = append(w.Clusters, d.Server)
	}
	if err := w.Validate(); err != nil {
		return nil, fmt.Errorf("syncWindows: %w", err)
	}
	return w, nil
}

// sortProject makes equal grants byte-equal in any order.
func sortProject(spec *v1alpha1.AppProjectSpec) {
	slices.Sort(spec.SourceRepos)
	spec.SourceRepos = slices.Compact(spec.SourceRepos)
	slices.Sort(spec.SourceNamespaces)
	spec.SourceNamespaces = slices.Compact(spec.SourceNamespaces)
	slices.SortFunc(spec.Destinations, func(a, b v1alpha1.ApplicationDestination) int {
		return cmpPairs(a.Server, a.Namespace, b.Server, b.Namespace)
	})
	spec.Destinations = slices.Compact(spec.Destinations)
	slices.SortFunc(spec.ClusterResourceWhitelist, func(a, b apiGroupKind) int {
		return cmpPairs(a.Group, a.Kind, b.Group, b.Kind)
	})
	spec.ClusterResourceWhitelist = slices.Compact(spec.ClusterResourceWhitelist)
}

func cmpPairs(a1, a2, b1, b2 string) int {
	if c := strings.Compare(a1, b1); c != 0 {
		return c
	}
	return strings.Compare(a2, b2)
}
