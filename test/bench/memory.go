package main

import (
	"context"
	"fmt"
	"time"

	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/test/bench/observe"
	"argosy.dev/argosy/test/bench/report"
)

// settle is the pause before the memory of a process is read.
const memoryPause = 30 * time.Second

// remember reads the memory of a control plane that has just rebuilt its mirror from Git and the
// engines, and shows that it wrote nothing to them meanwhile.
func (l *ladder) remember(ctx context.Context) error {
	progress("%d files: a cold start without a mirror", l.n)
	warm, err := observe.Memory(l.argosy.PID())
	if err != nil {
		return err
	}
	if err := l.stop(ctx); err != nil {
		return err
	}
	requests, err := l.requests(ctx)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := l.start(ctx, nil, 30*time.Second); err != nil {
		return err
	}
	limit, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := l.applied(limit); err != nil {
		return err
	}
	took := time.Since(begun).Seconds()
	pacing.Sleep(ctx, memoryPause)
	cold, err := observe.Memory(l.argosy.PID())
	if err != nil {
		return err
	}
	asked, err := l.requests(ctx)
	if err != nil {
		return err
	}
	asked = asked.Sub(requests)
	size := fmt.Sprintf("%d files: ", l.n)
	l.memory.Add(report.Line{Name: size + "RSS after cold start", Unit: "MiB", Ours: report.Sample{
		cold.Now / 1024}})
	l.memory.Add(report.Line{Name: size + "peak", Unit: "MiB", Ours: report.Sample{
		cold.Peak / 1024}})
	l.memory.Add(report.Line{Name: "of it pages of the program", Unit: "MiB", Ours: report.Sample{
		cold.Program / 1024}})
	l.memory.Add(report.Line{Name: size + "RSS before it", Unit: "MiB", Ours: report.Sample{
		warm.Now / 1024}})
	l.memory.Add(report.Line{Name: "empty fleet", Unit: "MiB", Ours: report.Sample{
		l.empty.Now / 1024}})
	l.memory.Add(report.Line{Name: "per Application", Unit: "KiB", Ours: report.Sample{
		cold.Now / float64(l.n)}})
	l.memory.Add(report.Line{Name: "per Application above empty", Unit: "KiB", Ours: report.Sample{
		(cold.Now - l.empty.Now) / float64(l.n)}})
	l.memory.Add(report.Line{Name: "start until the mirror is made", Unit: "s", Ours: report.Sample{
		took}})
	l.memory.Add(report.Line{Name: "writes to engines meanwhile", Ours: report.Sample{
		asked.Apply + asked.Other + asked.DryRun}, Exact: true})
	return l.verify(ctx)
}
