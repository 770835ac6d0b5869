package server

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"argosy.dev/argosy/fleet/agent/hub"
	"argosy.dev/argosy/reconciler/fleetstats"
	"argosy.dev/argosy/reconciler/secrets"
	"argosy.dev/argosy/reconciler/worker"
)

var update = flag.Bool("update", false, "rewrite docs/metrics.md")

const referencePath = "../../../docs/metrics.md"

// registrations keeps what is registered: a registry does not list it.
type registrations struct {
	*prometheus.Registry
	all []prometheus.Collector
}

func (r *registrations) MustRegister(collectors ...prometheus.Collector) {
	r.all = append(r.all, collectors...)
	r.Registry.MustRegister(collectors...)
}

// described is a metric as docs/metrics.md shows it.
type described struct{ name, kind, labels, help string }

var descText = regexp.MustCompile(
	`^Desc\{fqName: "([^"]+)", help: "([^"]+)", constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}\}$`)

// describe takes a description apart: it has no other form than its text.
func describe(t *testing.T, c prometheus.Collector, d *prometheus.Desc) described {
	t.Helper()
	m := descText.FindStringSubmatch(d.String())
	if m == nil {
		t.Fatalf("not understood: %s", d)
	}
	kind := "gauge"
	switch c.(type) {
	case *prometheus.HistogramVec, prometheus.Histogram:
		kind = "histogram"
	}
	if strings.HasSuffix(m[1], "_total") {
		kind = "counter"
	}
	var labels []string
	for label := range strings.SplitSeq(m[3]+","+m[4], ",") {
		if name, _, _ := strings.Cut(label, "="); name != "" {
			labels = append(labels, "`"+name+"`")
		}
	}
	return described{m[1], kind, strings.Join(labels, ", "), m[2]}
}

func reference(t *testing.T) string {
	t.Helper()
	reg := &registrations{Registry: prometheus.NewRegistry()}
	newMetrics(reg, "v0")
	registerStops(reg, worker.NewStopBoard())
	registerPools(reg, nil)
	registerAudit(reg, &sealer{})
	registerTraces(reg)
	newNotificationCounter(reg)
	newCommitCounter(reg)
	newPushCounter(reg)
	fleetstats.NewCollector(reg, nil, "", nil)
	if _, err := hub.New(
		hub.Config{Store: emptyAgentStore(), Secrets: &secrets.Resolver{},
			Stops: worker.NewStopBoard(), Replica: "one",
			PublicURL: "https://argosy.example.com", Metrics: hub.NewMetrics(reg)}); err != nil {
		t.Fatal(err)
	}
	var all []described
	for _, c := range reg.all {
		descs := make(chan *prometheus.Desc, 100)
		c.Describe(descs)
		close(descs)
		for d := range descs {
			if strings.Contains(d.String(), `"argosy_`) {
				all = append(all, describe(t, c, d))
			}
		}
	}
	slices.SortFunc(all, func(a, b described) int { return cmp.Compare(a.name, b.name) })
	var b strings.Builder
	b.WriteString(preface)
	for _, d := range all {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.name, d.kind, d.labels,
			strings.ReplaceAll(d.help, "|", `\|`))
	}
	return b.String()
}

const preface = `# Metrics

Generated from the program's own descriptions by ` + "`make generate`" + `. The port ` + "`listen.ops`" + ` serves them at
` + "`/metrics`" + `, without a token: they name the platform's engines, and no tenant. Go's and the process's own
metrics, ` + "`go_…` and `process_…`" + `, are there too.

Only the leader exports the metrics of the fleet (as opposed to those of one replica), so that ` + "`max`, or `sum`," + `
over replicas is right. It reads them from the database every 15 seconds, independent of the number of scrapes.

| metric | kind | labels | what it is |
|---|---|---|---|
`

func TestMetricsReferenceInTheDocsIsWhatIsRegistered(t *testing.T) {
	made := reference(t)
	if *update {
		if err := os.WriteFile(referencePath, []byte(made), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(referencePath)
	if err != nil {
		t.Fatal(err)
	}
	if string(kept) != made {
		t.Errorf("%s is stale: run make generate", referencePath)
	}
}
