package argocd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"

	"argosy.dev/argosy/fleet"
)

// renderApplication renders one deployment in one environment. It omits automation while a SyncRun
// holds the Application. It sets no finalizer, so that an accidental deletion of the Application
// keeps its workload.
func renderApplication(engine fleet.EngineSpec, key fleet.ObjectKey, a fleet.Application) (object,
	error) {
	id := identity{tenant: a.ID.Tenant, environment: a.ID.Environment, deployment: a.ID.Deployment}
	if err := id.check(key); err != nil {
		return object{}, err
	}
	if a.Name != key.Name {
		return object{}, fmt.Errorf("application name %q is not the object's", a.Name)
	}
	if want := fleet.ProjectName(a.ID.Tenant); a.Project != want {
		return object{}, fmt.Errorf("project %q is not its tenant's project %q", a.Project, want)
	}
	if a.Hold != "" {
		if err := fleet.ValidateName(string(a.Hold)); err != nil {
			return object{}, fmt.Errorf("hold: %w", err)
		}
	}
	if err := exactDestination("destination.server", a.Destination, key.Engine,
		a.ID.In()); err != nil {
		return object{}, err
	}
	at := place{tenant: a.ID.Tenant, name: key.Engine, engine: engine}
	if err := at.exactNamespace("destination.namespace", a.Destination.Namespace,
		a.Destination.Granted); err != nil {
		return object{}, err
	}
	source, sources, err := renderSources(a.Sources, a.SourceList, a.ID.Deployment)
	if err != nil {
		return object{}, err
	}
	for _, s := range a.Sources {
		if s.Artifact() && !a.TrustedArtifacts && !at.alone() {
			return object{}, fmt.Errorf("repoURL %q: the engine is not dedicated to the tenant "+
				"alone, the platform does not trust the artifact, and a file .argocd-source.yaml "+
				"of it can choose the tool that renders it", s.RepoURL)
		}
		if s.Directory != nil && s.Directory.Jsonnet != nil && !at.alone() {
			return object{}, fmt.Errorf("directory.jsonnet: the engine is not dedicated to the " +
				"tenant alone, and jsonnet can read files of its repo-server")
		}
	}
	policy, err := renderSync(a)
	if err != nil {
		return object{}, fmt.Errorf("sync.%w", err)
	}
	spec := v1alpha1.ApplicationSpec{
		Project: a.Project,
		Source:  source,
		Sources: sources,
		Destination: v1alpha1.ApplicationDestination{Server: a.Destination.Server,
			Namespace: a.Destination.Namespace},
		SyncPolicy: policy,
	}
	if err := renderDetails(&spec, a); err != nil {
		return object{}, err
	}
	meta := metadata{Name: key.Name, Labels: id.labels()}
	if a.Adopt != "" {
		if err := fleet.ValidateObject(a.Adopt); err != nil {
			return object{}, fmt.Errorf("adopt: %w", err)
		}
		if a.AdoptOrCreate && (fleet.HasIdentityForm(a.Adopt) || strings.Contains(a.Adopt, "/")) {
			return object{}, fmt.Errorf("adopt: %q has the form of a name that Argosy gives, or is "+
				"in another namespace: none is created", a.Adopt)
		}
		// The engine checks that the namespace is the tenant's: after a move it may be of another
		// engine, which must fail no plan.
		meta.Namespace, meta.Name = fleet.SplitObject(a.Adopt)
	}
	return object{APIVersion: argoAPI, Kind: "Application", Metadata: meta, Spec: spec}, nil
}

// sourceNamespace accepts a namespace with Applications of the tenant.
func (p place) sourceNamespace(field, ns string) error {
	if err := fleet.ValidateNamespace(ns); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	if !slices.Contains(p.engine.ApplicationNamespacesOf(p.tenant), ns) ||
		ns == p.engine.ArgoCD.Namespace {
		return fmt.Errorf("%s: engine %s does not give namespace %q to tenant %s "+
			"(applicationNamespaces)", field, p.name, ns, p.tenant)
	}
	return nil
}
