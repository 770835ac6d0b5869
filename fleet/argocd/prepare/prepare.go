// Package prepare gives a running Argo CD the settings that an engine needs, without untracking a
// resource while automation is on, without a sync and without a deletion.
//
// Rules of this package:
//   - The state is the live instance. Every step is planned from a complete read, and a procedure
//     that was interrupted continues from there.
//   - A step begins only if the read before it was complete, and ends when Argo CD has compared
//     every Application again and the live objects were read again.
//   - Only metadata of resources is written, by merge patches with UID and resourceVersion: a patch
//     creates nothing and overwrites no later change. Nothing is deleted.
//   - Each changed object records the state that an undo restores.
package prepare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Options describe the instance and the engine that it becomes.
type Options struct {
	Engine         string
	Namespace      string // of Argo CD
	InstallationID string
	Version        string // of Argo CD, as far as it is known
	Config         *rest.Config
	// Clusters are connections that take the place of those in cluster Secrets, by name or server.
	Clusters map[string]*rest.Config
	// LeaveOut names Applications without automation whose resources may be untracked.
	LeaveOut []string
	DryRun   bool
	Undo     bool
	// Print reports the plan and each step.
	Print func(format string, args ...any)
	// Patience is how long Argo CD may take to compare all Applications; 15 minutes if zero.
	Patience time.Duration
}

// BlockedError reports that no further step is safe, with the subjects and the next step of each.
type BlockedError struct{ Reasons []string }

func (b *BlockedError) Error() string {
	return "no further step is safe:\n  " + strings.Join(b.Reasons, "\n  ")
}

// ErrSteps is the result of a dry run with steps that remain.
var ErrSteps = errors.New("steps remain")

type preparer struct {
	Options
	home     *cluster
	clusters map[string]access
}

// Run prepares the instance, or with Undo takes the preparation back.
func Run(ctx context.Context, o Options) error {
	if o.Patience == 0 {
		o.Patience = 15 * time.Minute
	}
	home, err := connect(homeName, o.Config)
	if err != nil {
		return err
	}
	p := &preparer{Options: o, home: home}
	s, err := p.read(ctx)
	if err != nil {
		return err
	}
	plan, err := p.plan(s)
	if err != nil {
		return err
	}
	p.show(s, plan)
	if len(plan.blockers) > 0 {
		return &BlockedError{plan.blockers}
	}
	if p.DryRun {
		if len(plan.steps) > 0 {
			return ErrSteps
		}
		return nil
	}
	return p.perform(ctx, s, plan)
}

func (p *preparer) plan(s *state) (plan, error) {
	if p.Undo {
		return s.back(p.Engine, p.InstallationID)
	}
	return s.next(p.Engine, p.InstallationID), nil
}

func (p *preparer) show(s *state, plan plan) {
	resources, tracked := 0, 0
	for _, a := range s.apps {
		for _, r := range a.resources {
			if r.live == nil {
				continue
			}
			if resources++; r.tracked(a, s) {
				tracked++
			}
		}
	}
	p.Print("Argo CD %s in namespace %s: %s, %d with automation, %s on %s", first(p.Version, "?"),
		p.Namespace, plural(len(s.apps), "Application"), len(s.automated()),
		plural(resources, "resource"), plural(len(s.clusters), "cluster"))
	project := "locked"
	if s.openProject() {
		project = "open"
	}
	p.Print("It tracks %d of them by %s, its installationID is %q, AppProject default is %s.",
		tracked, s.method, s.installation, project)
	for i, step := range plan.steps {
		p.Print("  %d. %s", i+1, step.text)
	}
	for _, note := range plan.notes {
		p.Print("Note: %s", note)
	}
	if len(plan.steps) == 0 && len(plan.blockers) == 0 {
		p.Print("Nothing remains to do.")
	}
}

// maxRepeats bounds how often one verb follows itself, as for nested parents: more often, something
// else restores what it writes.
const maxRepeats = 8

