package catalog

import (
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// Judge says, in the policy's words, why a declaration breaks it; "" when it keeps it. An error
// means that it could not be judged. It is pure, and is called from any number of stages at once.
type Judge func(p *fleet.PolicySpec, s *fleet.Subject) (broken string, err error)

// Judging gives the catalog the judge of its policies, and returns the catalog. It is not called
// beside a stage; without a judge, policies judge nothing.
//
// The files of a commit are judged by the policies that stood before it: none brings or loosens
// what it is judged by. What a commit only reaches is judged by those that stand after it. An empty
// catalog has no policies of its own, and the first commit is judged by those that it brings.
//
// What a declaration is judged by is what it says, its Tenant and, of a deployment, the
// environments that it reaches. A change of a policy judges what policies hold back or warn of, and
// nothing else: the rest is judged when the catalog judges it for another reason.
func (c *Catalog) Judging(j Judge) *Catalog {
	c.judge = j
	return c
}

// Resume is Stage for the first commit of a catalog whose state stood before and is not remembered,
// as after the loss of a database. What breaks a policy may have stood from before that policy, so
// it is warned of and held back by none.
func (c *Catalog) Resume(in []Input, again ...fleet.Key) *Changeset {
	return c.prepare(in, again, nil, true)
}

// bench is the policies that a stage judges by.
type bench struct {
	judge   Judge
	files   map[fleet.Key]bool   // of the commit
	before  []*fleet.Declaration // policies that stood before it
	after   []*fleet.Declaration // that stand after it, as far as is known; nil: to be looked up
	first   bool                 // nothing stood before
	resumed bool
}

func (s *Changeset) bench() bench {
	b := bench{judge: s.base.judge, first: s.base.st.entries.empty(), resumed: s.resumed}
	if b.judge == nil || b.first {
		return b
	}
	b.before, b.files = s.base.st.policies(), make(map[fleet.Key]bool, len(s.in))
	for _, i := range s.in {
		b.files[i.Key] = true
	}
	return b
}

// policies are those in effect, in the order of their names.
func (s *state) policies() []*fleet.Declaration {
	found := []*fleet.Declaration{}
	for _, k := range s.index.list(membersOf("", fleet.KindPolicy)) {
		if d := s.get(k); d != nil {
			found = append(found, d)
		}
	}
	return found
}

// judges are the policies that a key is judged by. All policies are settled before the first
// tenant's file is judged.
func (w *work) judges(k fleet.Key) []*fleet.Declaration {
	switch {
	case w.bench.judge == nil:
		return nil
	case w.bench.files[k] && !w.bench.first:
		return w.bench.before
	case w.bench.after == nil:
		w.bench.after = w.st.policies()
	}
	return w.bench.after
}

// checkPolicies is what a head breaks. A deployment that names what is not there is not judged: it
// is not known where it goes. A SyncRun that is in effect has had its effect.
func (w *work) checkPolicies(e *entry, problems []fleet.Problem) []fleet.Problem {
	if hasCode(problems, codeUnknownTenant) || hasCode(problems, codeUnknownEnv) ||
		e.head.SyncRun != nil && e.effective != nil {
		return nil
	}
	return w.breaches(w.st, e, e.head, w.judges(e.key))
}

// breaches is what a declaration breaks as things stand in a state.
func (w *work) breaches(st *state, e *entry, d *fleet.Declaration,
	policies []*fleet.Declaration) []fleet.Problem {
	var subject *fleet.Subject
	var problems []fleet.Problem
	for _, p := range policies {
		if !p.Policy.Covers(d.Key) {
			continue
		}
		if subject == nil {
			subject = st.subject(d)
		}
		broken, err := w.bench.judge(p.Policy, subject)
		switch {
		case err != nil:
			problems = append(problems, w.breach(e, p, "it could not be judged: "+err.Error(),
				"ask the platform to mend "+p.Path))
		case broken != "":
			problems = append(problems, w.breach(e, p, broken, p.Policy.Fix))
		}
	}
	return problems
}

func (w *work) breach(e *entry, p *fleet.Declaration, message, fix string) fleet.Problem {
	problem := e.problem(p.Policy.Field, codePolicy, fix, "%s: %s", p.Key.Name, message)
	problem.Severity = p.Policy.Weight()
	if w.bench.first && w.bench.resumed {
		problem.Severity = fleet.SeverityWarning
	}
	return problem
}

// subject is what policies are shown of a declaration.
func (s *state) subject(d *fleet.Declaration) *fleet.Subject {
	subject := &fleet.Subject{Declaration: d, Tenant: s.get(tenantKey(d.Key.Tenant))}
	if d.Deployment == nil {
		return subject
	}
	var defaults fleet.SyncSettings
	if f := s.get(fleetKey()); f != nil {
		defaults = f.Fleet.Defaults.Sync
	}
	for _, id := range s.targets(d) {
		subject.Targets = append(subject.Targets, d.Deployment.TargetIn(s.get(environmentKey(id)),
			defaults))
	}
	return subject
}

// reached denies changes of environments that bring a deployment under a policy which it breaks as
// it is: an environment that is labelled as production, or that comes and is selected. The
// deployment's own file is judged as any other.
func (w *work) reached() map[fleet.Key]fleet.Problem {
	if w.bench.judge == nil {
		return nil
	}
	denied, before := map[fleet.Key]fleet.Problem{}, w.st.over()
	var changed []fleet.Key
	for k := range w.taken {
		if k.Kind == fleet.KindManagedEnvironment {
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
			denied[k] = *p
		}
	}
	return denied
}

// wouldBring reports whether a change of an environment that is denied would bring a deployment
// under a policy that it breaks.
func (w *work) wouldBring(e *entry) bool {
	if w.bench.judge == nil || e.key.Kind != fleet.KindManagedEnvironment {
		return false
	}
	after, becomes := w.st.over(), (*entry)(nil)
	if !e.removed {
		becomes = &entry{key: e.key, path: e.path, blob: e.blob, effective: e.head, head: e.head}
	}
	after.put(e.key, becomes)
	return w.brings(e, w.st, after) != nil
}

// brings is why an environment may not change: a deployment that reaches it breaks a policy after
// the change and not before.
func (w *work) brings(env *entry, before, after *state) *fleet.Problem {
	policies := w.judges(env.key)
	for _, k := range reaching(before, after, environmentID(env.key)) {
		e := after.entries.get(k)
		if e == nil || e.effective == nil || after == w.st && !e.quarantined() {
			continue // judged as things stand, and found good
		}
		now := onlyErrors(w.breaches(after, e, e.effective, policies))
		if len(now) == 0 {
			continue
		}
		was := w.breaches(before, e, e.effective, policies)
		for _, p := range now {
			if !slices.ContainsFunc(was, func(b fleet.Problem) bool {
				return policyOf(b) == policyOf(p)
			}) {
				problem := env.problem("", codePolicyReached,
					"mend "+e.path+" first, or in the same commit", "with it, %s breaks policy %s",
					e.key, p.Message)
				return &problem
			}
		}
	}
	return nil
}

// policyOf is the name of the policy that a problem is of.
func policyOf(p fleet.Problem) string {
	name, _, _ := strings.Cut(p.Message, ":")
	return name
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

// heldByPolicy reports whether an entry is to be judged again when policies or what they look at
// beside it change.
func heldByPolicy(e *entry) bool {
	return e != nil && (hasCode(e.quarantine, codePolicy) ||
		hasCode(e.quarantine, codePolicyReached) || len(e.advice) > 0)
}

// unsettled are files of the commit that are held back by policies which the commit itself changed:
// the next stage judges them by those.
func (w *work) unsettled() map[fleet.Key]bool {
	if w.bench.judge == nil || w.bench.first || slices.Equal(w.bench.before, w.st.policies()) {
		return nil
	}
	keys := map[fleet.Key]bool{}
	for k := range w.bench.files {
		if heldByPolicy(w.st.entries.get(k)) {
			keys[k] = true
		}
	}
	return keys
}
