package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/test/bench/corpus"
	"argosy.dev/argosy/test/bench/report"
)

// compile measures what it takes to decode every file, against a parse of the same bytes that
// checks nothing (F4).
func compile(ctx context.Context, o options) (*report.Figure, error) {
	c := corpus.Corpus{Engines: []corpus.Engine{{Name: "engine-a", Namespace: "argocd-a"},
		{Name: "engine-b", Namespace: "argocd-b"}}}
	var files []configschema.File
	for path, content := range c.All(o.compile, first) {
		files = append(files, configschema.File{Path: path, Blob: "0", Bytes: []byte(content)})
	}
	slices.SortFunc(files, func(a, b configschema.File) int { return cmp.Compare(a.Path, b.Path) })
	dir, err := os.MkdirTemp("", "argosy-bench-compile-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	for _, f := range files {
		if err := writeFile(f.Bytes, dir, f.Path); err != nil {
			return nil, err
		}
	}
	f := &report.Figure{Name: "compile", Title: fmt.Sprintf("Cold compile of %d files", len(files))}
	var decode, parse, wall, cpu report.Sample
	for block := range o.blocks {
		progress("compile, block %d of %d", block+1, o.blocks)
		err := alternate(block, []func() error{
			func() error {
				used, err := cpuOf(func() error { return decodeAll(files) })
				decode = append(decode, used)
				return err
			},
			func() error {
				used, err := cpuOf(func() error { return parseAll(files) })
				parse = append(parse, used)
				return err
			},
		})
		if err != nil {
			return nil, err
		}
		start := time.Now()
		used, err := validate(ctx, dir)
		if err != nil {
			return nil, err
		}
		wall, cpu = append(wall, time.Since(start).Seconds()), append(cpu, used)
	}
	f.Add(report.Against("Decode of each file, CPU", "s", decode, parse, 2))
	f.Add(report.Against("argosy validate DIR, CPU", "s", cpu, parse, 0))
	f.Add(report.Line{Name: "argosy validate DIR, wall", Unit: "s", Ours: wall})
	f.Note(
		"floor: sigs.k8s.io/yaml into map[string]any, one file after the other; validate reads "+
			"the folder, decodes on %d cores, and checks every reference", runtime.GOMAXPROCS(0))
	return f, nil
}

func decodeAll(files []configschema.File) error {
	for _, f := range files {
		if d := configschema.Decode(f); d.Declaration == nil {
			return fmt.Errorf("void: %s does not decode: %v", f.Path, d.Problems)
		}
	}
	return nil
}

func parseAll(files []configschema.File) error {
	for _, f := range files {
		var into map[string]any
		if err := yaml.Unmarshal(f.Bytes, &into); err != nil {
			return fmt.Errorf("void: %s: %w", f.Path, err)
		}
	}
	return nil
}

// cpuOf is the CPU seconds of this process while f runs, collection of its garbage included.
func cpuOf(f func() error) (float64, error) {
	runtime.GC()
	var before, after syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &before); err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	return seconds(&after) - seconds(&before), err
}

func seconds(r *syscall.Rusage) float64 {
	return time.Duration(syscall.TimevalToNsec(r.Utime) + syscall.TimevalToNsec(r.Stime)).Seconds()
}

func validate(ctx context.Context, dir string) (cpuSeconds float64, err error) {
	cmd := exec.CommandContext(ctx, argosyBinary, "validate", dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("void: argosy validate: %w: %.500s", err, out)
	}
	return (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), nil
}
