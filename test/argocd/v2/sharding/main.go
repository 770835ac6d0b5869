// Command sharding places clusters on shards with Argo CD's own code, so that `make
// bench-placement` can compare Argosy's placement with it. It reads requests as JSON from standard
// input and answers each on standard output.
//
// Argo CD's function for bounded loads computes the shards of all clusters each time it is asked
// for the shard of one, and returns that one. All of them are therefore taken from the ring below
// it, in the way of its createConsistentHashingWithBoundLoads, and a sample of them is compared
// with the function's own result: an answer in which the two differ is an error.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/argoproj/argo-cd/v2/controller/sharding"
	"github.com/argoproj/argo-cd/v2/controller/sharding/consistent"
	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"
)

// request is clusters with their Applications, and how many shards there are.
type request struct {
	Clusters     []string `json:"clusters"`     // UIDs
	Applications []int    `json:"applications"` // of each cluster; none: one each
	Shards       int      `json:"shards"`
	// how many clusters to hold against Argo CD's function; at least one
	Sample int `json:"sample"`
}

// answer is the shard of each cluster.
type answer struct {
	Bounded    []int   `json:"bounded"`    // by consistent hashing with bounded loads
	Legacy     []int   `json:"legacy"`     // by hash modulo the number of shards, Argo CD's default
	RoundRobin []int   `json:"roundRobin"` // by the cluster's rank modulo the number of shards
	Seconds    float64 `json:"seconds"`    // of one call of the function for bounded loads
	Version    string  `json:"version"`    // of Argo CD
}

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sharding:", err)
		os.Exit(1)
	}
}

func serve(in io.Reader, out io.Writer) error {
	requests, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var r request
		if err := requests.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		a, err := place(r)
		if err != nil {
			return err
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

func place(r request) (answer, error) {
	if len(r.Applications) == 0 {
		r.Applications = slices.Repeat([]int{1}, len(r.Clusters))
	}
	if len(r.Applications) != len(r.Clusters) {
		return answer{}, fmt.Errorf("%d clusters, and Applications of %d", len(r.Clusters),
			len(r.Applications))
	}
	clusters, apps := fleet(r.Clusters, r.Applications)
	bounded := sharding.ConsistentHashingWithBoundedLoadsDistributionFunction(
		func() []*v1alpha1.Cluster {
			return slices.Clone(clusters)
		}, func() []*v1alpha1.Application { return apps }, r.Shards)
	legacy := sharding.LegacyDistributionFunction(r.Shards)
	shards, err := ring(r.Clusters, r.Applications, r.Shards)
	if err != nil {
		return answer{}, err
	}
	a := answer{Version: version(), Bounded: make([]int, len(clusters)),
		Legacy: make([]int, len(clusters)), RoundRobin: roundRobin(r.Clusters, r.Shards)}
	robin := sharding.RoundRobinDistributionFunction(func() []*v1alpha1.Cluster {
		return slices.Clone(clusters)
	}, r.Shards)
	for i, c := range clusters {
		a.Bounded[i], a.Legacy[i] = shards[c.ID], legacy(c)
	}
	step := max(1, len(clusters)/max(r.Sample, 1))
	for i := 0; i < len(clusters); i += step {
		start := time.Now()
		got := bounded(clusters[i])
		a.Seconds = time.Since(start).Seconds()
		if got != a.Bounded[i] {
			return answer{},
				fmt.Errorf(
					"cluster %s of %d on %d shards: Argo CD's function returns %d, its ring %d",
					clusters[i].ID, len(clusters), r.Shards, got, a.Bounded[i])
		}
		if got := robin(clusters[i]); got != a.RoundRobin[i] {
			return answer{}, fmt.Errorf(
				"cluster %s of %d on %d shards: Argo CD's round robin returns %d, its rank %d",
				clusters[i].ID, len(clusters), r.Shards, got, a.RoundRobin[i])
		}
	}
	return a, nil
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == "github.com/argoproj/argo-cd/v2" {
				return d.Version
			}
		}
	}
	return "of unknown version"
}

func fleet(ids []string, applications []int) (clusters []*v1alpha1.Cluster,
	apps []*v1alpha1.Application) {
	for i, id := range ids {
		c := &v1alpha1.Cluster{ID: id, Server: "https://" + id + ".example.com"}
		clusters = append(clusters, c)
		app := &v1alpha1.Application{Spec: v1alpha1.ApplicationSpec{
			Destination: v1alpha1.ApplicationDestination{Server: c.Server}}}
		apps = append(apps, slices.Repeat([]*v1alpha1.Application{app}, applications[i])...)
	}
	return clusters, apps
}

// roundRobin gives each cluster its rank by UID, modulo the number of shards.
func roundRobin(ids []string, shards int) []int {
	rank := map[string]int{}
	for i, id := range slices.Sorted(slices.Values(ids)) {
		rank[id] = i
	}
	out := make([]int, len(ids))
	for i, id := range ids {
		out[i] = rank[id] % shards
	}
	return out
}

// ring gives each cluster, in the order of the UIDs, the shard that Argo CD's ring has for it under
// the loads that the earlier ones made.
func ring(ids []string, applications []int, shards int) (map[string]int, error) {
	of := map[string]int64{}
	for i, id := range ids {
		of[id] = int64(applications[i])
	}
	r := consistent.New()
	for i := range shards {
		r.Add(strconv.Itoa(i))
	}
	loads, out := map[string]int64{}, make(map[string]int, len(ids))
	for _, id := range slices.Sorted(slices.Values(ids)) {
		name, err := r.GetLeast(id)
		if err != nil {
			return nil, err
		}
		if out[id], err = strconv.Atoi(name); err != nil {
			return nil, err
		}
		loads[name] += of[id]
		r.UpdateLoad(name, loads[name])
	}
	return out, nil
}
