package configschema

import (
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"argosy.dev/argosy/fleet"
)

// BenchmarkDecodeAgainstABareUnmarshal holds the decoder to performance.md: at most 1.3 times the CPU of sigs.k8s.io/yaml, which neither
// checks nor places anything, on the same bytes. The two take turns in one run, so that the ratio does not depend on the machine.
func BenchmarkDecodeAgainstABareUnmarshal(b *testing.B) {
	files := manyFiles(1500)[1000:]
	var ours, floor time.Duration
	for b.Loop() {
		for turn := range 2 {
			start := time.Now()
			if turn == 0 {
				for _, f := range files {
					if Decode(f).Declaration == nil {
						b.Fatal("a file is refused")
					}
				}
				ours += time.Since(start)
				continue
			}
			for _, f := range files {
				var d document[fleet.DeploymentSpec]
				if err := yaml.Unmarshal(f.Bytes, &d); err != nil {
					b.Fatal(err)
				}
			}
			floor += time.Since(start)
		}
	}
	b.ReportMetric(float64(ours)/float64(floor), "ours/floor")
	b.ReportMetric(float64(ours.Microseconds())/float64(b.N*len(files)), "µs/file")
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
