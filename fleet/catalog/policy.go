package catalog

import (
	"maps"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// policySet holds the policies that judge a changeset.
type policySet struct {
	judge  Judge
	files  map[fleet.Key]bool   // of the commit
	before []*fleet.Declaration // policies in effect before it
	// policies in effect after it, as far as known; nil: not loaded yet
	after   []*fleet.Declaration
	first   bool // the catalog was empty before
	resumed bool
}

func (s *Changeset) policySet() *policySet {
	p := &policySet{judge: s.base.judge, first: s.base.st.entries.empty(), resumed: s.resumed}
	if p.judge == nil || p.first {
		return p
	}
	p.before, p.files = s.base.st.policies(), make(map[fleet.Key]bool, len(s.in))
	for _, i := range s.in {
		p.files[i.Key] = true
	}
	return p
}

// checkPolicies returns the policies that a head breaks. It does not judge a deployment with an
// unknown environment, whose targets are unknown, nor an effective SyncRun, which has run.
func (ch *checker) checkPolicies(e *entry, problems []fleet.Problem) []fleet.Problem {
	if hasCode(problems, codeUnknownTenant) || hasCode(problems, codeUnknownEnv) ||
		e.head.SyncRun != nil && e.effective != nil {
		return nil
	}
	return ch.policies.breaches(ch.st, e, e.head, ch.policies.judges(e.key, ch.st))
}

// reached rejects changes of environments and of a tenant's defaults that bring an unchanged
// deployment under a policy that it breaks, or leave one of its texts without a valid value: an
// environment gets the label of production or loses a label, or a new environment is selected. The
// deployment's own file is judged as any other.
func (w *work) reached() map[fleet.Key]fleet.Problem {
	rejected, before := map[fleet.Key]fleet.Problem{}, w.st.over()
	var changed []fleet.Key
	for k := range w.accepted {
		if reaches(k.Kind) {
			changed = append(changed, k)
			before.put(k, w.st.under.entries.get(k))
		}
	}
	for _, k := range changed {
		e := &entry{key: k}
		if now := w.st.entries.get(k); now != nil {
			e.path = now.path
		} else {
			e.path = w.st.under.entries.get(k).path
		}
		if p := w.brings(e, before, w.st); p != nil {
			rejected[k] = *p
		}
	}
	return rejected
}

// reaches reports whether a change of a declaration changes what other files deploy.
func reaches(k fleet.Kind) bool {
	return k == fleet.KindManagedEnvironment || k == fleet.KindTenantDefaults
}

// wouldBring reports whether a rejected change of an environment or of defaults would bring a
// deployment under a policy that it breaks.
func (w *work) wouldBring(e *entry) bool {
	if !reaches(e.key.Kind) {
		return false
	}
	after, becomes := w.st.over(), (*entry)(nil)
	if !e.removed {
		becomes = &entry{key: e.key, path: e.path, blob: e.blob, effective: e.head, head: e.head}
	}
	after.put(e.key, becomes)
	return w.brings(e, w.st, after) != nil
}

// brings is why an environment or a tenant's defaults may not change: a deployment that reaches the
// environment, or inherits the defaults, breaks a policy after the change and not before.
func (w *work) brings(env *entry, before, after *state) *fleet.Problem {
	policies := w.policies.judges(env.key, w.st)
	var keys []fleet.Key
	if env.key.Kind == fleet.KindTenantDefaults {
		keys = after.index.list(membersOf(env.key.Tenant, fleet.KindGitOpsDeployment))
	} else {
		keys = reaching(before, after, environmentID(env.key))
	}
	for _, k := range keys {
		e := after.entries.get(k)
		if e == nil || e.effective == nil || after == w.st && !e.quarantined() {
			continue // judged against this state and accepted
		}
		if p := leavesUnresolved(env, e, before, after); p != nil {
			return p
		}
		now := onlyErrors(w.policies.breaches(after, e, e.effective, policies))
		if len(now) == 0 {
			continue
		}
		was := w.policies.breaches(before, e, e.effective, policies)
		for _, p := range now {
			if !slices.ContainsFunc(was, func(b fleet.Problem) bool {
				return policyOf(b) == policyOf(p)
			}) {
				problem := env.problem("", codePolicyReached,
					"correct "+e.path+" first, or in the same commit",
					"with this change %s breaks policy %s",
					e.key, p.Message)
				return &problem
			}
		}
	}
	return nil
}

// leavesUnresolved is why an environment may not change: a text of a deployment has no valid value
// there after the change, and had one before or was not needed.
func leavesUnresolved(env, e *entry, before, after *state) *fleet.Problem {
	in := func(s *state) []fleet.Unresolved {
		d := s.get(env.key)
		if d == nil || !slices.Contains(s.targets(e.effective), environmentID(env.key)) {
			return nil
		}
		_, unresolved := e.effective.TargetIn(d, fleet.Defaults{})
		return unresolved
	}
	if env.key.Kind != fleet.KindManagedEnvironment || !e.effective.Deployment.Varies() {
		return nil
	}
	now := in(after)
	if len(now) == 0 || len(in(before)) > 0 {
		return nil
	}
	field := "metadata.labels"
	b, a := before.get(env.key), after.get(env.key)
	if b != nil && maps.Equal(b.Labels, a.Labels) {
		field = "spec.variables"
	}
	p := env.problem(field, codeVariableInUse,
		"keep or add the label or variable, or correct "+e.path+" in the same commit",
		"with this change %s has no valid %s: %v", e.path, now[0].Field, now[0].Err)
	return &p
}

// judges returns the policies that judge a key. Every policy is final before the first tenant's
// file is judged.
func (p *policySet) judges(k fleet.Key, st *state) []*fleet.Declaration {
	switch {
	case p.judge == nil:
		return nil
	case p.files[k] && !p.first:
		return p.before
	case p.after == nil:
		p.after = st.policies()
	}
	return p.after
}

// reaching are the deployments that reach an environment in one of two states.
func reaching(a, b *state, id fleet.EnvironmentID) []fleet.Key {
	var keys []fleet.Key
	for _, s := range []*state{a, b} {
		for _, d := range s.deploymentsIn(id) {
			keys = append(keys, deploymentKey(d))
		}
	}
	slices.SortFunc(keys, compareKeys)
	return slices.Compact(keys)
}

// breaches returns the policies that a declaration breaks in a state.
func (p *policySet) breaches(st *state, e *entry, d *fleet.Declaration,
	policies []*fleet.Declaration) []fleet.Problem {
	var subject *fleet.Subject
	var problems []fleet.Problem
	for _, policy := range policies {
		if !policy.Policy.Covers(d.Key) {
			continue
		}
		if subject == nil {
			subject = st.subject(d)
		}
		broken, err := p.judge(policy.Policy, subject)
		switch {
		case err != nil:
			problems = append(
				problems, p.breach(e, policy, "it could not be judged: "+err.Error(),
					"ask the platform to correct "+policy.Path))
		case broken != "":
			problems = append(problems, p.breach(e, policy, broken, policy.Policy.Fix))
		}
	}
	return problems
}

// subject returns the input of policies for a declaration.
func (s *state) subject(d *fleet.Declaration) *fleet.Subject {
	subject := &fleet.Subject{Declaration: d, Tenant: s.get(tenantKey(d.Key.Tenant))}
	if d.Deployment == nil {
		return subject
	}
	defaults := s.defaults(d.Key.Tenant)
	for _, id := range s.targets(d) {
		target, _ := d.TargetIn(s.get(environmentKey(id)), defaults)
		subject.Targets = append(subject.Targets, target)
	}
	return subject
}

// defaults are what the deployments of a tenant inherit.
func (s *state) defaults(t fleet.TenantName) (d fleet.Defaults) {
	if own := s.get(DefaultsKey(t)); own != nil {
		d = *own.Defaults
	}
	if f := s.get(fleetKey()); f != nil {
		d = d.Or(f.Fleet.Defaults)
	}
	return d
}

func (p *policySet) breach(e *entry, policy *fleet.Declaration, message, fix string) fleet.Problem {
	problem := e.problem(policy.Policy.Field, codePolicy, fix, "%s: %s", policy.Key.Name, message)
	problem.Severity = policy.Policy.Weight()
	if p.first && p.resumed {
		problem.Severity = fleet.SeverityWarning
	}
	return problem
}

// policyOf is the name of the policy that a problem is of.
func policyOf(p fleet.Problem) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(p.Message, ofGenerated(p.Key)), ":")
	return name
}

// notReady returns the files of the commit that policies hold back which the commit itself
// changed: the next changeset judges them by the new ones.
func (w *work) notReady() map[fleet.Key]bool {
	if w.policies.judge == nil || w.policies.first ||
		slices.Equal(w.policies.before, w.st.policies()) {
		return nil
	}
	keys := map[fleet.Key]bool{}
	for k := range w.policies.files {
		if heldByPolicy(w.st.entries.get(k)) {
			keys[k] = true
		}
	}
	return keys
}

// policies returns the effective policies, sorted by name.
func (s *state) policies() []*fleet.Declaration {
	found := []*fleet.Declaration{}
	for _, k := range s.index.list(membersOf("", fleet.KindPolicy)) {
		if d := s.get(k); d != nil {
			found = append(found, d)
		}
	}
	return found
}
