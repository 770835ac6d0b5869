package api

import (
	"context"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/freeze"
	"argosy.dev/argosy/fleet/view"
)

// freezes adds when each freeze ends, or begins next.
func (s *Server) freezes(ctx context.Context, scope view.Scope, filter view.Filter,
	page view.Page) ([]view.Freeze, string, error) {
	all, next, err := s.reader.Freezes(ctx, scope, filter, page)
	now := time.Now()
	for i := range all {
		if freeze.ParseSchedule(all[i].Schedule) != nil {
			continue // of another version of Argosy: it is held, without an end
		}
		of := fleet.Freeze{Name: all[i].Name, Schedule: all[i].Schedule, Duration: all[i].Duration,
			TimeZone: all[i].TimeZone}
		if until, active := freeze.Active(of, now); active {
			all[i].Until = &until
		}
		if begins := freeze.Next(of, now); !begins.IsZero() {
			all[i].Next = &begins
		}
	}
	return all, next, err
}
