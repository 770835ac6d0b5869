package postgres

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet/audit"
	"argosy.dev/argosy/fleet/view"
)

// auditStep adds an entry in the transaction of what it records. The number, the time, the UID of
// the tenant and the seal are the store's. Without an Identity in the entry it takes that of ctx.
func auditStep(ctx context.Context, e audit.Entry) step {
	if e.Identity == (audit.Identity{}) {
		e.Identity = audit.IdentityOf(ctx)
	}
	return step{`
		INSERT INTO audit (actor, action, subject, tenant, tenant_uid, engine, revision, pull, operation, outcome, detail,
			created, changed, deleted, held, problems, token, session, issuer, account)
		VALUES ($1, $2, $3, $4, live_tenant($4), $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)`,
		[]any{text(e.Actor), e.Action, text(e.Subject), string(e.Tenant), string(e.Engine),
			string(e.Revision), e.Pull, e.Operation, e.Outcome, message(e.Detail), e.Created,
			e.Changed, e.Deleted, e.Held, e.Problems, text(e.Token), text(e.Session),
			text(e.Issuer), text(e.Account)}}
}

// Audit is the audit log.
type Audit struct{ *database }

// sealBatch bounds the entries that one transaction seals.
const sealBatch = 500

// wholeLog is the owner of the head of the whole log.
const wholeLog = "00000000-0000-0000-0000-000000000000"

const auditColumns = `a.n, a.at, a.actor, a.token, a.session, a.issuer, a.account, a.action, a.subject, a.tenant, coalesce(a.tenant_uid::text, ''),
	a.engine, a.revision, a.pull, a.operation, a.outcome, a.detail, a.created, a.changed, a.deleted, a.held, a.problems,
	coalesce(a.format, 0), coalesce(a.position, 0), a.previous, coalesce(a.tenant_position, 0), a.tenant_previous, a.hash`

func scanEntry(row pgx.CollectableRow) (audit.Entry, error) {
	var e audit.Entry
	var previous, tenantPrevious, hash []byte
	err := row.Scan(&e.N, &e.At, &e.Actor, &e.Token, &e.Session, &e.Issuer, &e.Account, &e.Action,
		&e.Subject, &e.Tenant, &e.TenantUID, &e.Engine, &e.Revision, &e.Pull, &e.Operation,
		&e.Outcome, &e.Detail, &e.Created, &e.Changed, &e.Deleted, &e.Held, &e.Problems, &e.Format,
		&e.Position, &previous, &e.TenantPosition, &tenantPrevious, &hash)
	e.Previous, e.TenantPrevious = hexHash(previous), hexHash(tenantPrevious)
	e.Hash = hexHash(hash)
	return e, err
}

func hexHash(b []byte) audit.Hash { return audit.Hash(hex.EncodeToString(b)) }

// rawHash is empty for a text that is no hash: only hashes that Append made reach it.
func rawHash(h audit.Hash) []byte {
	raw, err := hex.DecodeString(string(h))
	if err != nil {
		return []byte{}
	}
	return raw
}

// Seal gives up to 500 committed entries their places in the chain, and returns how many, with the
// head if it sealed any. Any number of replicas may call it: one seals, and for the others there is
// nothing to seal. A decision never waits for it.
func (s *Audit) Seal(ctx context.Context) (head audit.Head, sealed int, err error) {
	var waiting bool
	if err := s.again(ctx, func() error {
		return s.work.QueryRow(ctx,
			`SELECT EXISTS (SELECT FROM audit WHERE hash IS NULL)`).Scan(&waiting)
	}); err != nil || !waiting {
		return head, 0, wrap(err, "seal the audit log")
	}
	err = s.transact(ctx, func(tx pgx.Tx) error {
		head, sealed, err = seal(ctx, tx)
		return err
	})
	return head, sealed, wrap(err, "seal the audit log")
}

// SealAll seals until no entry is left that was committed before.
func (s *Audit) SealAll(ctx context.Context) error {
	for {
		if _, sealed, err := s.Seal(ctx); err != nil || sealed < sealBatch {
			return err
		}
	}
}

