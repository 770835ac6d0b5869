package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"

	"argosy.dev/argosy/fleet"
)

// hash returns the same for plans with the same changes, whatever their revisions, times and
// messages. Every part is preceded by its length.
func (p *Plan) hash() string {
	h := hasher{sha256.New()}
	waiting := 0
	if p.RevisionHold != nil {
		waiting = 1
	}
	h.list("waiting", waiting)
	if p.RevisionHold != nil {
		h.add(string(p.RevisionHold.Reason))
		for _, k := range p.RevisionHold.Items {
			h.object(k)
		}
	}
	h.list("declarations", len(p.Declarations))
	for _, c := range p.Declarations {
		blob := "removed"
		if c.After != nil {
			blob = c.After.Blob
		}
		h.add(c.Key.String(), blob)
	}
	h.list("quarantined", len(p.Quarantined))
	for _, q := range p.Quarantined {
		h.add(q.Key.String(), q.Blob, fmt.Sprint(q.Removed))
		for _, problem := range q.Problems {
			h.add(problem.Code, problem.Field)
		}
	}
	h.list("cleared", len(p.Cleared))
	for _, k := range p.Cleared {
		h.add(k.String())
	}
	h.list("placements", len(p.Placements)+len(p.Unplaced))
	for _, pl := range p.Placements {
		h.add(pl.ID().String(), string(pl.Engine), fmt.Sprint(pl.Misplaced != ""))
	}
	for _, id := range p.Unplaced {
		h.add(id.String())
	}
	p.hashRows(h)
	h.list("syncs", len(p.Syncs)+len(p.SyncHolds)+len(p.EndedSyncHolds))
	for _, s := range p.Syncs {
		h.add(s.ID)
	}
	for _, s := range p.SyncHolds {
		h.add(s.Application.String(), string(s.SyncRun), s.TargetRevision)
	}
	for _, id := range p.EndedSyncHolds {
		h.add(id.String())
	}
	return hex.EncodeToString(h.Sum(nil))
}

// recordKey returns the same for plans with the same record, so that recording one twice has one
// effect. It covers the hash, the problems and the planner's memory, but no time since when
// something waits: a plan that is computed again because the answer of its record was lost has
// another time.
func (p *Plan) recordKey() string {
	if p.outcome.memory == nil && len(p.Problems)+len(p.Checked)+len(p.Rollouts)+
		len(p.Rollbacks) == 0 {
		return p.Hash
	}
	h := hasher{sha256.New()}
	h.add(p.Hash)
	h.list("checked", len(p.Checked))
	for _, k := range p.Checked {
		h.add(k.String())
	}
	h.list("problems", len(p.Problems))
	for _, problem := range p.Problems {
		h.add(problem.Key.String(), problem.Code, problem.Field, problem.Message)
	}
	h.list("rollbacks", len(p.Rollbacks))
	for _, id := range p.Rollbacks {
		h.add(id)
	}
	h.list("rollouts", len(p.Rollouts))
	for _, r := range p.Rollouts {
		h.add(r.ID, string(r.State), r.Message, fmt.Sprint(r.Decided))
		for _, w := range r.Waves {
			h.add(string(w.State), w.ApprovedBy)
		}
		for _, m := range r.Members {
			h.add(string(m.State), m.Message, fmt.Sprint(m.BadSince != nil, m.Since.UnixNano()))
		}
	}
	h.add(string(p.outcome.timeless))
	return hex.EncodeToString(h.Sum(nil))
}

func (p *Plan) hashRows(h hasher) {
	h.list("rows", len(p.Rows))
	for _, c := range p.Rows {
		h.object(c.Row.Key)
		h.add(string(c.Action), c.Row.Manifest.Hash, string(c.Row.Deletion))
		if c.Row.Credential != nil {
			h.add(c.Row.Credential.Name, c.Row.Credential.Sealed)
		}
	}
	h.list("freed", len(p.Freed))
	for _, k := range p.Freed {
		h.object(k)
	}
}

type hasher struct{ hash.Hash }

func (h hasher) list(what string, n int) { h.add(what, fmt.Sprint(n)) }

func (h hasher) object(k fleet.ObjectKey) { h.add(string(k.Engine), string(k.Kind), k.Name) }

func (h hasher) add(parts ...string) {
	for _, s := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(s), s)
	}
}
