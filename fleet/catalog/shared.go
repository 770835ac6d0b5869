package catalog

import (
	"fmt"
	"slices"

	"argosy.dev/argosy/fleet"
)

// What several declarations may want and one can have: a namespace of an API server, a repository's
// credential, an Argo CD instance, room within a quota. Who has it in effect keeps it. Two that
// want it and do not have it are both refused, unless one of them is wrong for another reason: then
// it does not stand in the way.

var sharedCodes = []string{codeNamespaceClaimed, codeEngineNamespace, codeSameRepository,
	codeInstallationID, codeInstance, codeQuota, codeNamespaceInUse, codeReferenced,
	codePolicyReached}

// barred reports whether an entry is quarantined for a reason of its own, and so no rival to
// anyone.
func barred(e *entry) bool {
	return e.quarantined() && slices.ContainsFunc(e.quarantine, func(p fleet.Problem) bool {
		return !slices.Contains(sharedCodes, p.Code)
	})
}

// rivalTerms are where to find those that a declaration may be in the way of.
func rivalTerms(d *fleet.Declaration) []term {
	switch {
	case d.Engine != nil:
		return []term{{what: installation, a: d.Engine.ArgoCD.InstallationID}, instanceOf(d.Engine),
			{what: namespaceOf, a: d.Engine.ArgoCD.Namespace}}
	case d.Environment != nil:
		ts := make([]term, 0, 2*len(d.Environment.Namespaces))
		for _, ns := range d.Environment.Namespaces {
			ts = append(ts, claim(d, ns), term{what: argoCDIn, a: ns})
		}
		return ts
	case d.Credential != nil:
		return []term{
			{what: accessTo, tenant: d.Key.Tenant, a: repositoryKey(d.Credential.RepoURL)}}
	}
	return nil
}

func (w *work) checkShared(e *entry) []fleet.Problem {
	switch d := e.head; {
	case d.Engine != nil:
		return w.checkInstance(e, d.Engine)
	case d.Environment != nil:
		return w.checkNamespaces(e, d)
	case d.Credential != nil:
		return w.checkCredential(e, d.Credential)
	}
	return nil
}

// A rival has, or wants as well, what an entry wants.
type rival struct {
	*entry
	has bool
}

// String words what the rival does.
func (r *rival) String() string {
	if r.has {
		return "has it"
	}
	return "wants it too"
}

// rival is who has in effect what stands under a term, or the first who wants it and is good
// otherwise; nil when the owner has it already or nobody else does. mine tells who is of the same
// owner, has whether a declaration stands under the term.
func (w *work) rival(e *entry, t term, mine func(fleet.Key) bool,
	has func(*fleet.Declaration) bool) *rival {
	var wants *rival
	for _, k := range w.st.index.list(t) {
		other := w.st.entries.get(k)
		switch holds := other.effective != nil && has(other.effective); {
		case holds && mine(k):
			return nil
		case holds:
			return &rival{other, true}
		case mine(k):
		case wants == nil && other.head != nil && has(other.head) && w.wellBehaved(other):
			wants = &rival{other, false}
		}
	}
	return wants
}

// wellBehaved reports whether the head of an entry is good as far as it alone is concerned.
func (w *work) wellBehaved(e *entry) bool {
	problems := w.checkOwn(e, e.head)
	return len(problems) == 0 && len(onlyErrors(w.checkPolicies(e, problems))) == 0
}

func (e *entry) itself(k fleet.Key) bool { return k == e.key }

func (w *work) checkInstance(e *entry, spec *fleet.EngineSpec) []fleet.Problem {
	var problems []fleet.Problem
	id := spec.ArgoCD.InstallationID
	if r := w.rival(e, term{what: installation, a: id}, e.itself, func(d *fleet.Declaration) bool {
		return d.Engine.ArgoCD.InstallationID == id
	}); r != nil {
		problems = append(problems, e.problem("spec.argocd.installationID", codeInstallationID,
			"choose an ID that no other engine has",
			"installationID %q is not free: engine %q %s (%s)", id, r.key.Name, r, r.path))
	}
	in := instanceOf(spec)
	if r := w.rival(e, in, e.itself, func(d *fleet.Declaration) bool {
		return instanceOf(d.Engine) == in
	}); r != nil {
		problems = append(problems, e.problem("spec.argocd.namespace", codeInstance,
			"an engine is one Argo CD instance: name another namespace or connection",
			"the Argo CD in namespace %q of this connection is not free: engine %q %s (%s)",
			spec.ArgoCD.Namespace, r.key.Name, r, r.path))
	}
	if held := e.effective; held != nil && held.Engine.ArgoCD.Namespace == spec.ArgoCD.Namespace {
		return problems
	}
	for _, k := range w.st.index.list(term{what: namespaceOf, a: spec.ArgoCD.Namespace}) {
		if env := w.st.get(k); env != nil && slices.Contains(env.Environment.Namespaces,
			spec.ArgoCD.Namespace) && !w.ownCluster(env) {
			return append(problems, e.problem("spec.argocd.namespace", codeEngineNamespace,
				"choose a namespace that no tenant deploys to, or take it out of namespaces of "+
					"fleet/tenants/"+string(k.Tenant)+".yaml and of the environment",
				"namespace %q is one that environment %s deploys to (%s)", spec.ArgoCD.Namespace,
				environmentID(k), env.Path))
		}
	}
	return problems
}

