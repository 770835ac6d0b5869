package prepare

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// verb is what a step does.
type verb string

const (
	pause       verb = "pause"
	annotate    verb = "annotate"
	setSettings verb = "settings"
	resume      verb = "resume"
	lock        verb = "lock"

	unlock        verb = "unlock"
	resetSettings verb = "reset"
	strip         verb = "strip"
)

// step is one change of the live instance, after which every resource is tracked or no automation
// is on.
type step struct {
	verb verb
	text string
}

// plan is what remains to do, in order. Nothing is done while there is a blocker.
type plan struct {
	steps    []step
	blockers []string
	notes    []string
}

func (p *plan) add(v verb, format string, args ...any) {
	p.steps = append(p.steps, step{v, fmt.Sprintf(format, args...)})
}

func (p *plan) block(format string, args ...any) {
	p.blockers = append(p.blockers, fmt.Sprintf(format, args...))
}

// next plans the rest of the preparation from the live state alone.
func (s *state) next(engine, want string) plan {
	var p plan
	missing, apps := s.missing(want)
	settled := s.method != byLabel && s.installation == want
	// With tracking by annotation, Argo CD no longer counts a resource to its Application once it
	// has another installation-id than the settings: between the two no automation may be on.
	exposed := s.method != byLabel && !settled
	s.check(&p, want, exposed)
	if automated := s.automated(); exposed && len(automated) > 0 {
		p.add(pause, "pause the automation of %s, recorded in the annotation %s: %s",
			plural(len(automated), "Application"), pausedAutomation, some(automated))
	}
	if missing > 0 {
		p.add(annotate, "annotate %s of %s with tracking-id and installation-id; labels and specs "+
			"stay", plural(missing, "resource"), plural(apps, "Application"))
	}
	if !settled {
		change := installationKey + ": " + want
		if s.method == byLabel {
			change = methodKey + ": " + byBoth + " and " + change
		}
		owner := s.deployer(key{"", "ConfigMap", s.settings.GetNamespace(), settingsName})
		if owner != nil && len(p.steps) == 0 {
			p.block("Application %s deploys ConfigMap %s and would restore it: set %s in its "+
				"repository, sync it, then run the command again", owner.name(), settingsName,
				change)
		} else if owner != nil {
			p.notes = append(p.notes, fmt.Sprintf("Application %s deploys ConfigMap %s: the "+
				"command stops before it changes it", owner.name(), settingsName))
		}
		p.add(setSettings, "set %s in ConfigMap %s", change, settingsName)
	}
	if paused := s.paused(); len(paused) > 0 || exposed && len(s.automated()) > 0 {
		p.add(resume, "restore the automation of the paused Applications")
	}
	s.planLock(&p, engine)
	return p
}

func (s *state) planLock(p *plan, engine string) {
	if !s.openProject() {
		return
	}
	var users []string
	for _, a := range s.apps {
		if a.project == defaultProject {
			users = append(users, a.name())
		}
	}
	if len(users) > 0 {
		p.notes = append(p.notes, fmt.Sprintf("AppProject default stays open: %s in it: %s. Adopt "+
			"them or give them another project, then run `argosy prepare %s` again",
			are(len(users), "Application"), some(users), engine))
		return
	}
	owner := s.deployer(key{"argoproj.io", "AppProject", s.settings.GetNamespace(),
		defaultProject})
	if owner != nil {
		p.notes = append(p.notes, fmt.Sprintf("AppProject default stays open: Application %s "+
			"deploys it; empty its sourceRepos and destinations in its repository", owner.name()))
		return
	}
	if s.project != nil {
		p.add(lock, "empty sourceRepos and destinations of AppProject default, which no "+
			"Application uses")
	}
}

// deployer returns the Application that restores an object from Git; nil if none does.
func (s *state) deployer(k key) *application {
	for _, a := range s.apps {
		if (a.automated() || a.paused) && slices.ContainsFunc(a.resources,
			func(r *resource) bool { return r.key == k }) {
			return a
		}
	}
	return nil
}