func seal(ctx context.Context, tx pgx.Tx) (audit.Head, int, error) {
	heads, err := lockHeads(ctx, tx, []string{wholeLog})
	if err != nil || len(heads) == 0 { // another replica seals
		return audit.Head{}, 0, err
	}
	entries, err := read(ctx, tx, scanEntry, `SELECT `+auditColumns+
		` FROM audit a WHERE a.hash IS NULL ORDER BY a.at, a.n LIMIT $1`, sealBatch)
	if err != nil || len(entries) == 0 {
		return heads[wholeLog], 0, err
	}
	owners := map[string]bool{}
	for _, e := range entries {
		if e.TenantUID != "" {
			owners[e.TenantUID] = true
		}
	}
	var uids []string
	for uid := range owners {
		uids = append(uids, uid)
	}
	tenants, err := lockHeads(ctx, tx, uids)
	if err != nil {
		return audit.Head{}, 0, err
	}
	log := heads[wholeLog]
	for i := range entries {
		e := &entries[i]
		log, tenants[e.TenantUID] = audit.Append(e, log, tenants[e.TenantUID])
	}
	delete(tenants, "")
	tenants[wholeLog] = log
	return log, len(entries), storeSeals(ctx, tx, entries, tenants)
}

// lockHeads reads the heads of the owners that have one and locks them, unless another transaction
// has.
func lockHeads(ctx context.Context, tx pgx.Tx, owners []string) (map[string]audit.Head, error) {
	heads := map[string]audit.Head{}
	if len(owners) == 0 {
		return heads, nil
	}
	rows, err := tx.Query(ctx, `
		SELECT owner::text, position, hash FROM audit_heads WHERE owner = ANY($1::text[]::uuid[]) FOR UPDATE SKIP LOCKED`, owners)
	if err != nil {
		return nil, err
	}
	var owner string
	var head audit.Head
	var hash []byte
	_, err = pgx.ForEachRow(rows, []any{&owner, &head.Position, &hash}, func() error {
		head.Hash = hexHash(hash)
		heads[owner] = head
		return nil
	})
	return heads, err
}

func storeSeals(ctx context.Context, tx pgx.Tx, entries []audit.Entry,
	heads map[string]audit.Head) error {
	batch := &pgx.Batch{}
	batch.Queue(`SELECT set_config('argosy.seal_audit', 'on', true)`)
	batch.Queue(`
		UPDATE audit a SET format = r.format, position = r.position, previous = r.previous,
			tenant_position = nullif(r.tenant_position, 0), tenant_previous = r.tenant_previous, hash = r.hash
		FROM unnest($1::bigint[], $2::timestamptz[], $3::int[], $4::bigint[], $5::bytea[], $6::bigint[], $7::bytea[], $8::bytea[])
			AS r (n, at, format, position, previous, tenant_position, tenant_previous, hash)
		WHERE a.n = r.n AND a.at = r.at`,
		column(entries, func(e audit.Entry) int64 { return e.N }),
		column(entries, func(e audit.Entry) time.Time { return e.At }),
		column(entries, func(e audit.Entry) int { return int(e.Format) }),
		column(entries, func(e audit.Entry) int64 { return e.Position }),
		column(entries, func(e audit.Entry) []byte { return rawHash(e.Previous) }),
		column(entries, func(e audit.Entry) int64 { return e.TenantPosition }),
		column(entries, func(e audit.Entry) []byte { return rawHash(e.TenantPrevious) }),
		column(entries, func(e audit.Entry) []byte { return rawHash(e.Hash) }))
	var owners []string
	var positions []int64
	var hashes [][]byte
	for owner, head := range heads {
		owners = append(owners, owner)
		positions = append(positions, head.Position)
		hashes = append(hashes, rawHash(head.Hash))
	}
	batch.Queue(`
		INSERT INTO audit_heads (owner, position, hash) SELECT * FROM unnest($1::text[]::uuid[], $2::bigint[], $3::bytea[])
		ON CONFLICT (owner) DO UPDATE SET position = excluded.position, hash = excluded.hash`, owners, positions, hashes)
	return tx.SendBatch(ctx, batch).Close()
}

// Head returns the newest sealed entry, and how long the oldest entry has waited for its seal.
func (s *Audit) Head(ctx context.Context) (head audit.Head, waits time.Duration, err error) {
	var hash []byte
	err = s.work.QueryRow(ctx, `
		SELECT h.position, h.hash, coalesce(now() - (SELECT min(at) FROM audit WHERE hash IS NULL), '0'::interval)
		FROM audit_heads h WHERE owner = $1`, wholeLog).Scan(&head.Position, &hash, &waits)
	head.Hash = hexHash(hash)
	return head, waits, wrap(err, "audit log")
}

