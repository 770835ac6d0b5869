package postgres

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/access"
	"argosy.dev/argosy/fleet/audit"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Sessions are the sessions of people, and the files in effect that give people roles. A session is
// argosy_session_<id>_<secret>, stored as tokens are: see Tokens. The issuer's refresh token is
// sealed with a key that is derived from that text, so that the database alone opens none.
type Sessions struct{ *database }

const sessionColumns = `s.id, s.issuer, s.subject, s.name, s.account, s.account_id, s.groups, s.teams, s.kind, s.created_at, s.last_used_at,
	s.last_used_at + s.idle, s.expires_at, s.refresh_at, s.revoked_at, s.revoked_by`

func sessionInto(s *view.Session, teams *[]byte) []any {
	p := &s.Person
	return []any{&s.ID, &p.Issuer, &p.Subject, &p.Name, &p.Account.Name, &p.Account.ID, &p.Groups,
		teams, &s.Kind, &s.CreatedAt, &s.LastUsedAt, &s.IdleUntil, &s.ExpiresAt, &s.RefreshAt,
		&s.RevokedAt, &s.RevokedBy}
}

// complete fills in what follows from the columns.
func completeSession(s *view.Session, teams []byte) error {
	if err := json.Unmarshal(teams, &s.Person.Teams); err != nil {
		return fmt.Errorf("teams of session %s: %w", s.ID, err)
	}
	s.Issuer, s.Name, s.Actor = s.Person.Issuer, s.Person.Name, s.Person.Actor()
	return nil
}

func scanSession(row pgx.CollectableRow) (s view.Session, err error) {
	var teams []byte
	if err = row.Scan(sessionInto(&s, &teams)...); err == nil {
		err = completeSession(&s, teams)
	}
	return s, err
}

// sessionID is the part of a session that identifies it; "" if it is not a session.
func sessionID(plaintext string) string {
	rest, ok := strings.CutPrefix(plaintext, view.SessionPrefix)
	id, secret, both := strings.Cut(rest, "_")
	if !ok || !both || secret == "" || len(plaintext) > 128 {
		return ""
	}
	return text(id)
}

// VerifySession returns the session of a plaintext with the roles that the person has now.
// mirror.ErrNotFound when it is unknown, expired, idle for too long, revoked or malformed; neither
// the answer nor its timing distinguishes these.
func (s *Sessions) VerifySession(ctx context.Context, plaintext string) (view.Session, error) {
	hash := sha256.Sum256([]byte(plaintext))
	stored := make([]byte, sha256.Size)
	found, err := collect(ctx, s.database, func(row pgx.CollectableRow) (v view.Session,
		err error) {
		var teams []byte
		if err = row.Scan(append([]any{&stored}, sessionInto(&v, &teams)...)...); err == nil {
			err = completeSession(&v, teams)
		}
		return v, err
	}, `SELECT s.hash, `+sessionColumns+` FROM sessions s
		WHERE s.id = $1 AND s.revoked_at IS NULL AND s.expires_at > now() AND s.last_used_at + s.idle > now()`,
		sessionID(plaintext))
	if err != nil {
		return view.Session{}, fmt.Errorf("session: %w", err)
	}
	if subtle.ConstantTimeCompare(stored, hash[:]) != 1 || len(found) == 0 {
		return view.Session{}, fmt.Errorf("session: %w", mirror.ErrNotFound)
	}
	session := found[0]
	facts, err := s.Facts(ctx, session.Person)
	if err != nil {
		return view.Session{}, err
	}
	session.Roles = facts.Of(session.Person)
	s.uses.add(usedSessions, session.ID)
	return session, nil
}

// maxNaming limits the tenants that may name one person.
const maxNaming = 10_000

