package plan

import (
	"fmt"

	"argosy.dev/argosy/fleet"
)

// unrendered is an object that the renderer refused. The walls before it should have made that
// impossible; when they have not, one declaration is at fault, and it alone is held at its last
// good state.
type unrendered struct {
	object fleet.Object
	err    error
}

// refuse adds the declarations behind what could not be rendered. An error means that no change of
// this plan is behind one of them: the fault is older, and going on would drop an object that
// stands.
func (d *draft) refuse(refused map[fleet.Key]fleet.Problem) error {
	for _, u := range d.unrendered {
		blamed := d.blame(u.object)
		if len(blamed) == 0 {
			return fmt.Errorf("render %s %s for engine %s: %w", u.object.Key.Kind,
				u.object.Key.Name, u.object.Key.Engine, u.err)
		}
		for _, b := range blamed {
			refused[b.Key] = fleet.Problem{
				Key: b.Key, Path: b.Path, Severity: fleet.SeverityError, Code: codeUnrendered,
				Message: fmt.Sprintf("no %s can be made from it: %v", u.object.Key.Kind, u.err),
				Fix:     "write the value in the form that Argo CD takes",
			}
		}
	}
	return nil
}

const codeUnrendered = "cannot-render"

// blame finds the changed declarations behind an object: the most particular one, and of an
// AppProject, which is made from all that its tenant declares, every one of that tenant.
func (d *draft) blame(o fleet.Object) []*fleet.Declaration {
	changed, ofTenant := map[fleet.Key]*fleet.Declaration{}, []*fleet.Declaration{}
	for _, c := range d.changes {
		if c.After == nil {
			continue
		}
		changed[c.Key] = c.After
		if o.Project != nil && (c.Key.Tenant == o.Project.Tenant ||
			c.Key == tenantKey(o.Project.Tenant)) {
			ofTenant = append(ofTenant, c.After)
		}
	}
	for _, k := range behind(o) {
		if after := changed[k]; after != nil {
			return []*fleet.Declaration{after}
		}
	}
	return ofTenant
}

func tenantKey(t fleet.TenantName) fleet.Key {
	return fleet.Key{Kind: fleet.KindTenant, Name: string(t)}
}

func behind(o fleet.Object) []fleet.Key {
	switch {
	case o.Application != nil:
		id := o.Application.ID
		return []fleet.Key{
			{Kind: fleet.KindGitOpsDeployment, Tenant: id.Tenant, Name: string(id.Deployment)},
			environmentKey(id.In()), tenantKey(id.Tenant),
		}
	case o.Cluster != nil:
		return []fleet.Key{environmentKey(o.Cluster.ID)}
	case o.Repository != nil:
		return []fleet.Key{{Kind: fleet.KindRepositoryCredential, Tenant: o.Repository.ID.Tenant,
			Name: string(o.Repository.ID.Name)}}
	default:
		return nil
	}
}