// ErrAuditHead means that the log does not contain a head that was seen before: it was written
// again, or the database was restored.
var ErrAuditHead = errors.New("the audit log no longer contains an entry that it had")

// Contains returns ErrAuditHead unless the log has exactly this head, or has pruned it.
func (s *Audit) Contains(ctx context.Context, head audit.Head) error {
	var same, pruned bool
	err := s.work.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM audit WHERE position = $1 AND hash = $2), (SELECT position >= $1 FROM audit_anchor)`,
		head.Position, rawHash(head.Hash)).Scan(&same, &pruned)
	if err == nil && !same && !pruned {
		err = fmt.Errorf("entry %s: %w", head, ErrAuditHead)
	}
	return wrap(err, "audit log")
}

// verifyPage is the number of entries that a verification reads at a time, each in a transaction of
// its own, so that it holds no lock and no snapshot for long.
const verifyPage = 2000

// Verification selects what Verify verifies.
type Verification struct {
	Known []audit.Head // heads that were noted elsewhere, which the log has to contain
	Last  int64        // only so many of the newest entries; 0: all
}

// Verify reads the log and verifies its chain. An entry that is sealed meanwhile is left for the
// next verification.
func (s *Audit) Verify(ctx context.Context, o Verification) (audit.Report, error) {
	for attempt := 1; ; attempt++ {
		before, err := s.sealing(ctx)
		if err != nil {
			return audit.Report{}, wrap(err, "verify the audit log")
		}
		report, err := s.verify(ctx, o, before)
		if err != nil || report.OK() || attempt == 3 {
			return report, wrap(err, "verify the audit log")
		}
		// Entries that were pruned meanwhile are no gap.
		after, err := s.sealing(ctx)
		if err != nil || after.anchor == before.anchor {
			return report, wrap(err, "verify the audit log")
		}
	}
}

// sealing is where the chain begins and ends.
type sealing struct {
	anchor, head             audit.Head
	pruned, unsealed, forged int64
	pruningRecorded          bool
}

func (s *Audit) sealing(ctx context.Context) (c sealing, err error) {
	err = s.again(ctx, func() error {
		var anchor, head []byte
		err := s.work.QueryRow(ctx, `
			SELECT a.position, a.hash, a.pruned, h.position, h.hash, (SELECT count(*) FROM audit WHERE hash IS NULL AND position IS NULL),
				(SELECT count(*) FROM audit e WHERE (e.hash IS NULL) <> (e.position IS NULL))
					+ (SELECT count(*) FROM audit e WHERE e.position > h.position OR e.position <= a.position),
				a.recorded < a.pruned OR a.position = 0 OR EXISTS (SELECT FROM audit e
					WHERE e.action = 'prune audit log' AND strpos(e.detail, a.position || ':' || encode(a.hash, 'hex')) > 0)
			FROM audit_anchor a, audit_heads h WHERE h.owner = $1`, wholeLog).Scan(
			&c.anchor.Position, &anchor, &c.pruned, &c.head.Position, &head, &c.unsealed,
			&c.forged, &c.pruningRecorded)
		c.anchor.Hash, c.head.Hash = hexHash(anchor), hexHash(head)
		return err
	})
	return c, err
}

func (s *Audit) verify(ctx context.Context, o Verification, c sealing) (audit.Report, error) {
	var v audit.Verifier
	after := c.anchor.Position
	if o.Last > 0 && c.head.Position-o.Last > after {
		after = c.head.Position - o.Last
	} else {
		v.After(c.anchor)
	}
	if c.forged > 0 {
		v.Find(0, "%d entries lie outside of the chain: they were written past it", c.forged)
	}
	if !c.pruningRecorded {
		v.Find(0, "the log begins after entry %d, and no entry records that those before were "+
			"pruned", c.anchor.Position)
	}
	for _, k := range append(o.Known, c.head) {
		if k.Position > after {
			v.Know(k)
		}
	}
	for {
		page, err := collect(ctx, s.database, scanEntry, `SELECT `+auditColumns+
			` FROM audit a WHERE a.position > $1 AND a.position <= $2 ORDER BY a.position, a.n LIMIT $3`,
			after, c.head.Position, verifyPage)
		if err != nil {
			return audit.Report{}, err
		}
		for _, e := range page {
			v.Add(e)
		}
		if len(page) < verifyPage {
			break
		}
		after = page[len(page)-1].Position
	}
	report := v.End()
	report.Pruned, report.Unsealed = c.pruned, c.unsealed
	return report, nil
}

// Audit lists entries, newest first. A tenant's scope has the entries about that tenant.
func (s *Views) Audit(ctx context.Context, scope view.Scope, by view.Filter, page view.Page) (
	[]audit.Entry, string, error) {
	return list(ctx, s.database, scope, listing[audit.Entry]{
		name: "audit", keys: []string{"a.n"}, newest: true, scan: scanEntry,
		sql: `SELECT ` + auditColumns + ` FROM audit a`,
		key: func(e audit.Entry) []string { return []string{strconv.FormatInt(e.N, 10)} },
	}, auditFilter(scope, by), page, nil)
}

// SealedAudit returns at most limit sealed entries after the position, in the order of the chain.
func (s *Views) SealedAudit(ctx context.Context, scope view.Scope, by view.Filter, after int64,
	limit int) ([]audit.Entry, error) {
	if limit < 1 || limit > maxPage {
		return nil, fmt.Errorf("audit: a page has 1 to %d items, not %d", maxPage, limit)
	}
	f := auditFilter(scope, by)
	f.and("a.position > " + f.place(after))
	var entries []audit.Entry
	err := s.within(ctx, scope, func(tx pgx.Tx) (err error) {
		entries, err = read(ctx, tx, scanEntry, `SELECT `+auditColumns+` FROM audit a`+f.where()+
			` ORDER BY a.position LIMIT `+strconv.Itoa(limit), f.args...)
		return err
	})
	return entries, wrap(err, "audit")
}

// AuditState is where the chain begins and ends.
func (s *Views) AuditState(ctx context.Context) (audit.State, error) {
	c, err := (&Audit{s.database}).sealing(ctx)
	return audit.State{Head: c.head, Anchor: c.anchor, Pruned: c.pruned, Unsealed: c.unsealed},
		wrap(err, "audit log")
}

func auditFilter(scope view.Scope, by view.Filter) filter {
	f := filter{}
	f.tenants("a.tenant", scope, by.Tenant)
	if scope.Tenant != "" {
		f.and("a.tenant_uid = live_tenant(a.tenant)")
	}
	f.pattern("a.actor", by.Entry.Actor)
	f.pattern("a.action", by.Entry.Action)
	f.pattern("a.subject", by.Entry.Subject)
	f.equal("a.engine", string(by.Engine))
	f.equal("a.revision", string(by.Revision))
	f.equal("a.operation", by.Entry.Operation)
	if by.Pull != 0 {
		n := f.place(by.Pull)
		f.and("(a.pull = " + n + " OR a.revision = (SELECT p.body->>'mergeCommit' FROM pulls p WHERE p.number = " +
			n + " AND p.body->>'mergeCommit' <> ''))")
	}
	if !by.Entry.Since.IsZero() {
		f.and("a.at >= " + f.place(by.Entry.Since))
	}
	if !by.Entry.Until.IsZero() {
		f.and("a.at < " + f.place(by.Entry.Until))
	}
	if by.Entry.Text != "" {
		word := f.place(text(by.Entry.Text))
		f.and("strpos(lower(a.actor || ' ' || a.subject || ' ' || a.detail), lower(" + word +
			")) > 0")
	}
	return f
}

// pattern requires a value, or with a "*" at its end a prefix.
func (f *filter) pattern(column, value string) {
	if prefix, ok := strings.CutSuffix(value, "*"); ok {
		f.and("starts_with(" + column + ", " + f.place(text(prefix)) + ")")
		return
	}
	f.equal(column, value)
}

// recordPruning records the pruning of entries in the log itself, once, by any replica.
func (s *Store) recordPruning(ctx context.Context, age string) error {
	return s.transact(ctx, func(tx pgx.Tx) error {
		var pruned, recorded int64
		var anchor audit.Head
		var hash []byte
		err := tx.QueryRow(ctx,
			`SELECT pruned, recorded, position, hash FROM audit_anchor FOR UPDATE`).Scan(&pruned,
			&recorded, &anchor.Position, &hash)
		if err != nil || pruned == recorded {
			return err
		}
		anchor.Hash = hexHash(hash)
		if _, err := tx.Exec(ctx, `UPDATE audit_anchor SET recorded = pruned`); err != nil {
			return err
		}
		return recordDecision(ctx, tx, decision{action: "prune audit log", by: "argosy",
			subject: fmt.Sprintf("%d entries", pruned-recorded),
			note: fmt.Sprintf("older than %s; the chain goes on after entry %s", age,
				anchor)})
	})
}
