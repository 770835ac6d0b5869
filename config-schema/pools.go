package configschema

import (
	"fmt"
	"reflect"
	"time"

	"argosy.dev/argosy/fleet"
)

var kindPool = describe(kind{
	name: fleet.KindEnginePool, place: "fleet/pools/<name>.yaml",
	doc: "Engines of one template, which Argosy makes when load comes and removes when it goes " +
		"(`docs/pools.md`). Their names are `<pool>-1`, `<pool>-2` and so on, their namespaces " +
		"`argocd-<pool>-1` and so on.",
}, object(
	field{
		name: "template", doc: "What the instances have in common, as in an Engine.",
		required: true, value: object(
			field{name: "region", doc: "Environments of this region are placed there.",
				example: "eu", required: true, value: textOf(formatLabelWord)},
			field{name: "labels", doc: "Labels of the instances, which tenants' placement selects.",
				example: "{tier: prod}", value: value{shape: shapeLabels, most: maxLabels}},
			field{name: "capacity", doc: "How much placement gives to one instance. With `sizes`, " +
				"at the largest one.", required: true, value: capacity(1)},
			poolSizes(),
			field{name: "dedicatedTo",
				doc:     "The tenants that alone may use the instances. Left out: shared.",
				example: "[acme]", value: listOf(textOf(formatName)).mayBeEmpty()},
			field{name: "taints",
				doc: "An environment is placed there only if its tenant tolerates each of " +
					"them.", example: "[{key: gpu}]", value: taints().by("key")},
			engineMetrics(), engineRemedies(),
		)},
	field{
		name: "clusters",
		doc: "Where instances may be made. A new one is made on the cluster with the fewest; of " +
			"several, on the first. Argosy needs the rights of `docs/rings.md` there.",
		example: "[{name: home, inCluster: true}]", required: true, value: listOf(object(
			field{name: "name", doc: "The name, for people. It cannot be changed while an " +
				"instance is there.", example: "home", required: true, value: textOf(formatName)},
			field{name: "inCluster", doc: "The control plane's own cluster. Only `true` is written.",
				example: "true", value: boolean()},
			field{name: "kubeconfigRef", doc: "A secret that holds a kubeconfig.",
				example: "{name: engines-eu}",
				value:   secretRef("The secret's name.", "engines-eu")},
			field{name: "max", doc: "Instances there. Left out: `max` of the pool.", example: "3",
				value: integer(1, fleet.MaxPoolInstances)},
		).exactlyOneOf("inCluster", "kubeconfigRef").
			when("inCluster on the control plane's own cluster, kubeconfigRef on another one").
			checked(poolClusterIsTrue)).by("name").atMost(20)},
	field{name: "min", doc: "Instances that there are without any load.", example: "1",
		required: true, value: integer(0, fleet.MaxPoolInstances)},
	field{name: "max", doc: "Instances that there are at most.", example: "5",
		required: true, value: integer(1, fleet.MaxPoolInstances)},
	field{
		name: "targetLoad",
		doc: "The pool makes an instance when its load is above this: percent of the capacity of " +
			"all its instances.", example: "80", fallback: "80", value: integer(1, 100)},
	field{name: "ring", doc: "The ring of the Fleet whose version of Argo CD the instances have.",
		example: "stable", fallback: "stable", value: textOf(formatLabelWord)},
	field{
		name: "grow", doc: "When an instance is made.", value: object(
			field{
				name: "after",
				doc: "How long the load is above `targetLoad`, or an environment waits for an " +
					"engine: a duration from 1s to 24h.", example: "5m", fallback: "5m",
				value: value{shape: shapeDuration, least: int64(time.Second),
					most: int64(24 * time.Hour)}})},
	field{
		name: "shrink", doc: "When an instance is drained and removed.", value: object(
			field{
				name: "below",
				doc: "Percent of the capacity of the instances that would be left. Less than " +
					"`targetLoad`. Left out: 20 less.", example: "50", value: integer(1, 99)},
			field{
				name: "after", doc: "How long the load is below: a duration from 1s to 168h.",
				example: "30m", fallback: "30m",
				value: value{shape: shapeDuration, least: int64(time.Second),
					most: int64(168 * time.Hour)}})},
	field{
		name: "cooldown",
		doc: "How long nothing is made or drained after an instance was made or removed: a " +
			"duration from 1s to 24h.", example: "10m", fallback: "10m",
		value: value{shape: shapeDuration, least: int64(time.Second),
			most: int64(24 * time.Hour)}},
).checked(poolFits), func(d *fleet.Declaration, s *fleet.EnginePoolSpec) { d.Pool = s })

func poolClusterIsTrue(d *decoder, into reflect.Value, at node) {
	c := into.Addr().Interface().(*fleet.PoolCluster)
	if n := child(at, "inCluster"); n != nil && !c.InCluster {
		d.at("inCluster", func() {
			d.problem(n, codeInvalidValue, "inCluster: false selects no cluster",
				"write inCluster: true, or kubeconfigRef: {name: ...}")
		})
	}
}

// poolFits refuses numbers that contradict each other.
func poolFits(d *decoder, into reflect.Value, at node) {
	p := into.Addr().Interface().(*fleet.EnginePoolSpec)
	field := func(names []string, message, fix string) {
		n := at
		var inside func(i int)
		inside = func(i int) {
			if i == len(names) {
				d.problem(n, codeInvalidValue, message, fix)
				return
			}
			if next := child(n, names[i]); next != nil {
				n = next
			}
			d.at(names[i], func() { inside(i + 1) })
		}
		inside(0)
	}
	if p.Max > 0 && p.Min > p.Max {
		field([]string{"min"}, fmt.Sprintf("min %d is above max %d", p.Min, p.Max),
			"write a min of at most max")
	}
	room := 0
	for i := range p.Clusters {
		room += p.Most(p.Clusters[i])
	}
	if len(p.Clusters) > 0 && p.Min <= p.Max && room < p.Min {
		field([]string{"min"}, fmt.Sprintf("min is %d, and the clusters may have %d instances",
			p.Min, room), "raise max of a cluster, or add a cluster")
	}
	checkSizes(d, p, child(child(at, "template"), "sizes"))
	if whole := p.OrDefaults(); p.Shrink.Below >= whole.TargetLoad {
		field([]string{"shrink", "below"}, fmt.Sprintf("shrink.below %d is not below the "+
			"targetLoad of %d: the pool would make and remove instances in turn", p.Shrink.Below,
			whole.TargetLoad), "write less than targetLoad")
	}
}
