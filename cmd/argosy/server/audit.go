package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"argosy.dev/argosy/fleet/audit"
	"argosy.dev/argosy/reconciler/postgres"
)

const (
	sealEvery = time.Second
	// between checks that the log still has the head that this replica saw before, and between log
	// lines with the head
	headEvery = time.Minute
)

// sealer seals the audit log, and notes its head outside of the database: in the log of the
// process, in a metric, and in its memory.
type sealer struct {
	store *postgres.Audit

	mu      sync.Mutex
	seen    audit.Head    // the newest that this replica has seen
	waits   time.Duration // of the oldest entry for its seal
	rewrote bool
}

// registerAudit exports the head of the audit log.
func registerAudit(reg prometheus.Registerer, s *sealer) {
	gauge := func(name, help string, value func() float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "argosy_audit_" + name,
			Help: help}, func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return value()
		}))
	}
	gauge("head_position", "Position of the newest sealed entry of the audit log.",
		func() float64 { return float64(s.seen.Position) })
	gauge("unsealed_seconds", "Age of the oldest entry of the audit log that is not sealed; 0: "+
		"all are.", func() float64 { return s.waits.Seconds() })
	gauge("rewritten", "1 once the audit log has lost an entry that this replica saw sealed.",
		func() float64 {
			if s.rewrote {
				return 1
			}
			return 0
		})
}

// seal seals entries until ctx ends. All replicas may run it.
func (v *Server) seal(ctx context.Context) {
	tick := time.NewTicker(sealEvery)
	defer tick.Stop()
	var noted time.Time
	for {
		if err := v.sealer.store.SealAll(ctx); err != nil && ctx.Err() == nil {
			v.log.Warn("failed to seal the audit log; trying again in a second", "error", err)
		}
		if time.Since(noted) >= headEvery {
			noted = time.Now()
			v.noteHead(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// noteHead compares the log with the head that this replica has noted before, and notes the newest.
func (v *Server) noteHead(ctx context.Context) {
	s := v.sealer
	s.mu.Lock()
	seen := s.seen
	s.mu.Unlock()
	if seen.Position > 0 {
		err := s.store.Contains(ctx, seen)
		if errors.Is(err, postgres.ErrAuditHead) {
			v.log.Error("the audit log has lost an entry that was sealed: it was written again, "+
				"or the database was restored; run `argosy audit verify`", "head", seen.String())
		} else if err != nil {
			return
		}
		s.mu.Lock()
		s.rewrote = s.rewrote || errors.Is(err, postgres.ErrAuditHead)
		s.mu.Unlock()
	}
	head, waits, err := s.store.Head(ctx)
	if err != nil {
		if ctx.Err() == nil {
			v.log.Warn("failed to read the head of the audit log", "error", err)
		}
		return
	}
	s.mu.Lock()
	s.seen, s.waits = head, waits
	s.mu.Unlock()
	if head != seen {
		v.log.Info("audit log sealed", "head", head.String())
	}
}
