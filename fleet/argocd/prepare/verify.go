package prepare

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// verify lets Argo CD compare every Application, reads the instance again and returns the new state
// and plan if no resource that was tracked is untracked, no Application went OutOfSync and none
// began a sync.
func (p *preparer) verify(ctx context.Context, before map[string]baseline, done step) (*state,
	plan, error) {
	rounds := 1
	if done.verb == setSettings || done.verb == resetSettings {
		rounds = 2 // Argo CD may compare before it has read its settings
	}
	for range rounds {
		if err := p.compare(ctx); err != nil {
			return nil, plan{}, err
		}
	}
	s, err := p.read(ctx)
	if err != nil {
		return nil, plan{}, err
	}
	next, err := p.plan(s)
	if err != nil {
		return nil, plan{}, err
	}
	// Automation returns only to Applications that it leaves alone.
	between := len(next.steps) > 0 && next.steps[0].verb != resume
	found := s.damage(before, between)
	if len(found) > 0 {
		advice := fmt.Sprintf("next: `argosy prepare %s --undo`, or fix these and run the command "+
			"again", p.Engine)
		if p.Undo {
			advice =
				"next: compare these Applications in Argo CD, sync them, and run the command again"
		}
		return nil, plan{}, &BlockedError{append(found, advice)}
	}
	tracked, apps := 0, 0
	for _, a := range s.apps {
		if !a.idle() {
			apps++
		}
		for _, r := range a.resources {
			if r.live != nil && r.tracked(a, s) {
				tracked++
			}
		}
	}
	p.Print("Done: %s.", done.text)
	p.Print("      Argo CD compared %s and tracks %s; no sync began.", plural(apps, "Application"),
		plural(tracked, "resource"))
	return s, next, nil
}

// compare requests a comparison of every Application and waits until all are done: Argo CD removes
// the annotation when it has compared. Syncs of new commits end first.
func (p *preparer) compare(ctx context.Context) error {
	all, err := p.readApplications(ctx)
	if err != nil {
		return err
	}
	body := []byte(fmt.Sprintf(`{"metadata":{"annotations":{%q:"normal"}}}`, refresh))
	errs := each(ctx, len(all), func(i int) error {
		if all[i].idle() {
			return nil
		}
		_, err := p.home.dynamic.Resource(applications).Namespace(
			all[i].object.GetNamespace()).Patch(ctx, all[i].object.GetName(),
			types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("failed to request comparisons: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, p.Patience)
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if all, err = p.readApplications(ctx); err != nil {
			return err
		}
		waiting := (&state{apps: all}).names(func(a *application) bool {
			return !a.idle() && (a.object.GetAnnotations()[refresh] != "" || a.syncing())
		})
		if len(waiting) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return &BlockedError{[]string{fmt.Sprintf("Argo CD did not compare %s within %s: %s; "+
				"check its application controller, then run the command again",
				plural(len(waiting), "Application"), p.Patience, some(waiting))}}
		}
	}
}

// idle reports whether Argo CD does not compare the Application, or need not.
func (a *application) idle() bool { return a.leftOut || a.skipped }
