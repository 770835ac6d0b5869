package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"argosy.dev/argosy/fleet"
)

// ineligibility is the reason why an engine is ineligible for an item.
type ineligibility uint8

const (
	free ineligibility = iota
	otherRegion
	regionRefused
	othersEngine
	notDedicated
	notAlone
	labels
	tainted
	cordoned
	draining
	noCapacity
	conflict
	tooSmall
	fullApplications
	fullEnvironments
)

// constraint returns the first constraint that makes the engine ineligible, independent of loads.
func constraint(item Item, e *Engine) ineligibility {
	s, want := &e.Spec, &item.Constraints
	switch {
	case s.Region != item.Region:
		return otherRegion
	case len(want.Regions) > 0 && !slices.Contains(want.Regions, s.Region):
		return regionRefused
	case len(s.DedicatedTo) > 0 && !slices.Contains(s.DedicatedTo, item.Environment.Tenant):
		return othersEngine
	case (want.Dedicated || want.Alone) && len(s.DedicatedTo) == 0:
		return notDedicated
	case want.Alone && len(s.DedicatedTo) > 1:
		return notAlone
	case want.EngineSelector != nil && !want.EngineSelector.Matches(e.Labels):
		return labels
	case untolerated(want.Tolerations, s.Taints) != nil:
		return tainted
	case s.State == fleet.EngineCordoned:
		return cordoned
	case s.State == fleet.EngineDraining:
		return draining
	}
	return free
}

// full compares the item with the engine's remaining capacity.
func full(item *Item, e *Engine) ineligibility {
	c := &e.Spec.Capacity
	switch {
	case c.Environments <= 0 || c.Applications <= 0:
		return noCapacity
	case item.Applications > c.Applications:
		return tooSmall
	case e.Load.Environments+1 > c.Environments:
		return fullEnvironments
	case e.Load.Applications+item.Applications > c.Applications:
		return fullApplications
	}
	return free
}

func untolerated(tolerated, taints []fleet.Taint) *fleet.Taint {
	for i := range taints {
		if !slices.Contains(tolerated, taints[i]) {
			return &taints[i]
		}
	}
	return nil
}

// text describes the reason. It names no tenant but the item's own, because that tenant reads it.
func (b ineligibility) text(item Item, e *Engine) string {
	switch b {
	case otherRegion:
		return fmt.Sprintf("is in region %s, the environment in %s", e.Spec.Region, item.Region)
	case regionRefused:
		return fmt.Sprintf("is in region %s; the tenant may only be served in %s", e.Spec.Region,
			strings.Join(item.Constraints.Regions, ", "))
	case othersEngine:
		return "is dedicated to other tenants"
	case notDedicated:
		return "is shared; the tenant asks for a dedicated engine"
	case notAlone:
		return "is dedicated to other tenants too; the tenant asks for an engine of its own"
	case labels:
		return "lacks the labels that the tenant's engineSelector asks for: " +
			item.Constraints.EngineSelector.String()
	case tainted:
		t := untolerated(item.Constraints.Tolerations, e.Spec.Taints)
		return "has the taint " + strings.TrimSuffix(t.Key+"="+t.Value, "=") +
			", which the tenant does not tolerate"
	case cordoned:
		return "is cordoned and takes nothing new"
	case draining:
		return "is draining and takes nothing new"
	case noCapacity:
		return "declares no capacity"
	case tooSmall:
		return fmt.Sprintf("is too small for %s: its capacity is %d",
			count(item.Applications, "application"), e.Spec.Capacity.Applications)
	case fullApplications:
		return fmt.Sprintf("has no room for %s: %d of %d are taken",
			count(item.Applications, "application"), e.Load.Applications,
			e.Spec.Capacity.Applications)
	case fullEnvironments:
		return fmt.Sprintf("has no room for another environment: %d of %d are taken",
			e.Load.Environments, e.Spec.Capacity.Environments)
	}
	return ""
}

// words caches the texts of an eligible engine, which depend on its load alone. Empty until first
// used.
type words struct {
	loaded string
	above  string
}

const aboveBound = ", above 1.25 times the average"

// eligibleText returns the text of an engine that is eligible for the item, and whether it is below
// the bound.
func (r *round) eligibleText(i int) (text string, below bool) {
	text, below = r.loaded(i), r.belowBound(i)
	if below {
		return text, true
	}
	w := &r.words[i]
	if w.above == "" {
		w.above = text + aboveBound
	}
	return w.above, false
}