// check adds everything that makes a step unsafe.
func (s *state) check(p *plan, want string, exposed bool) {
	p.blockers = append(p.blockers, s.unread...)
	for _, a := range s.apps {
		switch {
		case a.leftOut && a.automated():
			p.block("Application %s is left out and has automation: its resources would be "+
				"untracked; remove spec.syncPolicy.automated first", a.name())
		case a.leftOut:
		case a.object.GetDeletionTimestamp() != nil:
			p.block("Application %s is being deleted; wait until it is deleted", a.name())
		case a.syncing():
			p.block("Application %s is syncing; wait until the sync has ended", a.name())
		case a.status("sync", "status") != "Synced" && a.status("sync", "status") != "OutOfSync":
			p.block("Application %s has no comparison with Git (%s), so that its resources are "+
				"unknown; fix it, or leave it out with --leave-out %s", a.name(),
				first(a.status("sync", "status"), "not compared yet"), a.name())
		case exposed && a.set != "" && a.automated():
			p.block(
				"ApplicationSet %s restores the automation of Application %s, which must pause; "+
					"delete the set with `kubectl delete applicationset %s --cascade=orphan`, "+
					"or let it "+
					"ignore /spec/syncPolicy/automated (spec.ignoreApplicationDifferences)",
				a.set,
				a.name(),
				a.set,
			)
		}
		if a.leftOut {
			continue
		}
		for _, r := range a.resources {
			if why := r.foreign(a, s, want); why != "" {
				p.block("Application %s: %s", a.name(), why)
			}
		}
	}
}

// missing counts the resources that lack an annotation, and their Applications.
func (s *state) missing(want string) (resources, apps int) {
	return s.count(func(a *application, r *resource) bool { return r.lacks(a, s, want) != nil })
}

// count counts the resources that are so, and their Applications.
func (s *state) count(is func(*application, *resource) bool) (resources, apps int) {
	for _, a := range s.apps {
		n := 0
		for _, r := range a.resources {
			if is(a, r) {
				n++
			}
		}
		if resources += n; n > 0 {
			apps++
		}
	}
	return resources, apps
}

func (s *state) automated() []string {
	return s.names(func(a *application) bool { return a.automated() && !a.leftOut })
}

func (s *state) paused() []string { return s.names(func(a *application) bool { return a.paused }) }

// children returns the Applications among the resources of an Application, parents those that have
// it among theirs.
func (s *state) children(a *application) (all []*application) {
	for _, c := range s.apps {
		if a.has(c) {
			all = append(all, c)
		}
	}
	return all
}

func (s *state) parents(c *application) (all []*application) {
	for _, a := range s.apps {
		if a.has(c) {
			all = append(all, a)
		}
	}
	return all
}

func (a *application) has(c *application) bool {
	return a != c && slices.ContainsFunc(a.resources, func(r *resource) bool { return r.is(c) })
}

func (r *resource) is(a *application) bool {
	return r.key == key{applications.Group, "Application", a.object.GetNamespace(),
		a.object.GetName()}
}

func (s *state) names(of func(*application) bool) (names []string) {
	for _, a := range s.apps {
		if of(a) {
			names = append(names, a.name())
		}
	}
	slices.Sort(names)
	return names
}

// back plans the rest of an undo from the live state alone.
func (s *state) back(engine, want string) (plan, error) {
	var p plan
	var was map[string]*string
	prepared, err := recorded(s.settings, &was)
	if err != nil {
		return p, err
	}
	var project map[string]any
	locked, err := recorded(s.project, &project)
	if err != nil {
		return p, err
	}
	for _, a := range s.apps {
		if a.object.GetLabels()["argosy.dev/tenant"] != "" {
			p.block(
				"Application %s belongs to Argosy, which needs these settings; release it first "+
					"(docs/adopting.md#going-back)",
				a.name(),
			)
		}
	}
	if locked {
		p.add(unlock, "restore sourceRepos and destinations of AppProject default")
	}
	method, id := s.method, s.installation
	if prepared {
		method, id = value(was[methodKey], s.method), value(was[installationKey], "")
	}
	if id == want && method != byLabel {
		if !locked && len(s.paused()) == 0 {
			p.notes = append(p.notes, "there is nothing to undo: engine "+engine+
				" was not prepared by this command")
		}
		return p, nil
	}
	// Between the two steps, resources are untracked or OutOfSync. The annotations go first: Argo
	// CD does not list an untracked resource that has left Git, and lists it again at the end.
	strips, apps := s.annotated(want, method == byLabel)
	exposed := prepared || strips > 0
	if strips > 0 && !prepared && method != byLabel {
		p.block("the preparation was interrupted while resources were untracked; finish it with "+
			"`argosy prepare %s`, then undo it", engine)
	}
	s.check(&p, want, exposed)
	if automated := s.automated(); exposed && len(automated) > 0 {
		p.add(pause, "pause the automation of %s, recorded in the annotation %s: %s",
			plural(len(automated), "Application"), pausedAutomation, some(automated))
	}
	if strips > 0 {
		p.add(strip, "remove the annotations from %s of %s", plural(strips, "resource"),
			plural(apps, "Application"))
	}
	if prepared {
		p.add(resetSettings, "restore %s and %s in ConfigMap %s", methodKey, installationKey,
			settingsName)
	}
	if len(s.paused()) > 0 || exposed && len(s.automated()) > 0 {
		p.add(resume, "restore the automation of the paused Applications")
	}
	return p, nil
}

