package hub

import (
	"context"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

// fakeRead is an open read in memory.
type fakeRead struct {
	registry.Inspection
	ends, alive time.Time
	run         string
	part        int
	ended       bool
	parts       []registry.InspectionPart
}

func (r *fakeRead) live() bool { return time.Now().Before(r.ends) && time.Now().Before(r.alive) }

func (f *fakeStore) OpenInspection(ctx context.Context, in registry.Inspection) error {
	if err := f.called(ctx, "OpenInspection"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	open := 0
	for _, r := range f.reads {
		if r.Engine == in.Engine && r.live() {
			open++
		}
	}
	if open >= registry.MaxInspectionsOfEngine {
		return mirror.ErrInspectBusy
	}
	f.reads[in.ID] = &fakeRead{Inspection: in, ends: time.Now().Add(in.Left),
		alive: time.Now().Add(registry.InspectionAlive)}
	return nil
}

func (f *fakeStore) TakeInspection(ctx context.Context, id string) (
	parts []registry.InspectionPart, err error) {
	if err := f.called(ctx, "TakeInspection"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r, ok := f.reads[id]
	if !ok {
		return nil, registry.ErrInspectionEnded
	}
	r.alive = time.Now().Add(registry.InspectionAlive)
	parts, r.parts = r.parts, nil
	return parts, nil
}

func (f *fakeStore) CloseInspection(ctx context.Context, id string) error {
	if err := f.called(ctx, "CloseInspection"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.reads, id)
	return nil
}

func (f *fakeStore) SweepInspections(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, r := range f.reads {
		if !r.live() {
			delete(f.reads, id)
		}
	}
	return ctx.Err()
}

func (f *fakeStore) AgentInspections(ctx context.Context, engine fleet.EngineName) (
	all []registry.Inspection, err error) {
	if err := f.called(ctx, "AgentInspections"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.reads {
		if r.Engine == engine && r.live() && !r.ended {
			all = append(all, r.Inspection)
		}
	}
	return all, nil
}

func (f *fakeStore) AnswerInspection(ctx context.Context, engine fleet.EngineName,
	p registry.InspectionPart) (replica string, err error) {
	if err := f.called(ctx, "AnswerInspection"); err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r, ok := f.reads[p.ID]
	switch {
	case !ok, r.Engine != engine, !r.live(), r.run != "" && r.run != p.Run:
		return "", registry.ErrInspectionEnded
	case p.Part == r.part:
		return r.Replica, nil
	case r.ended:
		return "", registry.ErrInspectionEnded
	case p.Part != r.part+1:
		return "", registry.ErrInspectionOrder
	case len(r.parts) >= registry.MaxInspectionParts:
		return "", registry.ErrInspectionFull
	}
	r.run, r.part, r.ended, r.parts = p.Run, p.Part, p.Last, append(r.parts, p)
	return r.Replica, nil
}

func (f *fakeStore) readCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.reads)
}
