package catalog

import (
	"maps"
	"slices"

	"argosy.dev/argosy/fleet"
)

// term is something under which a declaration can be found from the other side. Terms name things
// that may not exist: a deployment stands under the environment that it misses, and is found when
// that comes.
type term struct {
	what   what
	tenant fleet.TenantName
	a, b   string
}

type what uint8

const (
	ofKind   what = iota // tenant, kind: every key of it
	refersTo             // tenant, kind, name: who names this key
	claimOf              // server, namespace: environments that deploy there
	// namespace: environments that deploy to one of this name, on any server
	namespaceOf
	argoCDIn     // namespace: engines whose Argo CD lives in one of this name
	installation // installationID: engines
	instance     // connection, namespace: engines
	accessTo     // tenant, repository: credentials
	sourceFrom   // tenant, repository: deployments
	labelled     // tenant, label, value: environments
	// tenant, label, value: deployments whose selector's first label this is
	selecting
	servedIn     // region: engines
	wantedIn     // region: environments
	overQuota    // tenant: newcomers that wait for room
	grantsServer // an entry of Tenant.clusters: tenants
	onServer     // an entry that would grant it: environments
	underPolicy  // tenant, or all of them: what a policy holds back or warns of
)

func membersOf(t fleet.TenantName, k fleet.Kind) term {
	return term{what: ofKind, tenant: t, a: string(k)}
}

func referrersOf(k fleet.Key) term {
	return term{what: refersTo, tenant: k.Tenant, a: string(k.Kind), b: k.Name}
}

// terms lists under what an entry stands: the terms of what it declares in effect and of what it
// declares at the head.
func (e *entry) terms() []term {
	if e == nil {
		return nil
	}
	ts := []term{membersOf(e.key.Tenant, e.key.Kind)}
	for _, d := range e.versions() {
		ts = append(ts, terms(d)...)
	}
	if hasCode(e.quarantine, codeQuota) {
		ts = append(ts, term{what: overQuota, tenant: e.key.Tenant})
	}
	if heldByPolicy(e) {
		ts = append(ts, term{what: underPolicy, tenant: e.key.Tenant}, term{what: underPolicy})
	}
	return ts
}

// sameTerms reports whether two entries of a key stand under the same terms for sure, as when a
// head takes effect.
func sameTerms(a, b *entry) bool {
	return a != nil && b != nil && hasCode(a.quarantine, codeQuota) == hasCode(b.quarantine,
		codeQuota) && heldByPolicy(a) == heldByPolicy(b) &&
		slices.Equal(a.versions(), b.versions())
}

func terms(d *fleet.Declaration) []term {
	var ts []term
	for _, k := range references(d) {
		ts = append(ts, referrersOf(k))
	}
	t := d.Key.Tenant
	switch {
	case d.Engine != nil:
		return append(ts, term{what: argoCDIn, a: d.Engine.ArgoCD.Namespace},
			term{what: servedIn, a: d.Engine.Region},
			term{what: installation, a: d.Engine.ArgoCD.InstallationID}, instanceOf(d.Engine))
	case d.Tenant != nil:
		for _, g := range d.Tenant.Clusters {
			ts = append(ts, term{what: grantsServer, a: g})
		}
	case d.Environment != nil:
		if c := d.Environment.Cluster; c != nil {
			for _, g := range fleet.ServerGrants(c.Server) {
				ts = append(ts, term{what: onServer, a: g})
			}
		}
		ts = append(ts, term{what: wantedIn, a: d.Environment.Region})
		for _, ns := range d.Environment.Namespaces {
			ts = append(ts, claim(d, ns), term{what: namespaceOf, a: ns})
		}
		for k, v := range d.Labels {
			ts = append(ts, term{what: labelled, tenant: t, a: k, b: v})
		}
	case d.Credential != nil:
		ts = append(ts, term{what: accessTo, tenant: t, a: repositoryKey(d.Credential.RepoURL)})
	case d.Deployment != nil:
		ts = append(ts, term{what: sourceFrom, tenant: t,
			a: repositoryKey(d.Deployment.Source.RepoURL)})
		if k, v, ok := firstLabel(d.Deployment.Destination.EnvironmentSelector); ok {
			ts = append(ts, term{what: selecting, tenant: t, a: k, b: v})
		}
	}
	return ts
}

// references are the keys that a declaration refers to by name. That a tenant's declarations refer
// to their Tenant goes without saying: their key does.
func references(d *fleet.Declaration) []fleet.Key {
	var ks []fleet.Key
	env := func(n fleet.EnvironmentName) {
		ks = append(ks, environmentKey(fleet.EnvironmentID{Tenant: d.Key.Tenant, Name: n}))
	}
	switch {
	case d.Engine != nil:
		for _, t := range d.Engine.DedicatedTo {
			ks = append(ks, tenantKey(t))
		}
	case d.Policy != nil:
		for _, t := range d.Policy.Tenants {
			ks = append(ks, tenantKey(t))
		}
	case d.Deployment != nil:
		for _, n := range d.Deployment.Destination.Environments {
			env(n)
		}
		for _, o := range d.Deployment.Overrides {
			env(o.Environment)
		}
	case d.SyncRun != nil:
		ks = append(ks,
			deploymentKey(fleet.DeploymentID{Tenant: d.Key.Tenant, Name: d.SyncRun.Deployment}))
		for _, n := range d.SyncRun.Environments {
			env(n)
		}
	}
	return ks
}

// claim is what an environment has of its API server. The cluster of an agent is known by the
// environment alone: nobody else has one there.
func claim(d *fleet.Declaration, namespace string) term {
	server := "agent of " + environmentID(d.Key).String()
	if c := d.Environment.Cluster; c != nil {
		server = c.Server
	}
	return term{what: claimOf, a: server, b: namespace}
}

func instanceOf(e *fleet.EngineSpec) term {
	connection := "in-cluster"
	switch {
	case e.Connection.KubeconfigRef != nil:
		connection = "kubeconfig " + e.Connection.KubeconfigRef.Name
	// where it is, its agent alone knows: the installationID, which is unique, tells them apart
	case e.Connection.Agent != nil:
		connection = "agent of " + e.ArgoCD.InstallationID
	}
	return term{what: instance, a: connection, b: e.ArgoCD.Namespace}
}

// repositoryKey is the URL itself when it is none: nothing that is refused meets anything else.
func repositoryKey(url string) string {
	key, err := fleet.NormalizeRepoURL(url)
	if err != nil {
		return url
	}
	return key
}

// firstLabel is the label by which a selector is indexed: it selects nothing that lacks this one.
func firstLabel(s *fleet.LabelSelector) (k, v string, ok bool) {
	if s == nil || len(s.MatchLabels) == 0 {
		return "", "", false
	}
	k = slices.Min(slices.Collect(maps.Keys(s.MatchLabels)))
	return k, s.MatchLabels[k], true
}
