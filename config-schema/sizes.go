package configschema

import (
	"fmt"
	"reflect"

	"argosy.dev/argosy/fleet"
)

var (
	formatCPU = &format{code: codeInvalidValue,
		what:    "cores as 2, or thousandths of one as 500m: 10m to 256",
		pattern: `^([1-9][0-9]{0,2}|[1-9][0-9]{1,5}m)$`, check: fleet.CheckCPU}
	formatMemory = &format{code: codeInvalidValue,
		what:    "mebibytes as 512Mi, or gibibytes as 4Gi: 64Mi to 1023Gi",
		pattern: `^[1-9][0-9]{0,3}(Mi|Gi)$`, check: fleet.CheckMemory}
)

// instanceSize are the fields of a fleet.InstanceSize.
func instanceSize() []field {
	return []field{
		{
			name: "shards",
			doc: "Application-controllers. Each serves a part of the clusters. When the number " +
				"changes, all of them end before the first one begins.",
			example: "2", fallback: "1", value: integer(1, fleet.MaxShards)},
		{name: "applicationController", doc: "What each application-controller has.",
			value: resources("1500m", "4Gi")},
		{name: "repoServer", doc: "What the repo-server has.", value: resources("500m", "2Gi")},
	}
}

func resources(cpu, memory string) value {
	return object(
		field{name: "cpu", doc: "Cores that are requested. There is no limit.", example: cpu,
			value: textOf(formatCPU)},
		field{name: "memory", doc: "Memory that is requested, which is the limit too.",
			example: memory, value: textOf(formatMemory)})
}

// poolSizes are the sizes of a pool's template.
func poolSizes() field {
	return field{
		name: "sizes",
		doc: "The sizes that an instance may have, from the smallest to the largest " +
			"(`docs/pools.md`). It begins with the first one, and grows before the pool makes " +
			"another instance. Left out: Argosy sets neither resources nor shards.",
		example: "[{name: small, capacity: {applications: 300, environments: 20}}]",
		value: listOf(object(append([]field{
			{name: "name", doc: "The name, for people.", example: "small", required: true,
				value: textOf(formatLabelWord)},
			{name: "capacity", doc: "The load that the size is for: above `targetLoad` percent of " +
				"it, the instance grows. Left out, on the last size: that of the template.",
				value: capacity(1)},
		}, instanceSize()...)...)).by("name").atMost(8)}
}

// checkSizes refuses sizes that are not in the order of their size.
func checkSizes(d *decoder, p *fleet.EnginePoolSpec, list node) {
	sizes := p.Template.Sizes
	if list == nil || len(list.Content) != len(sizes) { // it has problems of its own
		return
	}
	for i := range sizes {
		at := func(field, message, fix string) {
			steps := d.steps
			d.steps = append(steps, step{"template", -1}, step{"sizes", -1}, step{"", i},
				step{field, -1})
			n := list.Content[i]
			if inner := child(n, field); inner != nil {
				n = inner
			}
			d.problem(n, codeInvalidValue, message, fix)
			d.steps = steps
		}
		last := i == len(sizes)-1
		c := p.Template.CapacityOf(&sizes[i])
		switch {
		case !last && sizes[i].Capacity == (fleet.Capacity{}):
			at("capacity", fmt.Sprintf("size %q has no capacity: without one, it is never "+
				"too small", sizes[i].Name), "write capacity: {applications: ..., environments: ...}")
		case c.Applications > p.Template.Capacity.Applications ||
			c.Environments > p.Template.Capacity.Environments:
			at("capacity", fmt.Sprintf("size %q is for more than the capacity of the template, "+
				"which placement goes by", sizes[i].Name), "raise template.capacity, or write less")
		}
		if i == 0 {
			continue
		}
		if field := notLarger(p.Template.CapacityOf(&sizes[i-1]), c, sizes[i-1].Instance(),
			sizes[i].Instance()); field != "" {
			at(field, fmt.Sprintf("size %q has less than %q before it", sizes[i].Name,
				sizes[i-1].Name), "write the sizes from the smallest to the largest")
		}
	}
}

// notLarger returns the field in which a size has less than the one before it.
func notLarger(was, now fleet.Capacity, a, b fleet.InstanceSize) string {
	less := func(a, b fleet.Resources) bool {
		return b.CPU.Cores() < a.CPU.Cores() || b.Memory.Bytes() < a.Memory.Bytes()
	}
	switch {
	case now.Applications < was.Applications || now.Environments < was.Environments:
		return "capacity"
	case b.ShardCount() < a.ShardCount() && !reflect.DeepEqual(a, b):
		return "shards"
	case b.ShardCount() == a.ShardCount() &&
		less(a.ApplicationController, b.ApplicationController):
		return "applicationController"
	case less(a.RepoServer, b.RepoServer):
		return "repoServer"
	}
	return ""
}