// Facts returns the Access and the Tenants in effect that may name the person, and the pinned names
// of the person's accounts.
func (s *Sessions) Facts(ctx context.Context, p access.Person) (access.Facts, error) {
	var facts access.Facts
	declared, err := collect(ctx, s.database, func(row pgx.CollectableRow) (d fleet.Declaration,
		err error) {
		var specs []byte
		if err = row.Scan(&d.Key.Kind, &d.Key.Name, &d.Path, &d.Blob, &specs); err == nil {
			err = json.Unmarshal(specs, &d)
		}
		return d, err
	}, `SELECT kind, name, path, blob, jsonb_build_object('access', body -> 'access') FROM declarations WHERE kind = 'Access' AND tenant = ''
		UNION ALL (
		SELECT kind, name, path, blob, jsonb_build_object('tenant', jsonb_build_object('owners', body -> 'tenant' -> 'owners',
			'members', body -> 'tenant' -> 'members', 'viewers', body -> 'tenant' -> 'viewers'))
		FROM declarations WHERE kind = 'Tenant' AND (lower((body -> 'tenant' -> 'owners')::text)::jsonb ?| $1
			OR lower((body -> 'tenant' -> 'members')::text)::jsonb ?| $1 OR lower((body -> 'tenant' -> 'viewers')::text)::jsonb ?| $1)
		ORDER BY name LIMIT $2)`, append([]string{}, p.Entries()...), maxNaming)
	if err != nil {
		return facts, fmt.Errorf("roles: %w", err)
	}
	for i := range declared {
		if declared[i].Access != nil {
			facts.Access = &declared[i]
		} else {
			facts.Tenants = append(facts.Tenants, &declared[i])
		}
	}
	names := p.Names()
	if len(names) == 0 {
		return facts, nil
	}
	pins, err := collect(ctx, s.database, func(row pgx.CollectableRow) (a access.Account,
		err error) {
		return a, row.Scan(&a.Name, &a.ID)
	}, `SELECT name, id FROM owners WHERE name = ANY($1) ORDER BY host DESC`, names)
	if err != nil {
		return facts, fmt.Errorf("pinned owners: %w", err)
	}
	facts.Pins = map[string]int64{}
	for _, pin := range pins {
		facts.Pins[pin.Name] = pin.ID
	}
	return facts, nil
}

// CreateSession creates a session from Person, Kind, IdleUntil, ExpiresAt and RefreshAt, and
// returns it with its plaintext, which is not stored. mirror.ErrReplayed when the sign-in of that
// name has created one.
func (s *Sessions) CreateSession(ctx context.Context, v view.Session, once string,
	refresh []byte) (view.Session, string, error) {
	v.ID = newID()
	plaintext := view.SessionPrefix + v.ID + "_" + rand.Text()
	hash, used := sha256.Sum256([]byte(plaintext)), sha256.Sum256([]byte(once))
	teams, err := json.Marshal(append([]access.Account{}, v.Person.Teams...))
	if err != nil {
		return view.Session{}, "", err
	}
	sealed, err := sealRefresh(plaintext, refresh)
	if err != nil {
		return view.Session{}, "", err
	}
	idle := time.Until(v.IdleUntil)
	p := v.Person
	err = s.transact(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `INSERT INTO sign_ins (hash) VALUES ($1) ON CONFLICT DO NOTHING`,
			used[:])
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			// unless the previous attempt of this transaction was committed after all
			made, err := read(ctx, tx, scanSession, `SELECT `+sessionColumns+
				` FROM sessions s WHERE s.id = $1 AND s.hash = $2`, v.ID, hash[:])
			if err == nil && len(made) == 0 {
				err = mirror.ErrReplayed
			}
			if err == nil {
				v = made[0]
			}
			return err
		}
		made, err := read(ctx, tx, scanSession, `
			INSERT INTO sessions AS s (id, hash, issuer, subject, name, account, account_id, groups, teams, kind, created_at, last_used_at, idle,
				expires_at, refresh_at, refresh)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, now(), now(), $11, $12, $13, $14) RETURNING `+sessionColumns,
			v.ID, hash[:], text(p.Issuer), text(p.Subject), text(p.Name), text(p.Account.Name),
			p.Account.ID, append([]string{}, p.Groups...), teams, string(v.Kind), idle, v.ExpiresAt,
			v.RefreshAt, sealed)
		if err != nil {
			return err
		}
		v = made[0]
		in := audit.WithIdentity(ctx, audit.Identity{Session: v.ID, Issuer: p.Issuer,
			Account: p.Subject})
		return recordDecision(in, tx, decision{action: "sign in", subject: "session " + v.ID,
			by: v.Actor, note: string(v.Kind)})
	})
	if err != nil {
		return view.Session{}, "", fmt.Errorf("session of %s: %w", p.Actor(), err)
	}
	return v, plaintext, nil
}

