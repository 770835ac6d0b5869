package fleet

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// EnginePoolSpec is a pool of engines of one template, which load makes and calm removes
// (fleet/pools/<name>.yaml, ADR 0073).
type EnginePoolSpec struct {
	Template PoolTemplate  `json:"template"`
	Clusters []PoolCluster `json:"clusters"` // where instances may be made; at least one
	Min      int           `json:"min"`      // instances; 0..MaxPoolInstances
	Max      int           `json:"max"`      // instances; 1..MaxPoolInstances
	// percent of the capacity of all instances above which the pool grows; 1..100; default 80
	TargetLoad int        `json:"targetLoad,omitempty"`
	Ring       string     `json:"ring,omitempty"` // of the Fleet; default "stable"
	Grow       PoolGrow   `json:"grow,omitzero"`
	Shrink     PoolShrink `json:"shrink,omitzero"`
	// between the end of a step and the next one; 1s..24h; default 10m
	Cooldown Duration `json:"cooldown,omitempty"`
}

// PoolTemplate is what the instances of a pool have in common, as the fields of an EngineSpec.
type PoolTemplate struct {
	Region   string            `json:"region"`
	Labels   map[string]string `json:"labels,omitempty"`
	Capacity Capacity          `json:"capacity"` // of one instance, at its largest size
	// what an instance has, from the smallest to the largest; empty: Argosy sets no size
	Sizes       []PoolSize     `json:"sizes,omitempty"`
	DedicatedTo []TenantName   `json:"dedicatedTo,omitempty"`
	Taints      []Taint        `json:"taints,omitempty"`
	Metrics     *EngineMetrics `json:"metrics,omitempty"`
	Remedies    *Remedies      `json:"remedies,omitempty"`
}

// PoolCluster is a cluster where a pool makes instances.
type PoolCluster struct {
	Name string `json:"name"` // unique in the pool
	// exactly one, as in a Connection
	InCluster     bool       `json:"inCluster,omitempty"`
	KubeconfigRef *SecretRef `json:"kubeconfigRef,omitempty"`
	Max           int        `json:"max,omitempty"` // instances there; default: those of the pool
}

// Connection returns how the control plane reaches the instances there.
func (c PoolCluster) Connection() Connection {
	return Connection{InCluster: c.InCluster, KubeconfigRef: c.KubeconfigRef}
}

// PoolGrow is when a pool makes an instance.
type PoolGrow struct {
	// how long the load is above the target, or an environment waits; 1s..24h; default 5m
	After Duration `json:"after,omitempty"`
}

// PoolShrink is when a pool drains an instance.
type PoolShrink struct {
	// percent of the capacity of the instances that would be left; below TargetLoad; default: 20
	// below it
	Below int `json:"below,omitempty"`
	// how long the load is below; 1s..168h; default 30m
	After Duration `json:"after,omitempty"`
}

// Bounds and defaults of a pool.
const (
	MaxPoolInstances = 50
	// MaxPoolName lets the namespace of an instance be a name.
	MaxPoolName = 50

	poolTarget      = 80
	poolSlack       = 20
	poolGrowAfter   = Duration(5 * time.Minute)
	poolShrinkAfter = Duration(30 * time.Minute)
	poolCooldown    = Duration(10 * time.Minute)
)

// OrDefaults returns the pool with the defaults of omitted fields.
func (p EnginePoolSpec) OrDefaults() EnginePoolSpec {
	p.TargetLoad = cmp.Or(p.TargetLoad, poolTarget)
	p.Ring = cmp.Or(p.Ring, DefaultRing)
	p.Grow.After = cmp.Or(p.Grow.After, poolGrowAfter)
	p.Shrink.Below = cmp.Or(p.Shrink.Below, max(1, p.TargetLoad-poolSlack))
	p.Shrink.After = cmp.Or(p.Shrink.After, poolShrinkAfter)
	p.Cooldown = cmp.Or(p.Cooldown, poolCooldown)
	return p
}

// Cluster returns the cluster of that name.
func (p *EnginePoolSpec) Cluster(name string) (PoolCluster, bool) {
	i := slices.IndexFunc(p.Clusters, func(c PoolCluster) bool { return c.Name == name })
	if i < 0 {
		return PoolCluster{}, false
	}
	return p.Clusters[i], true
}

// Most returns how many instances a cluster may have.
func (p *EnginePoolSpec) Most(c PoolCluster) int { return cmp.Or(c.Max, p.Max) }

