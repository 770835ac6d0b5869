package catalog

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// work is one round of judging. Everything that may be good is taken over as it is judged,
// dependencies first, and what depends on it is judged after; nothing that was taken over is given
// back within the round. A file may be good only because of another one of its commit (a deployment
// leaves a namespace that its environment drops), so a removal is believed when no head names what
// goes, and the dropping of a namespace always; both are verified at the end. Those that do not
// hold are denied, and the next round is judged without them.
type work struct {
	st      *state
	denied  map[fleet.Key]fleet.Problem
	queue   [ranks]map[fleet.Key]bool
	checked map[fleet.Key]bool
	taken   map[fleet.Key]bool // keys whose effective state changed
	idle    map[fleet.Key]bool // judged again, though nothing that they stand on changed
	bench   bench
	guess   map[string]string // did-you-mean for tenants, which is asked once per file of a folder
}

// maxRounds bounds what a crafted chain of narrowings that need each other can cost. After it,
// every removal and narrowing in the tenants concerned waits.
const maxRounds = 8

func (s *Changeset) settle() {
	denied := maps.Clone(s.refused)
	if denied == nil {
		denied = map[fleet.Key]fleet.Problem{}
	}
	inputs, retried := merge(s.in), map[fleet.Key]bool{}
	for round := 1; ; round++ {
		w := &work{st: s.base.st.over(), denied: denied, checked: map[fleet.Key]bool{},
			taken: map[fleet.Key]bool{}, guess: map[string]string{},
			idle: map[fleet.Key]bool{}, bench: s.bench()}
		w.load(inputs, s.again)
		w.run()
		broken := w.verify()
		if len(broken) > 0 {
			if round >= maxRounds {
				w.denyTenants(broken)
			}
			maps.Copy(denied, broken)
			continue
		}
		if round >= maxRounds || !w.retry(s.refused, retried) {
			s.finish(w)
			return
		}
	}
}

// retry takes back denials whose cause went with another denial, once each, and reports whether
// there are any.
func (w *work) retry(refused map[fleet.Key]fleet.Problem, retried map[fleet.Key]bool) bool {
	found := false
	for k := range w.denied {
		if _, fixed := refused[k]; fixed || retried[k] || !w.unfounded(w.st.entries.get(k)) {
			continue
		}
		retried[k], found = true, true
		delete(w.denied, k)
	}
	return found
}

// finish reads the outcome off the last round, while the base is still what it was.
func (s *Changeset) finish(w *work) {
	s.st = w.st
	s.st.pending = w.unsettled()
	w.forgetIdle()
	s.checked = slices.SortedFunc(maps.Keys(w.checked), compareKeys)
	for _, k := range s.checked {
		e, old := w.st.entries.get(k), w.st.under.entries.get(k)
		if before, after := effectiveOf(old), effectiveOf(e); before != after {
			s.changes = append(s.changes, Change{Key: k, Before: before, After: after})
		}
		switch {
		case e.quarantined() && !sameQuarantine(e, old):
			s.quarantined = append(s.quarantined, e.public())
			s.problems = append(s.problems, e.quarantine...)
		case old.quarantined() && !e.quarantined():
			s.cleared = append(s.cleared, k)
		}
		if e != nil {
			s.problems = append(s.problems, w.warnings(e)...)
		}
	}
	sortProblems(s.problems)
}

// merge sorts the inputs and makes one of those that share a key: a removal gives way to what is
// there, two that are there are a mistake.
func merge(in []Input) []Input {
	in = slices.Clone(in)
	slices.SortStableFunc(in, func(a, b Input) int {
		return cmp.Or(compareKeys(a.Key, b.Key), count(b.Removed)-count(a.Removed),
			strings.Compare(a.Path, b.Path))
	})
	var out []Input
	for _, i := range in {
		last := len(out) - 1
		switch {
		case last < 0 || out[last].Key != i.Key:
			out = append(out, i)
		case i.Removed:
		case out[last].Path == i.Path || out[last].Removed:
			out[last] = i
		default:
			out[last].Declaration = nil
			out[last].Problems = append(slices.Clone(out[last].Problems), fleet.Problem{
				Key: i.Key, Path: out[last].Path, Severity: fleet.SeverityError,
				Code: codeDuplicate, Message: i.Key.String() + " is declared in " + i.Path +
					" as well", Fix: "remove one of the two files"})
		}
	}
	return out
}