// UseOnce records the use of a name that may be used once in a day, among the names of sign-ins.
// mirror.ErrReplayed when it was used.
func (s *Sessions) UseOnce(ctx context.Context, name string) error {
	used := sha256.Sum256([]byte(name))
	err := s.transact(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `INSERT INTO sign_ins (hash) VALUES ($1) ON CONFLICT DO NOTHING`,
			used[:])
		if err == nil && tag.RowsAffected() == 0 {
			err = mirror.ErrReplayed
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("use once: %w", err)
	}
	return nil
}

// RevokeSession ends a session at once. An ended one is unchanged. mirror.ErrNotFound when there is
// none with that ID, or when it is not of the person (nil: of anybody).
func (s *Sessions) RevokeSession(ctx context.Context, id string, of *access.Person,
	by string) error {
	err := s.transact(ctx, func(tx pgx.Tx) error {
		found, err := read(ctx, tx, scanSession, `SELECT `+sessionColumns+
			` FROM sessions s WHERE s.id = $1 FOR UPDATE`, text(id))
		switch {
		case err != nil:
			return err
		case len(found) == 0 || of != nil && (found[0].Person.Issuer != of.Issuer ||
			found[0].Person.Subject != of.Subject):
			return mirror.ErrNotFound
		case found[0].RevokedAt != nil:
			return nil
		}
		if _, err := tx.Exec(ctx, `UPDATE sessions SET revoked_at = now(), revoked_by = $2, refresh = NULL, refresh_at = NULL
			WHERE id = $1`, text(id), text(by)); err != nil {
			return err
		}
		return recordDecision(ctx, tx, decision{action: "revoke session", subject: "session " + id,
			by: by, note: "of " + found[0].Actor})
	})
	return wrap(err, "session %s", id)
}

// ListSessions lists the sessions of the person (nil: of everybody), newest first, ended ones
// included.
func (s *Sessions) ListSessions(ctx context.Context, of *access.Person, page view.Page) (
	[]view.Session, string, error) {
	f := filter{}
	if of != nil {
		f.equal("s.issuer", of.Issuer)
		f.equal("s.subject", of.Subject)
	}
	return list(ctx, s.database, view.Scope{}, listing[view.Session]{
		name: "sessions", sql: `SELECT ` + sessionColumns + ` FROM sessions s`,
		keys: []string{"s.id"}, newest: true, scan: scanSession,
		key: func(v view.Session) []string { return []string{v.ID} },
	}, f, page, nil)
}

// refreshEvery is the pause between two attempts to ask the issuer of one session.
const refreshEvery = "1 minute"

// ClaimRefresh returns the issuer's refresh token of a session whose groups are due to be asked for
// again; ok is false if they are not, or if somebody else has claimed them within the last minute.
func (s *Sessions) ClaimRefresh(ctx context.Context, plaintext string) (refresh []byte, ok bool,
	err error) {
	hash := sha256.Sum256([]byte(plaintext))
	sealed, err := collect(ctx, s.database, func(row pgx.CollectableRow) (b []byte, err error) {
		return b, row.Scan(&b)
	}, `UPDATE sessions SET refresh_at = now() + $3::interval
		WHERE id = $1 AND hash = $2 AND revoked_at IS NULL AND refresh_at <= now() AND refresh IS NOT NULL RETURNING refresh`,
		sessionID(plaintext), hash[:], refreshEvery)
	if err != nil || len(sealed) == 0 {
		return nil, false, wrap(err, "session")
	}
	refresh, err = openRefresh(plaintext, sealed[0])
	return refresh, err == nil, err
}

