package rings

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// Fresh is how old the last comparison of an engine may be when its ring begins to change an
// engine.
const Fresh = 10 * time.Minute

// shadowed returns the engines whose Applications are compared under the declared version before
// they get it. An engine that has no Argo CD, that keeps its version, or whose Argo CD does not run
// has nothing to compare with, and neither has an agent alone. The agent of an engine behind a
// firewall compares; one of an earlier version leaves the shadow Failed.
func (d decision) shadowed(behind []fleet.EngineName) (all []fleet.EngineName) {
	if d.Gates.SkipShadow {
		return nil
	}
	for _, e := range behind {
		i, ok := d.Known[e]
		if ok && i.State == mirror.InstanceRunning && i.Version != d.Version && !d.AgentOnly[e] {
			all = append(all, e)
		}
	}
	return all
}

// judgeShadows reports whether the ring may change an engine: the Applications of all of them were
// compared, and no more than the permitted differences lack an approval. Otherwise it sets the
// state.
func (d decision) judgeShadows(s *mirror.RingStep) bool {
	waits, fails := "", ""
	pending, applications := 0, 0
	var tenants []string
	for _, e := range s.Shadows {
		i := d.Known[e]
		shadow := i.Shadow
		switch {
		case !i.Followed:
			waits = "engine " + string(e) + " is not reachable"
		case shadow == nil || shadow.Digest != s.Digest || !shadow.Active():
			waits = "engine " + string(e) + " gets a repo-server of " + d.Version
		case shadow.State == mirror.ShadowFailed:
			fails = "engine " + string(e) + " cannot render with " + d.Version + ": " +
				shadow.Message
		case shadow.State != mirror.ShadowCompared:
			waits = strings.TrimSuffix("engine "+string(e)+" renders its Applications with "+
				d.Version+": "+shadow.Message, ": ")
		case shadow.ComparedAt == nil || d.now.Sub(*shadow.ComparedAt) > Fresh:
			waits = "engine " + string(e) + " has not compared its Applications recently"
		default:
			pending += shadow.Pending
			applications += shadow.Applications
			for _, t := range shadow.Tenants {
				tenants = append(tenants, string(t))
			}
		}
	}
	switch {
	case fails != "":
		s.State, s.Message = mirror.RingUnavailable, fails
	case waits != "":
		s.State, s.Message = mirror.RingRendering, waits
	case pending > d.Gates.Differences:
		s.State = mirror.RingDiffers
		s.Message = fmt.Sprintf("%s renders %d of %d Applications differently, of %s; their owners "+
			"approve: `argosy rings differences %s`", d.Version, pending, applications,
			some(tenants), d.Name)
	default:
		return true
	}
	return false
}

// some are the first tenants, sorted.
func some(tenants []string) string {
	const most = 5
	slices.Sort(tenants)
	tenants = slices.Compact(tenants)
	if more := len(tenants) - most; more > 0 {
		return fmt.Sprintf("%s and %d more tenants", strings.Join(tenants[:most], ", "), more)
	}
	return strings.Join(tenants, ", ")
}

// unneeded returns the engines of the ring whose shadow the step does not want.
func (d decision) unneeded(s mirror.RingStep) (all []fleet.EngineName) {
	for _, e := range d.Engines {
		if shadow := d.Known[e].Shadow; shadow != nil && shadow.Active() &&
			!slices.Contains(s.Shadows, e) {
			all = append(all, e)
		}
	}
	return all
}

// shadowsChange reports whether the step begins or ends a shadow.
func (d decision) shadowsChange(s mirror.RingStep) bool {
	return len(s.EndShadows) > 0 || slices.ContainsFunc(s.Shadows, func(e fleet.EngineName) bool {
		shadow := d.Known[e].Shadow
		return shadow == nil || !shadow.Active() || shadow.Digest != s.Digest
	})
}