// load sets every head before anything is judged: what a commit says as a whole decides what may
// go.
func (w *work) load(in []Input, again []fleet.Key) {
	for _, i := range in {
		old := w.st.entries.get(i.Key)
		if i.Removed && old == nil {
			continue
		}
		e := &entry{key: i.Key, path: i.Path, blob: i.Blob, effective: effectiveOf(old),
			head: i.Declaration, removed: i.Removed, notes: i.Problems}
		switch {
		case i.Removed:
			e.head, e.notes = nil, nil
		case i.Declaration == nil || len(onlyErrors(i.Problems)) > 0:
			e.head, e.notes = nil, undecodedNotes(i)
		}
		if old != nil {
			e.head, e.quarantine = same(e.head, e.effective), old.quarantine
		}
		w.st.put(i.Key, e)
		w.wake(old, e)
		w.enqueue(i.Key)
	}
	for _, k := range again {
		w.enqueue(k)
	}
	for k := range w.st.under.pending {
		if r := rank(k.Kind); !w.queue[r][k] && w.st.entries.get(k) != nil {
			w.enqueue(k)
			w.idle[k] = true
		}
	}
}

// forgetIdle leaves what was judged again for nothing as it was, down to the words: another of
// several reasons may have come first.
func (w *work) forgetIdle() {
	for k := range w.idle {
		e, old := w.st.entries.get(k), w.st.under.entries.get(k)
		if effectiveOf(e) != effectiveOf(old) || e == nil || !slices.Equal(e.advice, old.advice) ||
			!slices.EqualFunc(e.quarantine, old.quarantine, func(a, b fleet.Problem) bool {
				return a.Code == b.Code && a.Field == b.Field
			}) {
			continue
		}
		w.st.put(k, old)
		delete(w.checked, k)
	}
}

// undecodedNotes makes sure that a file that did not decode has a reason.
func undecodedNotes(i Input) []fleet.Problem {
	if len(onlyErrors(i.Problems)) > 0 {
		return i.Problems
	}
	return append(slices.Clone(i.Problems), fleet.Problem{Key: i.Key, Path: i.Path,
		Severity: fleet.SeverityError, Code: codeUndecoded,
		Message: "the file did not decode, and no reason is known",
		Fix:     "run argosy validate on the file"})
}

func (w *work) enqueue(k fleet.Key) {
	delete(w.idle, k)
	r := rank(k.Kind)
	if w.queue[r] == nil {
		w.queue[r] = map[fleet.Key]bool{}
	}
	w.queue[r][k] = true
}

// run judges what is queued, always the lowest rank first, until nothing is. It ends: a key is
// queued by a change of another key's effective state, and that changes once in a round at most.
func (w *work) run() {
	for r := 0; r < ranks; {
		batch := w.queue[r]
		if len(batch) == 0 {
			r++
			continue
		}
		w.queue[r] = nil
		for _, k := range slices.SortedFunc(maps.Keys(batch), compareKeys) {
			if e := w.st.entries.get(k); e != nil {
				w.take(e)
			}
		}
		r = w.lowest()
	}
}

func (w *work) lowest() int {
	for r := range w.queue {
		if len(w.queue[r]) > 0 {
			return r
		}
	}
	return ranks
}

// take judges one key and takes its head over when it is good.
func (w *work) take(old *entry) {
	w.checked[old.key] = true
	e := *old
	problems := sortProblems(w.judge(old))
	e.quarantine, e.advice = limited(onlyErrors(problems)), nil
	var next *entry
	switch {
	case len(e.quarantine) > 0:
		next = &e
	case !e.removed:
		e.effective = e.head
		e.advice = limited(problems)
		next = &e
	}
	used := w.st.usedBy(old.key.Tenant)
	w.st.putCounting(old.key, next)
	switch {
	case next == nil || next.effective != old.effective:
		w.taken[old.key] = true
		w.wake(old, next)
		w.wakeFreed(old.key.Tenant, used)
	case barred(old) != barred(next):
		w.wakeRivals(next)
	}
}

// judge is why the head of a key may not take effect; none means that it does.
func (w *work) judge(e *entry) []fleet.Problem {
	if p, denied := w.denied[e.key]; denied {
		return []fleet.Problem{p}
	}
	switch {
	case e.removed:
		return w.checkRemoval(e)
	case e.head == nil:
		return w.withHosts(onlyErrors(e.notes))
	}
	problems := append(w.checkOwn(e, e.head), w.checkShared(e)...)
	if e.key.Tenant != "" {
		problems = append(problems, w.checkPolicies(e, problems)...)
	}
	if len(onlyErrors(problems)) == 0 {
		// told last: it does not matter to a file that cannot take effect anyway
		problems = append(problems, w.checkQuota(e)...)
	}
	return problems
}

// limited keeps a file that is wrong a thousand times from filling the mirror.
func limited(problems []fleet.Problem) []fleet.Problem {
	const most = 50
	if len(problems) <= most {
		return problems
	}
	if last := problems[len(problems)-1]; last.Code == fleet.CodeMoreProblems {
		return append(slices.Clone(problems[:most]), last)
	}
	return problems[:most]
}

func sameQuarantine(e, old *entry) bool {
	return e.quarantined() && old.quarantined() && slices.Equal(e.quarantine, old.quarantine) &&
		e.blob == old.blob && e.path == old.path &&
		e.removed == old.removed && (e.effective == nil) == (old.effective == nil)
}
