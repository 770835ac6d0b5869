package api

import (
	"net/http"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

type (
	rolloutsView struct {
		frame
		Rollouts []rolloutStrip
		Next     string
	}
	rolloutView struct {
		frame
		rolloutStrip
	}
	freezesView struct {
		frame
		Freezes []view.Freeze
		Holds   []mirror.Hold
	}
)

// rolloutStrip is a rollout with its Applications by wave.
type rolloutStrip struct {
	mirror.Rollout
	Strip []waveOfStrip
}

type waveOfStrip struct {
	mirror.RolloutWave
	Number  int
	Healthy int // Applications with the change
	Members []mirror.RolloutMember
}

// stripOf gives each wave of a rollout its Applications.
func stripOf(r mirror.Rollout) rolloutStrip {
	strip := rolloutStrip{Rollout: r, Strip: make([]waveOfStrip, len(r.Waves))}
	for i, w := range r.Waves {
		strip.Strip[i] = waveOfStrip{RolloutWave: w, Number: i + 1}
	}
	for _, m := range r.Members {
		if m.Wave < 0 || m.Wave >= len(strip.Strip) {
			continue
		}
		w := &strip.Strip[m.Wave]
		w.Members = append(w.Members, m)
		if m.State == mirror.MemberHealthy {
			w.Healthy++
		}
	}
	return strip
}

const fewRollouts = 30 // of a page: each has up to some hundred Applications

// rolloutsPage shows rollouts, the newest first, each as a strip of its waves.
func (s *website) rolloutsPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	q := r.URL.Query()
	v := rolloutsView{frame: s.framed(r, token, "Rollouts")}
	found, next, err := s.reader.Rollouts(r.Context(), token.Scope(),
		view.Filter{Tenant: named[fleet.TenantName](q, "tenant")},
		view.Page{Limit: fewRollouts, After: cursor(q.Get("after"))})
	for _, one := range found {
		v.Rollouts = append(v.Rollouts, stripOf(one))
	}
	if v.Next = next; next != "" {
		q.Set("after", next)
		v.Next = "?" + q.Encode()
	}
	s.show(w, r, token, "rollouts", "rollouts", v, err)
}

// rolloutPage shows the last rollout of one deployment with each of its Applications.
func (s *website) rolloutPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	id := fleet.DeploymentID{Tenant: pathName[fleet.TenantName](r, "tenant"),
		Name: pathName[fleet.DeploymentName](r, "deployment")}
	g := &gather{ctx: r.Context(), scope: token.Scope()}
	v := rolloutView{frame: s.framed(r, token, "Rollout "+id.String(),
		crumb{"Rollouts", "/rollouts"}, tenantCrumb(id.Tenant))}
	v.rolloutStrip = stripOf(the(g, s.reader.Rollouts, view.Filter{Tenant: id.Tenant,
		Deployment: id.Name}))
	s.show(w, r, token, "rollout", "rollout of "+id.String(), v, g.err)
}

// freezesPage shows the freezes, and what waits for a release.
func (s *website) freezesPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	g := &gather{ctx: r.Context(), scope: token.Scope()}
	v := freezesView{frame: s.framed(r, token, "Freezes")}
	v.Freezes = many(g, s.freezes, view.Filter{}, manyItems)
	v.Holds = many(g, s.reader.Holds, view.Filter{}, manyItems)
	s.show(w, r, token, "freezes", "freezes", v, g.err)
}