// PoolMember makes an engine an instance of a pool. No file declares one: the control plane
// decides about it.
type PoolMember struct {
	Pool    string          `json:"pool"`
	Number  int             `json:"number"` // 1..MaxPoolInstances
	Cluster string          `json:"cluster"`
	State   PoolMemberState `json:"state"`
	Since   time.Time       `json:"since"` // of State
	Reason  string          `json:"reason,omitempty"`
	Sizing
}

// Engine returns the name of the instance.
func (m PoolMember) Engine() EngineName { return InstanceName(m.Pool, m.Number) }

// Sizing is the size of an instance of a pool (ADR 0080).
type Sizing struct {
	Size      string    `json:"size,omitempty"` // the name of a PoolSize; "" without sizes
	SizedAt   time.Time `json:"sizedAt,omitzero"`
	SizedWhy  string    `json:"sizedWhy,omitempty"`
	SizedFrom string    `json:"sizedFrom,omitempty"` // the size before, to which it may go back
}

// PoolMemberState is how far the life of an instance is.
type PoolMemberState string

// States of an instance. An instance that is not Serving gets no environment.
const (
	MemberMaking   PoolMemberState = "Making"   // its Argo CD is being installed
	MemberServing  PoolMemberState = "Serving"  // placement may use it
	MemberDraining PoolMemberState = "Draining" // its environments move to other engines
	MemberRemoving PoolMemberState = "Removing" // it is empty; its Argo CD is being removed
)

// PoolKey returns the key of a pool.
func PoolKey(name string) Key { return Key{Kind: KindEnginePool, Name: name} }

const poolFolder = "fleet/pools/"

// PoolOf returns the key of the pool that an engine is an instance of, given its path.
func PoolOf(k Key, path string) (pool Key, is bool) {
	file, is := strings.CutPrefix(path, poolFolder)
	if !is || k.Kind != KindEngine {
		return Key{}, false
	}
	return PoolKey(strings.TrimSuffix(file, ".yaml")), true
}

// InstanceName returns the name of a pool's instance, which is also its installationID.
func InstanceName(pool string, number int) EngineName {
	return EngineName(pool + "-" + strconv.Itoa(number))
}

// InstanceNamespace returns the namespace of the Argo CD of a pool's instance.
func InstanceNamespace(pool string, number int) string {
	return "argocd-" + string(InstanceName(pool, number))
}

// InstanceOf returns the pool that an engine of this name would be an instance of.
func InstanceOf(name EngineName) (pool string, number int, ok bool) {
	pool, text, found := cutLast(string(name), "-")
	number, err := strconv.Atoi(text)
	ok = found && err == nil && number >= 1 && number <= MaxPoolInstances &&
		InstanceName(pool, number) == name
	return pool, number, ok
}

// IsGenerated reports whether a declaration is part of another one's file: a deployment of a set,
// or an instance of a pool.
func IsGenerated(k Key, path string) bool {
	_, ofSet := SetOf(k, path)
	_, ofPool := PoolOf(k, path)
	return ofSet || ofPool
}

// Instance returns the declaration of a pool's instance.
func (d *Declaration) Instance(m PoolMember) (Declaration, error) {
	pool := d.Pool.OrDefaults()
	on, ok := pool.Cluster(m.Cluster)
	if !ok {
		return Declaration{}, fmt.Errorf("pool %s has no cluster %q", d.Key.Name, m.Cluster)
	}
	name, t := InstanceName(d.Key.Name, m.Number), pool.Template
	size, _ := t.SizeOf(m.Size)
	spec := &EngineSpec{
		ArgoCD: ArgoCDInstance{Namespace: InstanceNamespace(d.Key.Name, m.Number),
			InstallationID: string(name), Managed: true},
		Connection: on.Connection(), Region: t.Region, Capacity: t.Capacity,
		DedicatedTo: t.DedicatedTo, Taints: t.Taints, Ring: pool.Ring, Metrics: t.Metrics,
		Remedies: t.Remedies, Pool: &m,
	}
	if size != nil {
		of := size.Instance()
		spec.ArgoCD.Size, spec.Metrics = &of, t.Metrics.PerShard(of.ShardCount())
	}
	switch m.State {
	case MemberServing:
		spec.State = EngineActive
	case MemberDraining, MemberRemoving:
		spec.State = EngineDraining
	default:
		spec.State = EngineCordoned
	}
	out := Declaration{Key: Key{Kind: KindEngine, Name: string(name)}, Path: d.Path,
		Labels: t.Labels, Engine: spec}
	text, err := json.Marshal(out)
	if err != nil {
		return Declaration{}, fmt.Errorf("hash an instance: %w", err)
	}
	sum := sha256.Sum256(text)
	out.Blob = hex.EncodeToString(sum[:20])
	return out, nil
}
