package argocd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"argosy.dev/argosy/fleet/argocd/instance"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

var _ engine.Installer = (*Engine)(nil)

// target opens the instance of a managed engine. Every write checks the emergency stop of the fleet
// and the lease immediately before.
func (e *Engine) target() (*instance.Target, error) {
	e.opening.Lock()
	defer e.opening.Unlock()
	if e.opened == nil {
		t, err := instance.Open(e.config, e.namespace, e.installation, e.unlessStopped(""))
		if err != nil {
			return nil, err
		}
		e.opened = t
	}
	return e.opened, nil
}

// Install takes a step towards the version: see instance.Target.
func (e *Engine) Install(ctx context.Context, m mirror.RingManifests, epoch int64) (string, error) {
	manifests, err := instance.Parse(m.Version, m.Files)
	if err != nil {
		return "", fmt.Errorf("%w: Argo CD %s: %w", engine.ErrRefused, m.Version, err)
	}
	t, err := e.target()
	if err != nil {
		return "", e.installError(err)
	}
	r, err := t.Apply(ctx, instance.Order{Manifests: manifests, Digest: m.Digest, Size: e.size,
		Epoch: epoch})
	return r.Waits, e.installError(err)
}

// InstalledSize returns the size that Install has applied last, as text; "" without one.
func (e *Engine) InstalledSize(ctx context.Context) (string, error) {
	t, err := e.target()
	if err != nil {
		return "", e.installError(err)
	}
	size, err := t.Size(ctx)
	return size, e.installError(err)
}

// Release gives the instance back.
func (e *Engine) Release(ctx context.Context, epoch int64) error {
	t, err := e.target()
	if err == nil {
		err = t.Release(ctx, epoch)
	}
	return e.installError(err)
}

// Uninstall removes the instance: see instance.Target.
func (e *Engine) Uninstall(ctx context.Context, epoch int64) (string, error) {
	t, err := e.target()
	if err != nil {
		return "", e.installError(err)
	}
	waits, err := t.Remove(ctx, epoch, labelProbe)
	return waits, e.installError(err)
}

// InstalledEpoch returns the epoch of the last writer of a managed instance; 0 without one.
func (e *Engine) InstalledEpoch(ctx context.Context) (int64, error) {
	t, err := e.target()
	if err != nil {
		return 0, e.installError(err)
	}
	epoch, err := t.Epoch(ctx)
	return epoch, e.installError(err)
}

func (e *Engine) installError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, engine.ErrStopped):
		return engine.ErrStopped
	case errors.Is(err, instance.ErrSuperseded):
		return fmt.Errorf("%w: Argo CD of engine %s: %w", engine.ErrFenced, e.name, err)
	case errors.Is(err, instance.ErrRefused):
		return fmt.Errorf("%w: Argo CD of engine %s: %w (docs/rings.md)", engine.ErrRefused, e.name,
			err)
	}
	return fmt.Errorf("the Argo CD of engine %s: %w", e.name, err)
}

// installRights are the rights that Install needs in the namespace. Creating a Role needs every
// right of the Role, or escalate.
func installRights() (all []right) {
	for _, kind := range []struct{ group, resource string }{{"", "configmaps"},
		{"", "serviceaccounts"}, {"", "services"}, {"apps", "deployments"},
		{"apps", "statefulsets"}, {"networking.k8s.io", "networkpolicies"},
		{"rbac.authorization.k8s.io", "roles"}, {"rbac.authorization.k8s.io", "rolebindings"}} {
		for _, verb := range []string{"get", "create", "patch", "delete"} {
			all = append(all, right{group: kind.group, resource: kind.resource, verb: verb})
		}
	}
	return append(all, right{resource: "configmaps", verb: "update"},
		right{group: "rbac.authorization.k8s.io", resource: "roles", verb: "escalate"},
		right{group: "rbac.authorization.k8s.io", resource: "roles", verb: "bind"})
}

// definitionRights are the rights that Install needs in the cluster. RBAC cannot restrict create to
// a name.
func definitionRights() []right {
	all := []right{{group: "apiextensions.k8s.io", resource: "customresourcedefinitions",
		verb: "create"}}
	for _, name := range []string{"applications.argoproj.io", "appprojects.argoproj.io"} {
		for _, verb := range []string{"get", "patch"} {
			all = append(all, right{group: "apiextensions.k8s.io",
				resource: "customresourcedefinitions", name: name, verb: verb})
		}
	}
	return all
}

// installFindings names the missing rights of a managed engine.
func (e preflight) installFindings(ctx context.Context) ([]engine.Finding, error) {
	if !e.managed {
		return nil, nil
	}
	rights := installRights()
	if e.size != nil { // every application-controller ends before their number changes
		rights = append(rights, right{resource: "pods", verb: "list"})
	}
	missing, err := e.missingRights(ctx, rights)
	for _, r := range definitionRights() {
		allowed, rerr := e.client.allowed(ctx, r)
		if err = errors.Join(err, rerr); err == nil && !allowed {
			missing = append(missing, strings.TrimSpace(r.verb+" "+r.resource+" "+r.name))
		}
	}
	shadow, serr := e.shadowFindings(ctx)
	if err = errors.Join(err, serr); err != nil || len(missing) == 0 {
		return shadow, err
	}
	more := ""
	if n := len(missing) - 5; n > 0 {
		missing, more = missing[:5], fmt.Sprintf(" and %d more", n)
	}
	return append(shadow, engine.Finding{Code: "install-rights",
		Message: e.actor() + " may not " + strings.Join(missing, ", ") + more +
			", and cannot install Argo CD in namespace " + e.namespace,
		Fix: "grant the rights of docs/rings.md (argocd.install of the chart argosy-agent, " +
			"rbac.engineInstalls of the chart argosy), or " +
			"remove argocd.managed of the Engine"}), nil
}

// shadowFindings names the missing rights with which the Applications are rendered under the
// ring's next version. Those on the Secrets of repositories are among the needed ones, unless all
// repositories are public.
func (e preflight) shadowFindings(ctx context.Context) ([]engine.Finding, error) {
	if !e.options.Shadows {
		return nil, nil
	}
	missing, err := e.missingRights(ctx, []right{{resource: "pods", verb: "list"},
		{resource: "pods/portforward", verb: "create"},
		{resource: "secrets", name: redisSecret, verb: "get"}})
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	return []engine.Finding{{Code: "shadow-rights",
		Message: e.actor() + " may not " + strings.Join(missing, ", ") + " in namespace " +
			e.namespace + ", and cannot compare what the next version of Argo CD renders",
		Fix: "grant the rights of docs/shadow.md (argocd.install of the chart argosy-agent, " +
			"rbac.engineInstalls of the chart argosy); a ring with gates.skipShadow does not " +
			"need them"}}, nil
}