func value(v *string, unset string) string {
	if v == nil {
		return unset
	}
	return *v
}

// extra returns the annotations that an undo removes from a live object.
func (r *resource) extra(a *application, want string, toLabel bool) map[string]any {
	if r.live == nil || !r.named(a) || r.live.Annotations[installationID] != want {
		return nil
	}
	out := map[string]any{installationID: nil}
	if toLabel {
		out[trackingID] = nil
	}
	if text, ok := withoutAnnotations(r.live.Annotations[lastApplied], out); ok {
		out[lastApplied] = text
	}
	return out
}

// withoutAnnotations removes annotations from the configuration that Argo CD applied last. With
// them there, it compares their removal with the live object, and finds a difference.
func withoutAnnotations(text string, names map[string]any) (string, bool) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var object map[string]any
	if err := dec.Decode(&object); err != nil {
		return "", false
	}
	meta, _ := object["metadata"].(map[string]any)
	all, _ := meta["annotations"].(map[string]any)
	before := len(all)
	for name := range names {
		delete(all, name)
	}
	if len(all) == before {
		return "", false
	}
	if len(all) == 0 {
		delete(meta, "annotations")
	}
	out, err := json.Marshal(object)
	return string(out), err == nil
}

// undoneMethod is the tracking method to which an undo returns.
func (s *state) undoneMethod() string {
	var was map[string]*string
	if prepared, err := recorded(s.settings, &was); !prepared || err != nil {
		return s.method
	}
	return value(was[methodKey], s.method)
}

func (s *state) annotated(want string, toLabel bool) (resources, apps int) {
	return s.count(func(a *application, r *resource) bool {
		return r.extra(a, want, toLabel) != nil
	})
}

// baseline is what a step must not change of an Application.
type baseline struct {
	sync, revision, started string
	tracked                 map[key]bool
}

func (s *state) baseline() map[string]baseline {
	all := map[string]baseline{}
	for _, a := range s.apps {
		b := baseline{a.status("sync", "status"), a.revision(),
			a.status("operationState", "startedAt"), map[key]bool{}}
		for _, r := range a.resources {
			if r.live != nil && r.tracked(a, s) {
				b.tracked[r.key] = true
			}
		}
		all[a.name()] = b
	}
	return all
}

// damage returns what the steps have changed that they must not. A new revision of the source
// excuses a change of an Application's state. Between two steps without any automation, the
// settings and the annotations may differ.
func (s *state) damage(before map[string]baseline, between bool) (found []string) {
	between = between && len(s.automated()) == 0
	for _, a := range s.apps {
		was, known := before[a.name()]
		if !known || a.leftOut || was.revision != a.revision() {
			continue
		}
		if started := a.status("operationState", "startedAt"); started != was.started ||
			a.syncing() {
			found = append(found, fmt.Sprintf("Application %s began a sync at the same revision",
				a.name()))
		}
		if now := a.status("sync", "status"); !between && now != was.sync &&
			was.sync == "Synced" && !s.onlyPaused(a) {
			found = append(found, fmt.Sprintf("Application %s was Synced and is %s at the same "+
				"revision: %s", a.name(), now, some(a.different())))
		}
	}
	for _, a := range s.apps {
		for _, r := range a.resources {
			if r.live != nil && !between && before[a.name()].tracked[r.key] && !r.tracked(a, s) {
				found = append(found, fmt.Sprintf("Argo CD no longer tracks %s of Application %s",
					r.key, a.name()))
			}
		}
	}
	return found
}

// onlyPaused reports whether an Application differs from Git by its paused children alone.
func (s *state) onlyPaused(a *application) bool {
	paused := slices.DeleteFunc(s.children(a), func(c *application) bool { return !c.paused })
	return len(paused) > 0 && !slices.ContainsFunc(a.resources, func(r *resource) bool {
		return r.status == "OutOfSync" && !slices.ContainsFunc(paused, r.is)
	})
}

func (a *application) different() (names []string) {
	for _, r := range a.resources {
		if r.status == "OutOfSync" {
			names = append(names, r.key.String())
		}
	}
	return names
}

// maxNames bounds the names in a line.
const maxNames = 5

func some(names []string) string {
	if more := len(names) - maxNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), more)
	}
	return strings.Join(names, ", ")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func are(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " is"
	}
	return fmt.Sprintf("%d %ss are", n, noun)
}
