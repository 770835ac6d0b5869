package apitest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// RemoveOrphan decides the removal of an orphan.
func (s *Store) RemoveOrphan(_ context.Context, r mirror.OrphanRemoval) (view.Orphan, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.m.Orphans {
		v := &s.m.Orphans[i]
		if v.Engine == r.Engine && v.Kind == r.Kind && v.Name == r.Name && v.UID == r.UID &&
			v.RemovedAt == nil {
			at := time.Now().UTC()
			v.Deletion, v.RemovedBy, v.RemovedAt = r.Deletion, r.By, &at
			return *v, nil
		}
	}
	return view.Orphan{}, mirror.ErrNotFound
}

// RequestMove requests the move of an environment. It begins, is refused or, as a dry run, ends at
// once; the move of an environment that the mirror lacks stays Pending.
func (s *Store) RequestMove(_ context.Context, m mirror.MoveRequest) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.m.Operations {
		if o.Kind == mirror.OperationMove && o.EndedAt == nil && o.Tenant == m.Environment.Tenant {
			return "", mirror.ErrMoving
		}
	}
	o := mirror.Operation{ID: fmt.Sprintf("move-%d", len(s.m.Operations)),
		Kind: mirror.OperationMove, State: mirror.OperationPending,
		Tenant: m.Environment.Tenant, Engine: m.To,
		Subject:     fmt.Sprintf("%s to engine %s", m.ID(), m.To),
		RequestedBy: m.By, Message: m.Note, StartedAt: time.Now().UTC()}
	for _, e := range s.m.Environments {
		switch {
		case e.Tenant != m.Environment.Tenant || e.Name != m.Environment.Name:
		case e.Engine == m.To:
			o.EndedAt, o.State = &o.StartedAt, mirror.OperationFailed
			o.Message = fmt.Sprintf("it is on engine %s already", m.To)
		case m.DryRun:
			o.EndedAt, o.State = &o.StartedAt, mirror.OperationSucceeded
			o.Message = fmt.Sprintf("%d Applications would move from engine %s to %s",
				e.Counts.Applications, e.Engine, m.To)
		default:
			o.State = mirror.OperationRunning
		}
	}
	s.m.Operations = append(s.m.Operations, o)
	return o.ID, nil
}

// PauseDrain implements api.Decider.
func (s *Store) PauseDrain(_ context.Context, p mirror.DrainPause) error {
	return s.setDrain(p, mirror.DrainPaused)
}

// ResumeDrain implements api.Decider.
func (s *Store) ResumeDrain(_ context.Context, p mirror.DrainPause) error {
	return s.setDrain(p, mirror.DrainMoving)
}

func (s *Store) setDrain(p mirror.DrainPause, state mirror.DrainState) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.m.Engines {
		if e := &s.m.Engines[i]; e.Name == p.Engine && e.Drain != nil {
			e.Drain = &mirror.Drain{State: state, Message: "by " + p.By + ": " + p.Reason,
				Since: time.Now().UTC()}
			return nil
		}
	}
	return mirror.ErrNotDraining
}

// PauseRing implements api.Decider.
func (s *Store) PauseRing(_ context.Context, d mirror.RingDecision) error {
	return s.setRing(d, func(r *mirror.Ring) {
		now := time.Now().UTC()
		r.State, r.PausedAt, r.PausedBy, r.PauseReason = mirror.RingPaused, &now, d.By, d.Reason
	})
}

// ResumeRing implements api.Decider.
func (s *Store) ResumeRing(_ context.Context, d mirror.RingDecision) error {
	return s.setRing(d, func(r *mirror.Ring) {
		r.State, r.PausedAt, r.Halted = mirror.RingMoving, nil, ""
		r.PausedBy, r.PauseReason = "", ""
	})
}

// ReturnRing implements api.Decider.
func (s *Store) ReturnRing(_ context.Context, d mirror.RingDecision) error {
	return s.setRing(d, func(r *mirror.Ring) { r.State, r.Halted = mirror.RingHalted, r.Digest })
}

func (s *Store) setRing(d mirror.RingDecision, set func(*mirror.Ring)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.m.Rings {
		if r := &s.m.Rings[i]; r.Name == d.Ring && r.State != mirror.RingDone {
			set(r)
			return nil
		}
	}
	return mirror.ErrNoRing
}

// PausePool implements api.Decider.
func (s *Store) PausePool(_ context.Context, d mirror.PoolDecision) error {
	now := time.Now().UTC()
	return s.setPool(d, func(p *mirror.Pool) {
		p.PausedAt, p.PausedBy, p.PauseReason = &now, d.By, d.Reason
	})
}

// ResumePool implements api.Decider.
func (s *Store) ResumePool(_ context.Context, d mirror.PoolDecision) error {
	return s.setPool(d, func(p *mirror.Pool) {
		p.PausedAt, p.PausedBy, p.PauseReason = nil, "", ""
	})
}

