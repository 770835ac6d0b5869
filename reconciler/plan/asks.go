package plan

import (
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/applied"
)

// Asks are the queries of a metric in the environments of a wave.
type Asks struct {
	Server  *fleet.Prometheus // nil: there is none, or the metric is not declared
	Metric  fleet.Metric
	Queries map[fleet.EnvironmentName]string
}

// Asks returns the queries of a metric, by the applied declarations: the platform may correct a
// query while a wave waits for it.
func (w *AppliedState) Asks(r mirror.Rollout, key mirror.MetricKey) Asks {
	return read(w, func(s *applied.State) Asks {
		server := s.Catalog.Fleet().Prometheus
		metric, declared := server.Metric(key.Name)
		if !declared {
			return Asks{}
		}
		out := Asks{Server: server, Metric: metric, Queries: map[fleet.EnvironmentName]string{}}
		dep := s.Catalog.Deployment(r.Of())
		for _, m := range r.Members {
			env := fleet.EnvironmentID{Tenant: r.Tenant, Name: m.Environment}
			in := s.Catalog.Environment(env)
			if m.Wave != key.Wave || dep == nil || in == nil {
				continue
			}
			target, _ := dep.TargetIn(in, s.Catalog.Defaults(r.Tenant))
			out.Queries[m.Environment] = metric.Ask(applied.ApplicationID(r.Of(), env),
				target.Namespace)
		}
		return out
	})
}
