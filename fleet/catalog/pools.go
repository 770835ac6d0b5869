package catalog

import (
	"fmt"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// An instance of a pool is an Engine with an entry of its own and the path of its pool. The leader
// decides which instances there are (fleet.PoolMember); a change of the pool's file renders each of
// them again.

// ofPool keeps a file with the name of an instance from replacing it. The file gets a problem of
// its own (checkInstanceName), and its removal leaves the instance as it is.
func ofPool(i Input, effective *fleet.Declaration) Input {
	if effective == nil || effective.Engine == nil || effective.Engine.Pool == nil ||
		fleet.IsGenerated(i.Key, i.Path) || !i.Removed {
		return i
	}
	return Input{Key: i.Key, Path: effective.Path, Blob: effective.Blob, Declaration: effective}
}

// render sets the heads of a pool's instances to its declaration.
func (w *work) render(pool *fleet.Declaration) {
	if pool == nil {
		return
	}
	for _, k := range w.st.index.list(referrersOf(pool.Key)) {
		e := w.st.entries.get(k)
		m := memberOf(e)
		if m == nil || e.removed {
			continue
		}
		in := Input{Key: k, Path: pool.Path}
		d, err := pool.Instance(*m)
		if err == nil {
			in.Blob, in.Declaration = d.Blob, &d
		} else {
			at := &entry{key: k, path: pool.Path}
			in.Problems = []fleet.Problem{at.problem("spec.clusters", codePoolInUse,
				"restore it until the instances there are removed", "%v", err)}
		}
		w.set(in)
	}
}

// memberOf returns the membership of an instance at the head or, while that is bad, in effect.
func memberOf(e *entry) *fleet.PoolMember {
	for _, d := range []*fleet.Declaration{e.head, e.effective} {
		if d != nil && d.Engine != nil && d.Engine.Pool != nil {
			return d.Engine.Pool
		}
	}
	return nil
}

// wakeNamesake queues the quarantined pool of which an engine has the name of an instance.
func (w *work) wakeNamesake(k fleet.Key) {
	if pool, _, ok := fleet.InstanceOf(fleet.EngineName(k.Name)); ok {
		if key := fleet.PoolKey(pool); w.st.entries.get(key).quarantined() {
			w.enqueue(key)
		}
	}
}

// serving returns a problem if a pool that is removed has instances.
func (w *work) serving(e *entry, stays func(*entry) bool) *fleet.Problem {
	var names []string
	for k := range w.st.index.each(referrersOf(e.key)) {
		if other := w.st.entries.get(k); memberOf(other) != nil && stays(other) {
			names = append(names, k.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	p := e.problem("", codePoolInUse, "wait: the pool ends by itself; or restore the file",
		"the file is removed, and the pool drains and removes its instances first: %s",
		strings.Join(names, ", "))
	return &p
}

// checkInstanceName refuses the file of an Engine with a name that instances of a pool have.
func (ch *checker) checkInstanceName(e *entry) []fleet.Problem {
	pool, _, ok := fleet.InstanceOf(fleet.EngineName(e.key.Name))
	if !ok || e.head.Engine.Pool != nil {
		return nil
	}
	other := ch.st.get(fleet.PoolKey(pool))
	if other == nil {
		return nil
	}
	return []fleet.Problem{e.problem("metadata.name", codeDuplicate, "choose another name",
		"pool %q (%s) gives its instances such names", pool, other.Path)}
}

// checkPool checks the references of a pool, and the names that its instances will have.
func (ch *checker) checkPool(e *entry, p *fleet.EnginePoolSpec) []fleet.Problem {
	problems := append(ch.checkTenants(e, "spec.template.dedicatedTo", p.Template.DedicatedTo),
		ch.checkRing(e, "spec.ring", p.OrDefaults().Ring)...)
	for _, c := range []fleet.Component{fleet.ApplicationController, fleet.RepoServer} {
		for i, from := range p.Template.Metrics.Of(c) {
			if from.URL != "" {
				problems = append(problems, e.problem(
					fmt.Sprintf("spec.template.metrics.%s[%d].url", c, i), codeMetricsURL,
					"write service: {name: ..., port: ...} or pod: {name: ..., port: ...}",
					"the instances would all be measured at one address"))
			}
		}
	}
	for n := 1; n <= fleet.MaxPoolInstances; n++ {
		name := fleet.InstanceName(e.key.Name, n)
		if other := ch.st.entries.get(engineKey(name)); other != nil && declared(other) {
			problems = append(problems, e.problem("metadata.name", codeDuplicate,
				"give the pool another name",
				"its instance %d would have the name of the Engine in %s", n, other.path))
		}
	}
	for i, c := range p.Clusters {
		on := fleet.EngineSpec{Connection: c.Connection()}
		for n := 1; n <= p.Max; n++ {
			namespace := fleet.InstanceNamespace(e.key.Name, n)
			for k := range ch.st.index.each(servesIn(&on, namespace)) {
				if other := ch.st.entries.get(k); declared(other) {
					problems = append(problems, e.problem(fmt.Sprintf("spec.clusters[%d]", i),
						codeInstance, "give the pool another name",
						"its instance %d would have namespace %q, which Engine %q uses (%s)", n,
						namespace, k.Name, other.path))
				}
			}
		}
	}
	return problems
}

// declared reports whether an entry is an Engine with a file of its own.
func declared(e *entry) bool {
	return e != nil && !e.removed && memberOf(e) == nil && len(e.versions()) > 0
}

// poolField returns the field of a pool from which the field of its instance comes.
func poolField(field string) string {
	switch {
	case field == "" || field == "metadata.name":
		return field
	case strings.HasPrefix(field, "spec.argocd"):
		return "metadata.name"
	case strings.HasPrefix(field, "spec.connection"):
		return "spec.clusters"
	case field == "spec.ring", field == "spec.clusters":
		return field
	}
	return fleet.TemplateField + strings.TrimPrefix(field, "spec.")
}