func (s *Store) setPool(d mirror.PoolDecision, set func(*mirror.Pool)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.m.Pools {
		if p := &s.m.Pools[i]; p.Name == d.Pool {
			set(p)
			return nil
		}
	}
	return mirror.ErrNoPool
}

// ReleaseOwner releases the present account of a name.
func (s *Store) ReleaseOwner(_ context.Context, r mirror.OwnerRelease) (view.Owner, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.m.Owners {
		v := &s.m.Owners[i]
		if strings.EqualFold(v.Name, r.Name) && v.NowID == r.ID {
			v.ID, v.NowID, v.ChangedAt, v.PinnedAt = r.ID, 0, nil, time.Now().UTC()
			return *v, nil
		}
	}
	return view.Owner{}, mirror.ErrNotFound
}

// Abandon decides a blocked deletion.
func (s *Store) Abandon(_ context.Context, o mirror.Orphaning) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.m.Applications {
		a := &s.m.Applications[i]
		if (fleet.ApplicationID{Tenant: a.Tenant, Deployment: a.Deployment,
			Environment: a.Environment}) != o.Application || a.UID != o.UID {
			continue
		}
		if !a.DeletionBlocked {
			return mirror.ErrNotBlocked
		}
		a.DeletionBlocked = false
		s.record(view.Event{Kind: "application", Tenant: a.Tenant, Name: a.Name,
			Text: "orphaned by " + o.By})
		return nil
	}
	return mirror.ErrNotFound
}

// Approve releases holds.
func (s *Store) Approve(_ context.Context, a mirror.Approval) (mirror.Approval, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return mirror.Approval{}, s.fail
	}
	a.At = time.Now().UTC()
	s.m.Holds = slices.DeleteFunc(s.m.Holds, func(h mirror.Hold) bool {
		own := h.Reason == mirror.HoldFrozen && h.Tenant == a.Tenant
		return h.Revision == a.Revision && (a.Tenant == "" || own)
	})
	s.record(view.Event{Kind: "hold", Tenant: a.Tenant, Name: string(a.Revision), At: a.At,
		Text: "approved by " + a.By})
	return a, nil
}

// SetStop implements api.Decider.
func (s *Store) SetStop(_ context.Context, stop mirror.Stop, replace bool) (mirror.Stop, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return mirror.Stop{}, s.fail
	}
	s.record(view.Event{Kind: "stop", Name: stop.Name, At: stop.At})
	for i, there := range s.m.Stops {
		if there.Scope == stop.Scope && there.Name == stop.Name {
			if replace {
				s.m.Stops[i] = stop
			}
			return s.m.Stops[i], nil
		}
	}
	s.m.Stops = append(s.m.Stops, stop)
	return stop, nil
}

// ClearStop implements api.Decider.
func (s *Store) ClearStop(_ context.Context, scope mirror.StopScope, name, setBy, _ string) (bool,
	error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.m.Stops)
	if s.fail == nil {
		s.m.Stops = slices.DeleteFunc(s.m.Stops, func(t mirror.Stop) bool {
			return t.Scope == scope && t.Name == name && strings.HasPrefix(t.By, setBy)
		})
	}
	return len(s.m.Stops) < before, s.fail
}

// VerifyToken implements api.Tokens.
func (s *Store) VerifyToken(_ context.Context, plaintext string) (view.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return view.Token{}, s.fail
	}
	given := sha256.Sum256([]byte(plaintext))
	for _, t := range s.m.Tokens {
		kept := sha256.Sum256([]byte(t.Plaintext))
		if subtle.ConstantTimeCompare(given[:], kept[:]) == 1 && t.RevokedAt == nil &&
			(t.ExpiresAt == nil || t.ExpiresAt.After(time.Now())) {
			return t.Token, nil
		}
	}
	return view.Token{}, mirror.ErrNotFound
}

// CreateToken implements api.Tokens.
func (s *Store) CreateToken(_ context.Context, t view.Token) (view.Token, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := t.Tenant == "" || slices.ContainsFunc(s.m.Tenants, func(v view.Tenant) bool {
		return v.Name == t.Tenant
	})
	if s.fail != nil || !known {
		return view.Token{}, "", cmp.Or(s.fail, mirror.ErrNotFound)
	}
	t.ID, t.CreatedAt = fmt.Sprintf("k%d", len(s.m.Tokens)+1), time.Now().UTC()
	plaintext := "argosy_" + t.ID + "_0123456789abcdef0123456789abcdef"
	s.m.Tokens = append(s.m.Tokens, Token{t, plaintext})
	return t, plaintext, nil
}

// RevokeToken implements api.Tokens.
func (s *Store) RevokeToken(_ context.Context, id, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	for i := range s.m.Tokens {
		if s.m.Tokens[i].ID == id {
			now := time.Now().UTC()
			s.m.Tokens[i].RevokedAt = &now
			return nil
		}
	}
	return mirror.ErrNotFound
}