// perform does one step at a time. It reads and plans again between two.
func (p *preparer) perform(ctx context.Context, s *state, plan plan) error {
	last, repeats, start := verb(""), 0, s.baseline()
	for len(plan.steps) > 0 {
		current := plan.steps[0]
		if repeats++; current.verb != last {
			last, repeats = current.verb, 1
		}
		if repeats > maxRepeats {
			return &BlockedError{
				[]string{fmt.Sprintf("%q does not last: others restore the objects; "+
					"stop them first", current.text)},
			}
		}
		if err := p.do(ctx, current.verb, s); err != nil {
			return fmt.Errorf("%s: %w", current.text, err)
		}
		var err error
		if s, plan, err = p.verify(ctx, start, current); err != nil {
			return err
		}
		if len(plan.blockers) > 0 {
			return &BlockedError{plan.blockers}
		}
	}
	return nil
}

func (p *preparer) do(ctx context.Context, v verb, s *state) error {
	switch v {
	case pause:
		return p.pause(ctx, s)
	case resume:
		return p.resume(ctx, s)
	case annotate:
		return p.patchResources(ctx, s, func(a *application, r *resource) map[string]any {
			return r.lacks(a, s, p.InstallationID)
		})
	case strip:
		return p.patchResources(ctx, s, func(a *application, r *resource) map[string]any {
			return r.extra(a, p.InstallationID, s.undoneMethod() == byLabel)
		})
	case setSettings:
		return p.setSettings(ctx, s)
	case lock:
		return p.lock(ctx, s)
	default:
		return p.reset(ctx, v, s)
	}
}

