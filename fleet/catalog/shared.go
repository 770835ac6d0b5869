package catalog

import (
	"slices"

	"argosy.dev/argosy/fleet"
)

func (ch *checker) checkShared(e *entry) []fleet.Problem {
	switch d := e.head; {
	case d.Engine != nil:
		return ch.checkInstance(e, d.Engine)
	case d.Cluster != nil:
		return ch.checkSameServer(e, d.Cluster)
	case d.Environment != nil:
		return ch.checkNamespaces(e, d)
	case d.Credential != nil:
		return ch.checkCredential(e, d.Credential)
	case d.Deployment != nil:
		return ch.checkName(e)
	}
	return nil
}

func (ch *checker) checkInstance(e *entry, spec *fleet.EngineSpec) []fleet.Problem {
	var problems []fleet.Problem
	id := spec.ArgoCD.InstallationID
	if r := ch.rival(e, term{what: installation, a: id}, e.itself, func(d *fleet.Declaration) bool {
		return d.Engine.ArgoCD.InstallationID == id
	}); r != nil {
		problems = append(
			problems, e.problem("spec.argocd.installationID", codeInstallationID,
				"choose an ID that no other engine has",
				"installationID %q is not free: engine %q %s (%s)", id, r.key.Name, r, r.path))
	}
	in := instanceOf(spec)
	if r := ch.rival(e, in, e.itself, func(d *fleet.Declaration) bool {
		return slices.Contains(servedBy(d.Engine), in)
	}); r != nil {
		problems = append(
			problems,
			e.problem("spec.argocd.namespace", codeInstance,
				"an engine is one Argo CD instance: name another namespace or connection",
				"the Argo CD in namespace %q of this connection is not free: engine %q %s (%s)",
				spec.ArgoCD.Namespace, r.key.Name, r, r.path))
	}
	if p := ch.checkInstanceNamespace(e, spec); p != nil {
		problems = append(problems, *p)
	}
	return append(problems, ch.checkSharedNamespaces(e, spec)...)
}

func (ch *checker) checkCredential(e *entry, spec *fleet.CredentialSpec) []fleet.Problem {
	scope := spec.Scope()
	r := ch.rival(e, term{what: accessTo, tenant: e.key.Tenant, a: scope}, e.itself,
		func(d *fleet.Declaration) bool { return d.Credential.Scope() == scope })
	if r == nil {
		return nil
	}
	return []fleet.Problem{
		e.problem("spec.repoURL", codeSameRepository, "keep one of the two",
			"credential %q is for the same repository: it %s (%s)", r.key.Name, r, r.path)}
}

// A rival has or wants the same thing as an entry.
type rival struct {
	*entry
	has bool
}

// rival returns the entry that has a term in effect, or the first other good entry that wants it.
// It returns nil if the owner has it already or there is no other. mine reports whether a key has
// the same owner, has whether a declaration has the term.
func (ch *checker) rival(e *entry, t term, mine func(fleet.Key) bool,
	has func(*fleet.Declaration) bool) *rival {
	var wants *rival
	for _, k := range ch.st.index.list(t) {
		other := ch.st.entries.get(k)
		switch holds := other.effective != nil && has(other.effective); {
		case holds && mine(k):
			return nil
		case holds:
			return &rival{other, true}
		case mine(k):
		case wants == nil && other.head != nil && has(other.head) && ch.wellBehaved(other):
			wants = &rival{other, false}
		}
	}
	return wants
}

// wellBehaved reports whether the head of an entry is good as far as it alone is concerned.
func (ch *checker) wellBehaved(e *entry) bool {
	problems := ch.checkOwn(e, e.head)
	return len(problems) == 0 && len(onlyErrors(ch.checkPolicies(e, problems))) == 0
}

// sharedCodes are the codes of errors about what several declarations may want: a namespace of an
// API server, a repository's credential, an Argo CD instance, a share of a quota. Its effective
// owner keeps it. Two newcomers are both refused, unless one of them has another error: then it
// does not block the other.
var sharedCodes = []string{codeNamespaceClaimed, codeEngineNamespace, codeSameRepository,
	codeInstallationID, codeInstance, codeQuota,
	codeWholeCluster, codeClusterScope, codeNamespaceInUse, codeReferenced,
	codePolicyReached}

// barred reports whether an entry is quarantined for a reason of its own, so that it is no rival of
// another.
func barred(e *entry) bool {
	return e.quarantined() && slices.ContainsFunc(e.quarantine, func(p fleet.Problem) bool {
		return !slices.Contains(sharedCodes, p.Code)
	})
}

// rivalTerms returns the terms of declarations that may conflict with this one.
func rivalTerms(d *fleet.Declaration) []term {
	switch {
	case d.Engine != nil:
		ts := append(servedBy(d.Engine),
			term{what: installation, a: d.Engine.ArgoCD.InstallationID})
		for _, n := range served(d.Engine) {
			for _, entry := range entriesFor(n.Namespace) {
				ts = append(ts, term{what: namespaceOf, a: entry})
			}
		}
		return ts
	case d.Cluster != nil:
		return []term{clusterAt(d.Cluster.Server)}
	case d.Environment != nil:
		return environmentRivals(d)
	case d.Credential != nil:
		return []term{
			{what: accessTo, tenant: d.Key.Tenant, a: d.Credential.Scope()}}
	}
	return nil
}

// String describes the rival's claim.
func (r *rival) String() string {
	if r.has {
		return "has it"
	}
	return "wants it too"
}
