package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MaxShards bounds the application-controllers of an instance: each has an endpoint of metrics.
const MaxShards = MaxMetricsEndpoints

// InstanceSize is what the components of an Argo CD that Argosy installs have (ADR 0080).
type InstanceSize struct {
	// application-controllers, of which each serves a part of the clusters; 1..MaxShards; default 1
	Shards                int       `json:"shards,omitempty"`
	ApplicationController Resources `json:"applicationController,omitzero"` // of one shard
	RepoServer            Resources `json:"repoServer,omitzero"`
}

// Resources are what one process may use. An empty field stays as others set it.
type Resources struct {
	CPU    CPU    `json:"cpu,omitempty"`    // a request: the process may use more
	Memory Memory `json:"memory,omitempty"` // a request and a limit
}

// CPU is a number of cores as Kubernetes writes it: "2", or "500m".
type CPU string

// Cores returns the number of cores; 0 for an empty text.
func (c CPU) Cores() float64 {
	text, milli := strings.CutSuffix(string(c), "m")
	n, _ := strconv.Atoi(text)
	if milli {
		return float64(n) / 1000
	}
	return float64(n)
}

// CheckCPU returns why a text is no CPU: 10m to 256000m, or 1 to 256.
func CheckCPU(s string) error {
	text := strings.TrimSuffix(s, "m")
	n, err := strconv.Atoi(text)
	cores := CPU(s).Cores()
	if err != nil || strconv.Itoa(n) != text || cores < 0.01 || cores > 256 {
		return errors.New("it is not a number of cores from 10m to 256")
	}
	return nil
}

// Memory is an amount of memory as Kubernetes writes it: "512Mi", or "4Gi".
type Memory string

// Bytes returns the number of bytes; 0 for an empty text.
func (m Memory) Bytes() float64 {
	if text, ok := strings.CutSuffix(string(m), "Gi"); ok {
		n, _ := strconv.Atoi(text)
		return float64(n) * (1 << 30)
	}
	n, _ := strconv.Atoi(strings.TrimSuffix(string(m), "Mi"))
	return float64(n) * (1 << 20)
}

// CheckMemory returns why a text is no Memory: 64Mi to 1023Gi.
func CheckMemory(s string) error {
	text := strings.TrimSuffix(strings.TrimSuffix(s, "Mi"), "Gi")
	n, err := strconv.Atoi(text)
	if err != nil || len(text) != len(s)-2 || strconv.Itoa(n) != text ||
		Memory(s).Bytes() < 64<<20 || n > 1023 {
		return errors.New("it is not an amount of memory from 64Mi to 1023Gi")
	}
	return nil
}

// ShardCount returns the number of application-controllers; 1 for nil.
func (s *InstanceSize) ShardCount() int {
	if s == nil {
		return 1
	}
	return cmp.Or(s.Shards, 1)
}

// String describes the size. Two sizes with one text are the same.
func (s InstanceSize) String() string {
	text := "1 shard"
	if n := s.ShardCount(); n > 1 {
		text = fmt.Sprintf("%d shards", n)
	}
	return text + s.ApplicationController.of("application-controller") +
		s.RepoServer.of("repo-server")
}

// of describes the resources of a component; "" without any.
func (r Resources) of(component string) string {
	var all []string
	if r.CPU != "" {
		all = append(all, string(r.CPU)+" CPU")
	}
	if r.Memory != "" {
		all = append(all, string(r.Memory))
	}
	if len(all) == 0 {
		return ""
	}
	return "; " + component + " " + strings.Join(all, ", ")
}

// PoolSize is one of the sizes of a pool's instances.
type PoolSize struct {
	Name string `json:"name"`
	// what the size is for; zero: the capacity of the template
	Capacity Capacity `json:"capacity,omitzero"`
	// as in an InstanceSize
	Shards                int       `json:"shards,omitempty"`
	ApplicationController Resources `json:"applicationController,omitzero"`
	RepoServer            Resources `json:"repoServer,omitzero"`
}

// Instance returns what an instance of the size has.
func (s *PoolSize) Instance() InstanceSize {
	return InstanceSize{s.Shards, s.ApplicationController, s.RepoServer}
}

// SizeOf returns the size of that name, and its position; nil and -1 without a name or sizes. A
// name that the template does not have any more is the largest size: it shrinks again in its own
// time.
func (t *PoolTemplate) SizeOf(name string) (*PoolSize, int) {
	if name == "" {
		return nil, -1
	}
	for i := range t.Sizes {
		if t.Sizes[i].Name == name {
			return &t.Sizes[i], i
		}
	}
	last := len(t.Sizes) - 1
	if last < 0 {
		return nil, -1
	}
	return &t.Sizes[last], last
}

// SizeNamed returns the name of the size that is described so; "" without one.
func (t *PoolTemplate) SizeNamed(described string) string {
	for i := range t.Sizes {
		if t.Sizes[i].Instance().String() == described {
			return t.Sizes[i].Name
		}
	}
	return ""
}

// Smallest returns the name of the size of a new instance; "" without sizes.
func (t *PoolTemplate) Smallest() string {
	if len(t.Sizes) == 0 {
		return ""
	}
	return t.Sizes[0].Name
}

// CapacityOf returns what a size is for.
func (t *PoolTemplate) CapacityOf(s *PoolSize) Capacity {
	if s == nil || s.Capacity == (Capacity{}) {
		return t.Capacity
	}
	return s.Capacity
}

// PerShard returns the endpoints of an application-controller with so many Pods: one of each Pod,
// instead of a Service that any of them answers.
func (m *EngineMetrics) PerShard(shards int) *EngineMetrics {
	if m == nil || len(m.ApplicationController) != 1 || shards < 2 {
		return m
	}
	from := m.ApplicationController[0]
	at := cmp.Or(from.Pod, from.Service)
	if at == nil {
		return m
	}
	out := &EngineMetrics{RepoServer: m.RepoServer}
	for i := range shards {
		out.ApplicationController = append(out.ApplicationController, MetricsEndpoint{
			Pod: &MetricsPort{Name: ControllerPod(i), Port: at.Port}})
	}
	return out
}

// ControllerPod returns the name of the Pod of an application-controller's shard.
func ControllerPod(shard int) string {
	return "argocd-application-controller-" + strconv.Itoa(shard)
}
