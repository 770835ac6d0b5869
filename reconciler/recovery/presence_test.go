package recovery

import (
	"fmt"
	"slices"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

func clusterOf(slices ...fleet.Slice) engine.Live {
	return engine.Live{Key: fleet.ObjectKey{Kind: fleet.ObjectCluster}, Ours: true, Tenant: "acme",
		Environment: "prod", Slices: slices}
}

// apps returns the Applications app-0 to app-19 that a slice holds.
func apps(of fleet.Slice, change func(*engine.Live)) (all []engine.Live) {
	for i := range 20 {
		o := engine.Live{Key: fleet.ObjectKey{Kind: fleet.ObjectApplication}, Ours: true,
			Tenant: "acme", Environment: "prod",
			Deployment: fleet.DeploymentName(fmt.Sprintf("app-%d", i))}
		if change != nil {
			change(&o)
		}
		if of.Holds(o.Deployment) {
			all = append(all, o)
		}
	}
	return all
}

func TestTheSlicesOfALostMirrorAreRestored(t *testing.T) {
	leaving := func(o *engine.Live) { o.Leaving = true }
	arriving := func(o *engine.Live) { o.Arriving = true }
	type found map[fleet.EngineName][]engine.Live
	with := func(c engine.Live, more ...[]engine.Live) []engine.Live {
		return append([]engine.Live{c}, slices.Concat(more...)...)
	}
	for _, c := range []struct {
		name  string
		found found
		want  map[fleet.Slice]fleet.EngineName
	}{
		{"whole", found{"eu-1": with(clusterOf(), apps("", nil))},
			map[fleet.Slice]fleet.EngineName{"": "eu-1"}},
		{"two halves", found{"eu-1": with(clusterOf("0"), apps("0", nil)),
			"eu-2": with(clusterOf("1"), apps("1", nil))},
			map[fleet.Slice]fleet.EngineName{"0": "eu-1", "1": "eu-2"}},
		{"three slices on two engines", found{"eu-1": with(clusterOf("00", "1"), apps("00", nil),
			apps("1", nil)), "eu-2": with(clusterOf("01"), apps("01", nil))},
			map[fleet.Slice]fleet.EngineName{"00": "eu-1", "01": "eu-2", "1": "eu-1"}},
		{"a split that has just begun", found{"eu-1": with(clusterOf(), apps("", nil)),
			"eu-2": with(clusterOf("1"))},
			map[fleet.Slice]fleet.EngineName{"0": "eu-1", "1": "eu-1"}},
		{"a split that compares", found{
			"eu-1": with(clusterOf("0", "1"), apps("0", nil), apps("1", leaving)),
			"eu-2": with(clusterOf("1"), apps("1", arriving))},
			map[fleet.Slice]fleet.EngineName{"0": "eu-1", "1": "eu-1"}},
		{"a split without an annotation on the new engine", found{
			"eu-1": with(clusterOf("0"), apps("0", nil)),
			"eu-2": with(clusterOf(), apps("1", nil))},
			map[fleet.Slice]fleet.EngineName{"0": "eu-1", "1": "eu-2"}},
		{"a slice that no engine has", found{"eu-1": with(clusterOf("0"), apps("0", nil))},
			map[fleet.Slice]fleet.EngineName{"0": "eu-1", "1": ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := New(Config{})
			r.begin(map[fleet.EngineName]fleet.EngineSpec{"eu-1": {}, "eu-2": {}})
			for name, objects := range c.found {
				r.take(name, objects)
			}
			var s mirror.Snapshot
			if r.Complete(&s); len(c.want) > 1 && len(s.Placements) > 0 {
				t.Errorf("placed before every engine was read: %+v", s.Placements)
			}
			r.unread = nil
			s = mirror.Snapshot{}
			r.Complete(&s)
			got, all := map[fleet.Slice]fleet.EngineName{}, []fleet.Slice{}
			for _, pl := range s.Placements {
				got[pl.Slice] = pl.Engine
				all = append(all, pl.Slice)
			}
			if !fleet.Partition(all) || fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("placed %v, want %v", got, c.want)
			}
		})
	}
}
