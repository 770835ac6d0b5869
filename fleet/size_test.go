package fleet_test

import (
	"testing"

	"argosy.dev/argosy/fleet"
)

func TestQuantitiesAreThoseOfKubernetes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{"2": 2, "500m": 0.5, "1500m": 1.5, "256": 256,
		"10m": 0.01} {
		if err := fleet.CheckCPU(text); err != nil || fleet.CPU(text).Cores() != want {
			t.Errorf("%s: %v, %v", text, fleet.CPU(text).Cores(), err)
		}
	}
	for _, text := range []string{"", "m", "0", "9m", "257", "1.5", "01", "-1", "1k", "1 ",
		"257000m"} {
		if fleet.CheckCPU(text) == nil {
			t.Errorf("CPU %q is allowed", text)
		}
	}
	for text, want := range map[string]float64{"64Mi": 64 << 20, "1023Mi": 1023 << 20,
		"4Gi": 4 << 30} {
		if err := fleet.CheckMemory(text); err != nil || fleet.Memory(text).Bytes() != want {
			t.Errorf("%s: %v, %v", text, fleet.Memory(text).Bytes(), err)
		}
	}
	for _, text := range []string{"", "Mi", "63Mi", "0Gi", "1024Mi", "1024Gi", "4G", "4", "1.5Gi",
		"04Gi", "1GiGi", "64MiGi"} {
		if fleet.CheckMemory(text) == nil {
			t.Errorf("memory %q is allowed", text)
		}
	}
}

// Each Pod of several shards is measured: any of them answers a Service.
func TestEachShardIsMeasured(t *testing.T) {
	t.Parallel()
	service := &fleet.EngineMetrics{ApplicationController: []fleet.MetricsEndpoint{{
		Service: &fleet.MetricsPort{Name: "argocd-metrics", Port: 8082}}}}
	if service.PerShard(1) != service || (*fleet.EngineMetrics)(nil).PerShard(2) != nil {
		t.Error("one shard is measured in another way")
	}
	two := service.PerShard(2)
	if len(two.ApplicationController) != 2 ||
		two.ApplicationController[1].String() != "pod argocd-application-controller-1:8082" {
		t.Errorf("%v", two.ApplicationController)
	}
}

func TestAnInstanceOfAPoolHasItsSize(t *testing.T) {
	t.Parallel()
	pool := fleet.Declaration{Key: fleet.PoolKey("eu"), Path: "fleet/pools/eu.yaml",
		Pool: &fleet.EnginePoolSpec{Clusters: []fleet.PoolCluster{{Name: "a", InCluster: true}},
			Template: fleet.PoolTemplate{Region: "eu", Sizes: []fleet.PoolSize{{Name: "small"},
				{Name: "large", Shards: 3}}}}}
	for name, shards := range map[string]int{"": 0, "small": 1, "large": 3, "renamed": 3} {
		d, err := pool.Instance(fleet.PoolMember{Pool: "eu", Number: 1, Cluster: "a",
			Sizing: fleet.Sizing{Size: name}})
		if err != nil {
			t.Fatal(err)
		}
		size := d.Engine.ArgoCD.Size
		if shards == 0 && size != nil || shards > 0 && (size == nil ||
			size.ShardCount() != shards) {
			t.Errorf("size %q: %v", name, size)
		}
	}
}
