//go:build unix

package configschema

import (
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"argosy.dev/argosy/fleet"
)

// processor is the CPU time that the process has used, the collector's included.
func processor(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkDecodeAgainstABareUnmarshal holds the decoder to performance.md: at most 1.3 times the
// CPU of sigs.k8s.io/yaml, which neither checks nor places anything, on the same bytes. Blocks take
// turns (A B B A) in one run; the figure is the median of their ratios.
func BenchmarkDecodeAgainstABareUnmarshal(b *testing.B) {
	files := manyFiles(1500)[1000:]
	decode := func() {
		for _, f := range files {
			if Decode(f).Declaration == nil {
				b.Fatal("a file is refused")
			}
		}
	}
	unmarshal := func() {
		for _, f := range files {
			var d document[fleet.DeploymentSpec]
			if err := yaml.Unmarshal(f.Bytes, &d); err != nil {
				b.Fatal(err)
			}
		}
	}
	cost := func(run func()) float64 {
		runtime.GC()
		before := processor(b)
		for range 4 {
			run()
		}
		return float64(processor(b) - before)
	}
	var ratios []float64
	for b.Loop() {
		a1, b1 := cost(decode), cost(unmarshal)
		b2, a2 := cost(unmarshal), cost(decode)
		ratios = append(ratios, (a1+a2)/(b1+b2))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "ours/floor")
	b.ReportMetric(ratios[0], "least")
	b.ReportMetric(ratios[len(ratios)-1], "most")
}

func BenchmarkDecode(b *testing.B) {
	f := manyFiles(1500)[1200]
	b.SetBytes(int64(len(f.Bytes)))
	b.ReportAllocs()
	for b.Loop() {
		Decode(f)
	}
}

func BenchmarkUnmarshal(b *testing.B) {
	f := manyFiles(1500)[1200]
	b.SetBytes(int64(len(f.Bytes)))
	b.ReportAllocs()
	for b.Loop() {
		var d document[fleet.DeploymentSpec]
		if err := yaml.Unmarshal(f.Bytes, &d); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheck25000Files(b *testing.B) {
	files := manyFiles(25_000)
	for b.Loop() {
		if problems := Check(files); len(problems) > 0 {
			b.Fatal(problems[0])
		}
	}
}

func BenchmarkDecode25000Files(b *testing.B) {
	files := manyFiles(25_000)
	for b.Loop() {
		DecodeAll(files)
	}
}