// ownCluster reports whether the environment's cluster is its tenant's alone: behind its own agent,
// or at an API server that no other tenant is granted. Naming namespaces there keeps the platform
// from nothing.
func (w *work) ownCluster(env *fleet.Declaration) bool {
	c := env.Environment.Cluster
	if c == nil {
		return true
	}
	return w.mayUse(env) && !w.sharedServer(c.Server, env.Key.Tenant)
}

// mayUse reports whether the tenant is granted the environment's API server, or needs no grant.
func (w *work) mayUse(env *fleet.Declaration) bool {
	c := env.Environment.Cluster
	if c == nil {
		return true
	}
	t := w.st.get(tenantKey(env.Key.Tenant))
	return t != nil && fleet.ServerGranted(t.Tenant.Clusters, c.Server)
}

// checkNamespaces keeps environments out of each other's namespaces and out of Argo CD's. An
// engine's API server is known to its kubeconfig alone, so that the namespace of an engine is
// refused on every server: who may write there makes Applications.
func (w *work) checkNamespaces(e *entry, head *fleet.Declaration) []fleet.Problem {
	var problems []fleet.Problem
	may, shared := w.mayUse(head), head.Environment.Cluster != nil &&
		w.sharedServer(head.Environment.Cluster.Server, e.key.Tenant)
	for i, ns := range head.Environment.Namespaces {
		field := fmt.Sprintf("spec.namespaces[%d]", i)
		t := claim(head, ns)
		if p := w.checkArgoNamespace(e, field, ns); p != nil {
			problems = append(problems, *p)
		}
		if !may || shared && !w.mayName(e, head.Environment.Cluster.Server, ns) {
			continue // a tenant learns nothing of who has what it may not use
		}
		other := w.rival(e, t, func(k fleet.Key) bool { return k.Tenant == e.key.Tenant },
			func(d *fleet.Declaration) bool {
				return claim(d, ns) == t && slices.Contains(d.Environment.Namespaces, ns)
			})
		if other != nil {
			// Without the other's name: a tenant learns nothing of the others.
			problems = append(problems, e.problem(field, codeNamespaceClaimed,
				"use a namespace of your own, or ask the platform to grant it to one tenant "+
					"alone in namespaces of fleet/tenants/",
				"namespace %q of %s is not free: another tenant's environment %s", ns, t.a, other))
		}
	}
	return problems
}

func (w *work) checkArgoNamespace(e *entry, field, ns string) *fleet.Problem {
	if e.effective != nil && slices.Contains(e.effective.Environment.Namespaces, ns) {
		return nil
	}
	for _, k := range w.st.index.list(term{what: argoCDIn, a: ns}) {
		for _, d := range w.st.entries.get(k).versions() {
			if d.Engine.ArgoCD.Namespace == ns {
				p := e.problem(field, codeEngineNamespace, "use another namespace",
					"namespace %q is one in which an engine's Argo CD lives", ns)
				return &p
			}
		}
	}
	return nil
}

func (w *work) checkCredential(e *entry, spec *fleet.CredentialSpec) []fleet.Problem {
	key := repositoryKey(spec.RepoURL)
	r := w.rival(e, term{what: accessTo, tenant: e.key.Tenant, a: key}, e.itself,
		func(d *fleet.Declaration) bool { return repositoryKey(d.Credential.RepoURL) == key })
	if r == nil {
		return nil
	}
	return []fleet.Problem{e.problem("spec.repoURL", codeSameRepository, "keep one of the two",
		"credential %q is for the same repository: it %s (%s)", r.key.Name, r, r.path)}
}

// checkQuota lets nothing in that would take the tenant beyond its quota. What is in effect stays,
// and may change as long as it does not bring more Applications than there is room for.
func (w *work) checkQuota(e *entry) []fleet.Problem {
	t := w.st.get(tenantKey(e.key.Tenant))
	if t == nil {
		return nil // the platform's
	}
	used, quota := w.st.usedBy(e.key.Tenant), t.Tenant.Quota
	var problems []fleet.Problem
	over := func(field, what string, more, used, quota int) {
		if more > 0 && used+more > quota {
			problems = append(problems,
				e.problem(field, codeQuota, "remove some, or ask the platform for more in "+t.Path,
					"tenant %q has %d of %d %s and no room for %d more", e.key.Tenant, used, quota,
					what, more))
		}
	}
	over("spec", "environments", count(e.effective == nil && e.head.Environment != nil),
		used.Environments, quota.Environments)
	over("spec", "deployments", count(e.effective == nil && e.head.Deployment != nil),
		used.Deployments, quota.Deployments)
	field := "spec"
	if e.head.Deployment != nil {
		field = "spec.destination"
	}
	over(field, "applications", w.st.applications(e.head)-w.st.applications(e.effective),
		used.Applications, quota.Applications)
	return problems
}