// ineligibleText returns the text of an ineligible engine.
func (r *round) ineligibleText(i int, b ineligibility) string {
	switch {
	case b == conflict:
		return r.conflicts[i]
	case r.class.ineligible[i] == free: // it is full, which depends on loads and the item's size
		return b.text(r.item, &r.engines[i])
	}
	if r.class.texts == nil {
		r.class.texts = make([]string, len(r.engines))
	}
	if r.class.texts[i] == "" {
		r.class.texts[i] = b.text(r.item, &r.engines[i])
	}
	return r.class.texts[i]
}

// loaded describes an engine's load.
func (f *Fleet) loaded(i int) string {
	if f.words == nil {
		f.words = make([]words, len(f.engines))
	}
	w := &f.words[i]
	if w.loaded == "" {
		load, capacity := f.engines[i].Load, f.engines[i].Spec.Capacity
		b := of(make([]byte, 0, 96), load.Applications, capacity.Applications)
		b = append(b, " applications, "...)
		w.loaded = string(
			append(of(b, load.Environments, capacity.Environments), " environments"...))
	}
	return w.loaded
}

func of(b []byte, n, all int) []byte {
	return strconv.AppendInt(append(strconv.AppendInt(b, int64(n), 10), " of "...), int64(all), 10)
}

// reason describes the choice in one sentence: the number of eligible engines, and of those at or
// above the bound. Tenants read it, so it contains no engine's load and no other engine's name:
// those are in the alternatives, which only the platform sees.
func reason(eligible, above int) string {
	switch {
	case eligible == 1:
		return "the only engine that may serve it"
	case above == eligible:
		return "the least loaded of " + strconv.Itoa(eligible) + " engines that may serve it"
	case above > 0:
		return "the best score of " + strconv.Itoa(eligible-above) +
			" engines that may serve it and are below the bound (" + strconv.Itoa(above) +
			" above it)"
	}
	return "the best score of " + strconv.Itoa(eligible) + " engines that may serve it"
}

// unloaded returns why an engine is ineligible for the item, without the engine's load.
func (r *round) unloaded(i int) string {
	switch b := r.ineligibility(i); b {
	case fullApplications:
		return "has no room for " + count(r.item.Applications, "application")
	case fullEnvironments:
		return "has no room for another environment"
	default:
		return r.ineligibleText(i, b)
	}
}

// tooLarge returns the figures of an item that is larger than the capacity of every engine that may
// serve it; nil for any other item. A cordoned engine that is large enough counts: it may serve the
// item once it is uncordoned.
func (r *round) tooLarge() *fleet.TooLarge {
	found := fleet.TooLarge{Applications: r.item.Applications}
	for i := range r.engines {
		capacity := r.engines[i].Spec.Capacity.Applications
		switch r.ineligibility(i) {
		case tooSmall:
			found.Engines++
			found.LargestCapacity = max(found.LargestCapacity, capacity)
		case cordoned:
			if r.item.Applications <= capacity {
				return nil
			}
		case free, fullApplications, fullEnvironments:
			return nil
		}
	}
	if found.Engines == 0 {
		return nil
	}
	return &found
}

// hopeless explains why no engine is eligible for the item, the most frequent reason first; of an
// item that is too large, its size. Because tenants read it, it names no engine and no load.
func (r *round) hopeless(large *fleet.TooLarge) string {
	if len(r.engines) == 0 {
		return "no engine is declared; add one under fleet/engines/"
	}
	byReason, small := map[string]int{}, r.small()
	for i := range r.engines {
		if r.ineligibility(i) == tooSmall {
			byReason[small]++
		} else {
			byReason[r.unloaded(i)]++
		}
	}
	lead, parts := "no engine may serve it: ", []string{}
	if large != nil {
		lead = "it is too large for every engine that may take it: "
		parts = append(parts, eachOf(byReason[small], small))
		delete(byReason, small)
	}
	reasons := slices.SortedFunc(maps.Keys(byReason), func(a, b string) int {
		return cmp.Or(byReason[b]-byReason[a], strings.Compare(a, b))
	})
	most := min(3-len(parts), len(reasons))
	for _, s := range reasons[:most] {
		parts = append(parts, eachOf(byReason[s], s))
	}
	if len(reasons) > most {
		parts = append(parts, fmt.Sprintf("and %d other reasons", len(reasons)-most))
	}
	return lead + strings.Join(parts, "; ")
}

func eachOf(n int, reason string) string {
	if n == 1 {
		return "one " + reason
	}
	return "each of " + strconv.Itoa(n) + " " + reason
}

// small returns the common reason of the engines that are too small for the item.
func (r *round) small() string {
	largest := 0
	for i := range r.engines {
		if r.ineligibility(i) == tooSmall {
			largest = max(largest, r.engines[i].Spec.Capacity.Applications)
		}
	}
	return fmt.Sprintf("is too small for %s, with a capacity of at most %d",
		count(r.item.Applications, "application"), largest)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