// Refreshed stores the present claims of the issuer about the session's person.
func (s *Sessions) Refreshed(ctx context.Context, plaintext string, p access.Person,
	refresh []byte, next time.Time) error {
	hash := sha256.Sum256([]byte(plaintext))
	sealed, err := sealRefresh(plaintext, refresh)
	if err != nil {
		return err
	}
	teams, err := json.Marshal(append([]access.Account{}, p.Teams...))
	if err != nil {
		return err
	}
	return wrap(s.transact(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE sessions SET groups = $4, teams = $5, account = $6, account_id = $7, name = $8, refresh = $9, refresh_at = $10
			WHERE id = $1 AND hash = $2 AND subject = $3 AND revoked_at IS NULL`, sessionID(plaintext),
			hash[:], text(p.Subject), append([]string{}, p.Groups...), teams, text(p.Account.Name),
			p.Account.ID, text(p.Name), sealed, next)
		return err
	}), "session")
}

// sealRefresh seals a refresh token with a key that only the session's plaintext gives.
func sealRefresh(plaintext string, refresh []byte) ([]byte, error) {
	if len(refresh) == 0 {
		return nil, nil
	}
	aead, err := refreshKey(plaintext)
	if err != nil {
		return nil, err
	}
	return aead.Seal(nil, nil, refresh, []byte(sessionID(plaintext))), nil
}

func openRefresh(plaintext string, sealed []byte) ([]byte, error) {
	aead, err := refreshKey(plaintext)
	if err != nil {
		return nil, err
	}
	refresh, err := aead.Open(nil, nil, sealed, []byte(sessionID(plaintext)))
	if err != nil {
		return nil, errors.New("the refresh token of this session cannot be opened")
	}
	return refresh, nil
}

// refreshKey returns an AEAD that generates its nonces itself.
func refreshKey(plaintext string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, []byte(plaintext), nil, "argosy session refresh token", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// uses are the last uses of tokens and sessions that are not stored yet. A use is stored by
// FlushUses, not by the request: thousands of requests write one row.
type uses struct {
	mu sync.Mutex
	of map[string]map[string]time.Time // by table and ID
}

const (
	usedTokens   = "tokens"
	usedSessions = "sessions"
)

func (u *uses) add(table, id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of == nil {
		u.of = map[string]map[string]time.Time{}
	}
	if u.of[table] == nil {
		u.of[table] = map[string]time.Time{}
	}
	u.of[table][id] = time.Now()
}

// take empties the uses.
func (u *uses) take() map[string]map[string]time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	taken := u.of
	u.of = nil
	return taken
}

// FlushUses stores when tokens and sessions were used last. A failed flush is forgotten: the next
// use is stored again.
func (s *Store) FlushUses(ctx context.Context) error {
	for table, used := range s.uses.take() {
		var ids []string
		var ages []time.Duration // the database's clock dates them
		for id, at := range maps.All(used) {
			ids, ages = append(ids, id), append(ages, time.Since(at))
		}
		if err := s.transact(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE `+table+` t SET last_used_at = now() - u.age FROM unnest($1::text[], $2::interval[]) AS u (id, age)
				WHERE t.id = u.id AND (t.last_used_at IS NULL OR t.last_used_at < now() - u.age)`, ids,
				ages)
			return err
		}); err != nil {
			return fmt.Errorf("last uses of %s: %w", table, err)
		}
	}
	return nil
}