// patch changes an object of Argo CD's cluster if it is still as it was read.
func (p *preparer) patch(ctx context.Context, resource schema.GroupVersionResource,
	u *unstructured.Unstructured, change map[string]any) error {
	body, err := guarded(u.GetUID(), u.GetResourceVersion(), change)
	if err != nil {
		return err
	}
	_, err = p.home.dynamic.Resource(resource).Namespace(u.GetNamespace()).Patch(ctx, u.GetName(),
		types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil {
		return fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}

func guarded(uid types.UID, version string, change map[string]any) ([]byte, error) {
	change = maps.Clone(change)
	meta, _ := change["metadata"].(map[string]any)
	meta = maps.Clone(meta)
	if meta == nil {
		meta = map[string]any{}
	}
	meta["uid"], meta["resourceVersion"] = uid, version
	change["metadata"] = meta
	return json.Marshal(change)
}

func annotations(all map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": all}}
}

// attempts bounds the retries of a write that meets another writer.
const attempts = 5

// patchResources writes annotations to live objects. An object that was deleted or changed since it
// was read is left alone: the next read finds it.
func (p *preparer) patchResources(ctx context.Context, s *state,
	change func(*application, *resource) map[string]any) error {
	type job struct {
		r       *resource
		changes map[string]any
	}
	var jobs []job
	for _, a := range s.apps {
		for _, r := range a.resources {
			if c := change(a, r); c != nil {
				jobs = append(jobs, job{r, c})
			}
		}
	}
	errs := each(ctx, len(jobs), func(i int) error {
		r := jobs[i].r
		body, err := guarded(r.live.UID, r.live.ResourceVersion, annotations(jobs[i].changes))
		if err != nil {
			return err
		}
		_, err = r.objects().Patch(ctx, r.key.name, types.MergePatchType, body,
			metav1.PatchOptions{FieldManager: fieldManager})
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s on cluster %s: %w", r.key, r.cluster.name, err)
		}
		return nil
	})
	return errors.Join(errs...)
}

// pause removes the automation of Applications and records it there. A parent with automation would
// restore its children, so that they wait until Argo CD has compared it without.
func (p *preparer) pause(ctx context.Context, s *state) error {
	for _, a := range s.apps {
		if a.leftOut || !a.automated() ||
			slices.ContainsFunc(s.parents(a), (*application).automated) {
			continue
		}
		text, err := json.Marshal(a.automation)
		if err != nil {
			return err
		}
		change := annotations(map[string]any{pausedAutomation: string(text)})
		change["spec"] = map[string]any{"syncPolicy": map[string]any{"automated": nil}}
		if err := p.patchApplication(ctx, a, change); err != nil {
			return err
		}
	}
	return nil
}

// resume restores the automation, of children before their parents. Automation that others have set
// meanwhile stays.
func (p *preparer) resume(ctx context.Context, s *state) error {
	for _, a := range s.apps {
		if !a.paused ||
			slices.ContainsFunc(s.children(a), func(c *application) bool { return c.paused }) {
			continue
		}
		change := annotations(map[string]any{pausedAutomation: nil})
		if a.automation == nil {
			var automated map[string]any
			if err := json.Unmarshal([]byte(a.object.GetAnnotations()[pausedAutomation]),
				&automated); err != nil {
				return fmt.Errorf("annotation %s of Application %s: %w", pausedAutomation,
					a.name(), err)
			}
			change["spec"] = map[string]any{"syncPolicy": map[string]any{"automated": automated}}
		}
		if err := p.patchApplication(ctx, a, change); err != nil {
			return err
		}
	}
	return nil
}

// patchApplication retries after a write of Argo CD's status. It never overwrites another change of
// the spec.
func (p *preparer) patchApplication(ctx context.Context, a *application,
	change map[string]any) error {
	read := a.object
	for attempt := 0; ; attempt++ {
		err := p.patch(ctx, applications, read, change)
		if !apierrors.IsConflict(err) || attempt == attempts {
			return err
		}
		latest, err := p.home.dynamic.Resource(applications).Namespace(
			a.object.GetNamespace()).Get(ctx, a.object.GetName(), metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("failed to read Application %s: %w", a.name(), err)
		}
		if latest.GetUID() != read.GetUID() || latest.GetGeneration() != read.GetGeneration() &&
			!sameSpec(latest, read) {
			return fmt.Errorf("others have changed Application %s; run the command again",
				a.name())
		}
		read = latest
	}
}

// sameSpec compares specs: Argo CD's CustomResourceDefinition has no status subresource, so that a
// write of the status changes the generation too.
func sameSpec(a, b *unstructured.Unstructured) bool {
	one, err := json.Marshal(a.Object["spec"])
	other, failed := json.Marshal(b.Object["spec"])
	return err == nil && failed == nil && string(one) == string(other)
}

// setSettings changes both settings in one write, and records those before it.
func (p *preparer) setSettings(ctx context.Context, s *state) error {
	data := map[string]any{installationKey: p.InstallationID}
	if s.method == byLabel {
		data[methodKey] = byBoth
	}
	change := map[string]any{"data": data}
	if _, done := s.settings.GetAnnotations()[beforePrepare]; !done {
		was := map[string]*string{}
		for _, name := range []string{methodKey, installationKey} {
			if v, set, _ := unstructured.NestedString(s.settings.Object, "data", name); set {
				was[name] = &v
			} else {
				was[name] = nil
			}
		}
		if was[methodKey] == nil { // an undo on another version must not depend on its default
			was[methodKey] = &s.method
		}
		text, err := json.Marshal(was)
		if err != nil {
			return err
		}
		change["metadata"] = map[string]any{"annotations": map[string]any{
			beforePrepare: string(text)}}
	}
	return p.patch(ctx, configMaps, s.settings, change)
}

// lock empties AppProject default, and records what it admitted.
func (p *preparer) lock(ctx context.Context, s *state) error {
	spec, _, _ := unstructured.NestedMap(s.project.Object, "spec")
	text, err := json.Marshal(map[string]any{"sourceRepos": spec["sourceRepos"],
		"destinations": spec["destinations"]})
	if err != nil {
		return err
	}
	change := annotations(map[string]any{beforePrepare: string(text)})
	change["spec"] = map[string]any{"sourceRepos": []any{}, "destinations": []any{}}
	return p.patch(ctx, projects, s.project, change)
}

// reset restores a recorded state.
func (p *preparer) reset(ctx context.Context, v verb, s *state) error {
	object, resource, field := s.settings, configMaps, "data"
	if v == unlock {
		object, resource, field = s.project, projects, "spec"
	}
	var was map[string]any
	if _, err := recorded(object, &was); err != nil {
		return err
	}
	change := annotations(map[string]any{beforePrepare: nil})
	change[field] = was
	return p.patch(ctx, resource, object, change)
}
