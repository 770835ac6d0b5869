// Package metering computes the load of an engine's components from the metrics that Argo CD
// serves. Parse reads one response, and Meter follows the processes over time. Both are pure.
package metering

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"argosy.dev/argosy/fleet"
)

const (
	// MaxBody bounds a response: an application-controller serves some 400 bytes for each
	// Application in families that are not parsed.
	MaxBody = 32 << 20
	maxKept = 4 << 20 // bytes of the parsed families; they grow with the clusters
)

// Families of Argo CD 2.14 to 3.6, and of the process.
const (
	familyStarted = "process_start_time_seconds"
	familyCPU     = "process_cpu_seconds_total"
	familyMemory  = "process_resident_memory_bytes"
	familyQueue   = "workqueue_depth"
	familyWait    = "workqueue_queue_duration_seconds"
	familyCompare = "argocd_app_reconcile"
	familyPending = "argocd_repo_pending_request_total"

	// the queue of Applications that wait for their comparison
	comparisons = "app_reconciliation_queue"
)

var families = map[fleet.Component][]string{
	fleet.ApplicationController: {familyStarted, familyCPU, familyMemory, familyQueue, familyWait,
		familyCompare},
	fleet.RepoServer: {familyStarted, familyCPU, familyMemory, familyPending},
}

// proofs are families that each component reports.
var proofs = map[fleet.Component]string{fleet.ApplicationController: familyQueue,
	fleet.RepoServer: familyCPU}

// Sample is what one process reported. Counters count since its start.
type Sample struct {
	// Unix time, which identifies the process; 0: it does not report itself, and CPU and Memory are
	// unknown
	Started float64
	CPU     float64 // seconds
	Memory  float64 // bytes

	Queue     float64 // Applications that wait for their comparison
	WaitSum   float64 // seconds that Applications have waited
	WaitCount float64
	Compared  []Bucket // comparisons by duration
	Pending   float64  // requests that wait in the repo-server
}

// Bucket counts comparisons that took at most a number of seconds.
type Bucket struct{ Most, Count float64 }

// Parse reads the metrics of a process, and returns the size of the response too. It parses the
// families of the component alone, and keeps nothing else in memory.
func Parse(c fleet.Component, body io.Reader) (s Sample, size int, err error) {
	kept, size, err := filter(families[c], body)
	if err != nil {
		return s, size, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	found, err := parser.TextToMetricFamilies(kept)
	if err != nil {
		return s, size, fmt.Errorf("the response is not in Prometheus' text format: %w", err)
	}
	if needs := proofs[c]; found[needs] == nil {
		return s, size, fmt.Errorf("the response has no %s: it is not from the metrics port of "+
			"this component", needs)
	}
	s.Started, s.CPU = sum(found[familyStarted], ""), sum(found[familyCPU], "")
	s.Memory, s.Pending = sum(found[familyMemory], ""), sum(found[familyPending], "")
	s.Queue = sum(found[familyQueue], comparisons)
	counts := map[float64]float64{}
	for _, m := range found[familyCompare].GetMetric() {
		h := m.GetHistogram()
		for _, b := range h.GetBucket() {
			if !math.IsInf(b.GetUpperBound(), 1) {
				counts[b.GetUpperBound()] += float64(b.GetCumulativeCount())
			}
		}
		counts[math.Inf(1)] += float64(h.GetSampleCount())
	}
	for most, n := range counts {
		s.Compared = append(s.Compared, Bucket{most, n})
	}
	slices.SortFunc(s.Compared, func(a, b Bucket) int {
		if a.Most < b.Most {
			return -1
		}
		return 1
	})
	for _, m := range found[familyWait].GetMetric() {
		if named(m, comparisons) {
			s.WaitSum += m.GetHistogram().GetSampleSum()
			s.WaitCount += float64(m.GetHistogram().GetSampleCount())
		}
	}
	return s, size, nil
}

// sum adds up a family; with a name only its series of that queue.
func sum(f *dto.MetricFamily, queue string) (all float64) {
	for _, m := range f.GetMetric() {
		if queue == "" || named(m, queue) {
			all += m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
		}
	}
	return all
}

func named(m *dto.Metric, queue string) bool {
	for _, l := range m.GetLabel() {
		if l.GetName() == "name" {
			return l.GetValue() == queue
		}
	}
	return false
}

// filter keeps the lines of these families, and counts all bytes.
func filter(wanted []string, body io.Reader) (*bytes.Buffer, int, error) {
	kept, size := &bytes.Buffer{}, 0
	lines := bufio.NewReaderSize(io.LimitReader(body, MaxBody+1), 64<<10)
	skip := false // the rest of a longer line
	for {
		line, err := lines.ReadSlice('\n')
		size += len(line)
		more := errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !more && !errors.Is(err, io.EOF) {
			return nil, size, fmt.Errorf("the response was truncated: %w", err)
		}
		if size > MaxBody {
			return nil, size, fmt.Errorf("the response has more than %d MiB", MaxBody>>20)
		}
		if !skip && !more && slices.Contains(wanted, family(line)) {
			kept.Write(line)
			if err != nil {
				kept.WriteByte('\n')
			}
		}
		if kept.Len() > maxKept {
			return nil, size, fmt.Errorf("the response has more than %d MiB of the families "+
				"that are read", maxKept>>20)
		}
		if skip = more; errors.Is(err, io.EOF) {
			return kept, size, nil
		}
	}
}

// family returns the family of a line of the text format, without the suffixes of histograms.
func family(line []byte) string {
	line, comment := bytes.CutPrefix(line, []byte("# TYPE "))
	if !comment && bytes.HasPrefix(line, []byte("#")) {
		return ""
	}
	if i := bytes.IndexAny(line, "{ \n"); i >= 0 {
		line = line[:i]
	}
	if !comment {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if before, cut := bytes.CutSuffix(line, []byte(suffix)); cut {
				return string(before)
			}
		}
	}
	return string(line)
}
