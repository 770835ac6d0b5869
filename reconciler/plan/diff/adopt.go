package diff

import (
	"fmt"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/reconciler/plan/applied"
	"argosy.dev/argosy/reconciler/plan/effective"
)

// checkAdoptions rejects changed deployments that adopt an Application of another declaration on
// the same engine, or one in a namespace that the engine does not give to the tenant. The
// declaration that has the Application keeps it; of two newcomers neither gets it. A conflict that
// an unchanged deployment gets into, as by a move, is left to the engine, which writes to no
// Application of another declaration.
func (p *phase) checkAdoptions() {
	for _, c := range p.Declared.Changes {
		if c.After == nil || c.After.Deployment == nil {
			continue
		}
		for i, a := range c.After.Deployment.Adopt {
			id := adopting(c.After.Key, a)
			if why, fix := p.notGiven(id, a.Application); why != "" {
				p.rejectAdoption(c.After, i, effective.CodeAdoptNamespace, why, fix)
				break
			}
			if why := p.adoptedElsewhere(id, a.Application); why != "" {
				p.rejectAdoption(c.After, i, effective.CodeAdopted, why,
					"name another Application, or remove it from the other declaration first "+
						"(deletionPolicy: Release)")
				break
			}
		}
	}
}

func adopting(k fleet.Key, a fleet.Adoption) fleet.ApplicationID {
	return fleet.ApplicationID{Tenant: k.Tenant, Deployment: fleet.DeploymentName(k.Name),
		Environment: a.Environment}
}

func (p *phase) rejectAdoption(d *fleet.Declaration, i int, code, why, fix string) {
	field := fmt.Sprintf("spec.adopt[%d].application", i)
	if _, generated := fleet.SetOf(d.Key, d.Path); generated {
		field = fleet.TemplateField + field
	}
	p.out.Rejected = append(p.out.Rejected, fleet.Problem{
		Key: d.Key, Path: d.Path, Field: field, Severity: fleet.SeverityError,
		Code: code, Message: why, Fix: fix,
	})
}

// notGiven returns why the tenant may not adopt an Application outside Argo CD's own namespace, and
// what to do, or "".
func (p *phase) notGiven(id fleet.ApplicationID, object string) (why, fix string) {
	namespace, _ := fleet.SplitObject(object)
	name, goes := p.engineFor(id)
	if namespace == "" || !goes {
		return "", ""
	}
	on := p.engine(name, id.Tenant)
	if on != nil && slices.Contains(on.ApplicationNamespacesOf(id.Tenant), namespace) {
		return "", ""
	}
	if name.OfEnvironment() {
		return fmt.Sprintf("environment %s does not list namespace %q in "+
				"agent.applicationNamespaces", id.Environment, namespace),
			"list it there, and have the admin of its cluster allow it to the agent; or remove " +
				"adopt"
	}
	return fmt.Sprintf("engine %s does not give the Applications of namespace %q to tenant %s",
			name, namespace, id.Tenant),
		"ask the platform for it in applicationNamespaces of fleet/engines/, or remove adopt"
}

// adoptedElsewhere returns why an Application cannot adopt an object of this name on its engine, or
// "". It does not name other tenants' declarations.
func (p *phase) adoptedElsewhere(id fleet.ApplicationID, object string) string {
	engine, goes := p.engineFor(id)
	if !goes || p.has(engine, id, object) {
		return ""
	}
	what := fmt.Sprintf("Application %s on engine %s", object, engine)
	own := fleet.ObjectKey{Engine: engine, Kind: fleet.ObjectApplication, Name: object}
	if object == fleet.ApplicationName(id) {
		return what + " has the name that Argosy gives this one: there is nothing to adopt"
	}
	if r, exists := p.Rows.Get(own); exists {
		return fmt.Sprintf("%s was created%s", what, p.place(id, r.Application(), ""))
	}
	for _, other := range p.after.Adopters(object) {
		d := p.after.Deployment(other)
		if d == nil {
			continue // quarantined
		}
		for i, a := range d.Deployment.Adopt {
			rival := adopting(d.Key, a)
			if on, goes := p.engineFor(rival); a.Application == object &&
				rival != id && goes && on == engine {
				verb := "would be adopted"
				if p.has(engine, rival, object) {
					verb = "is adopted"
				}
				return fmt.Sprintf("%s %s%s", what, verb,
					p.place(id, rival, fmt.Sprintf(" (%s: spec.adopt[%d])", d.Path, i)))
			}
		}
	}
	return ""
}

// place names a declaration of the same tenant with its place.
func (p *phase) place(reader, of fleet.ApplicationID, at string) string {
	if of.Tenant != reader.Tenant {
		return " by another tenant"
	}
	if d := p.after.Deployment(of.Deployed()); at == "" && d != nil {
		at = " (" + d.Path + ")"
	}
	return fmt.Sprintf(" by deployment %s in environment %s%s", of.Deployment, of.Environment, at)
}

// engineFor returns the engine of an Application that its deployment wants.
func (p *phase) engineFor(id fleet.ApplicationID) (fleet.EngineName, bool) {
	pl, _ := p.PlacementOf(id)
	return pl.Engine, pl.Engine != "" && slices.Contains(p.after.Targets(id.Deployed()), id.In())
}

// has reports whether the Application adopted the object by an earlier revision.
func (p *phase) has(engine fleet.EngineName, id fleet.ApplicationID, object string) bool {
	r, exists := p.Rows.Base()[applied.ApplicationKey(engine, id)]
	before := p.Applied.Catalog.Deployment(id.Deployed())
	return exists && !r.Unwanted && before != nil &&
		before.Deployment.AdoptedIn(id.Environment).Application == object
}