// ListTokens implements api.Tokens.
func (s *Store) ListTokens(_ context.Context, p view.Page) ([]view.Token, string, error) {
	found, next, err := listing(s, func(m *Mirror) []Token { return m.Tokens },
		func(t Token) string { return newest(t.CreatedAt) + t.ID }, func(Token) bool {
			return true
		}, p)
	tokens := make([]view.Token, len(found))
	for i, t := range found {
		tokens[i] = t.Token
	}
	return tokens, next, err
}

// RequestEvacuation implements api.Decider.
func (s *Store) RequestEvacuation(_ context.Context, r mirror.EvacuationRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.m.Engines {
		switch e := &s.m.Engines[i]; {
		case e.Name != r.Engine:
		case e.Reachable:
			return mirror.ErrEngineAnswers
		case e.Evacuation != nil:
			return mirror.ErrEvacuated
		default:
			e.Evacuation = &mirror.Evacuation{State: mirror.EvacuationMoving, By: r.By,
				Reason: r.Reason, Since: time.Now().UTC(), At: time.Now().UTC()}
			return nil
		}
	}
	return mirror.ErrNotFound
}

// RequestFence implements api.Decider.
func (s *Store) RequestFence(_ context.Context, r mirror.EvacuationRequest) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.m.Engines {
		switch e := &s.m.Engines[i]; {
		case e.Name != r.Engine:
		case !e.Reachable:
			return "", mirror.ErrEngineSilent
		case e.Fence != nil:
			return "", mirror.ErrFencing
		default:
			e.Fence = &mirror.Fence{ID: "fence-" + string(e.Name), State: mirror.FenceScaling,
				By: r.By, Reason: r.Reason, Since: time.Now().UTC(), At: time.Now().UTC()}
			if r.DryRun {
				e.Fence.State = mirror.FenceChecking
			}
			return e.Fence.ID, nil
		}
	}
	return "", mirror.ErrNotFound
}

// EndEvacuation implements api.Decider.
func (s *Store) EndEvacuation(_ context.Context, r mirror.EvacuationRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.m.Engines {
		switch e := &s.m.Engines[i]; {
		case e.Name != r.Engine || e.Evacuation == nil && e.Fence == nil:
		case e.Evacuation != nil && e.Evacuation.Away > 0:
			return mirror.ErrEvacuatedAway
		default:
			e.Evacuation, e.Fence = nil, nil
			return nil
		}
	}
	return mirror.ErrNotEvacuated
}

// ForgetEngine implements api.Decider.
func (s *Store) ForgetEngine(_ context.Context, r mirror.EngineForgetting) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.m.Engines {
		switch e := &s.m.Engines[i]; {
		case e.Name != r.Engine || e.Evacuation == nil:
		case e.Reachable:
			return mirror.ErrEngineAnswers
		case e.Evacuation.State != mirror.EvacuationMoved || e.Evacuation.Open > 0:
			return mirror.ErrServes
		case e.Evacuation.ForgottenAt != nil:
			return mirror.ErrForgotten
		default:
			now := time.Now().UTC()
			e.Evacuation.ForgottenAt, e.Evacuation.ForgottenBy = &now, r.By
			e.Evacuation.Unproven, e.Evacuation.Objects = e.Evacuation.Objects, 0
			return nil
		}
	}
	return mirror.ErrNotEvacuated
}

// ForgetCluster implements api.Decider.
func (s *Store) ForgetCluster(_ context.Context, r mirror.ClusterForgetting) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.m.Environments {
		if e.Tenant == r.Tenant && e.Name == r.Environment {
			return 0, mirror.ErrDeclared
		}
	}
	n := 0
	for _, a := range s.m.Applications {
		switch {
		case a.Tenant != r.Tenant || a.Environment != r.Environment:
		case a.Apply != mirror.ApplyDeleting:
			return 0, mirror.ErrServes
		case a.Unreachable == nil:
			return 0, mirror.ErrClusterAnswers
		default:
			n++
		}
	}
	if n == 0 {
		return 0, mirror.ErrNotFound
	}
	return n, nil
}

// ResolveUnproven implements api.Decider.
func (s *Store) ResolveUnproven(_ context.Context, r mirror.UnprovenResolution) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.m.Unproven)
	s.m.Unproven = slices.DeleteFunc(s.m.Unproven, func(v view.Unproven) bool {
		return slices.Contains(r.IDs, v.ID) || r.Engine != "" && v.Engine == r.Engine ||
			r.Environment != "" && v.Tenant == r.Tenant && v.Environment == r.Environment
	})
	n := before - len(s.m.Unproven)
	if n == 0 {
		return 0, mirror.ErrNotFound
	}
	return n, nil
}
