package postgres

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// A token is argosy_<id>_<secret>. The id finds the row; the row holds the SHA-256 of the whole
// text. A slow hash would add nothing: the secret is 130 random bits, not a password.
const tokenPrefix = "argosy_"

const tokenColumns = `t.id, t.name, t.tenant, t.role, t.created_by, t.created_at, t.expires_at, t.revoked_at`

func scanToken(row pgx.CollectableRow) (view.Token, error) {
	var t view.Token
	err := row.Scan(&t.ID, &t.Name, &t.Tenant, &t.Role, &t.CreatedBy, &t.CreatedAt, &t.ExpiresAt,
		&t.RevokedAt)
	return t, err
}

// VerifyToken returns the token of a plaintext. mirror.ErrNotFound when it is unknown, expired,
// revoked, malformed, or of a removed tenant; neither the answer nor its timing distinguishes
// these.
func (s *Tokens) VerifyToken(ctx context.Context, plaintext string) (view.Token, error) {
	id := tokenID(plaintext)
	hash := sha256.Sum256([]byte(plaintext))
	var stored []byte
	found, err := collect(ctx, s.database, func(row pgx.CollectableRow) (t view.Token, err error) {
		err = row.Scan(&stored, &t.ID, &t.Name, &t.Tenant, &t.Role, &t.CreatedBy, &t.CreatedAt,
			&t.ExpiresAt, &t.RevokedAt)
		return t, err
	}, `
		SELECT t.hash, `+tokenColumns+` FROM tokens t
		WHERE t.id = $1 AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())
			AND (t.tenant = '' OR t.tenant_uid = live_tenant(t.tenant))`, id)
	if err != nil {
		return view.Token{}, fmt.Errorf("token: %w", err)
	}
	if len(found) == 0 {
		stored = make([]byte, sha256.Size)
	}
	if subtle.ConstantTimeCompare(stored, hash[:]) != 1 || len(found) == 0 {
		return view.Token{}, fmt.Errorf("token: %w", mirror.ErrNotFound)
	}
	return found[0], nil
}

// tokenID is the part of a token that identifies it; "" if it is not a token.
func tokenID(plaintext string) string {
	rest, ok := strings.CutPrefix(plaintext, tokenPrefix)
	id, secret, both := strings.Cut(rest, "_")
	if !ok || !both || secret == "" || len(plaintext) > 128 {
		return ""
	}
	return text(id)
}

// CreateToken creates a token from Name, Tenant, Role, CreatedBy and ExpiresAt, and returns it with
// its plaintext, which is not stored. mirror.ErrNotFound when there is no such tenant.
func (s *Tokens) CreateToken(ctx context.Context, t view.Token) (view.Token, string, error) {
	if t.Role != view.RoleRead && t.Role != view.RoleWrite {
		return view.Token{}, "", fmt.Errorf("token %s: a role is read or write, not %q", t.Name,
			t.Role)
	}
	if err := fleet.ValidateName(t.Name); err != nil {
		return view.Token{}, "", fmt.Errorf("token: %w", err)
	}
	t.ID = newID()
	plaintext := tokenPrefix + t.ID + "_" + rand.Text()
	hash := sha256.Sum256([]byte(plaintext))
	err := s.transact(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			INSERT INTO tokens (id, hash, name, tenant, tenant_uid, role, created_by, created_at, expires_at)
			SELECT $1, $2, $3, $4, live_tenant($4), $5, $6, now(), $7 WHERE $4 = '' OR live_tenant($4) IS NOT NULL
			ON CONFLICT (id) DO NOTHING`, t.ID, hash[:], t.Name, string(t.Tenant), string(t.Role), text(t.CreatedBy), t.ExpiresAt)
		if err != nil {
			return err
		}
		made, err := read(ctx, tx, scanToken, `SELECT `+tokenColumns+
			` FROM tokens t WHERE t.id = $1 AND t.hash = $2`, t.ID, hash[:])
		if err != nil {
			return err
		}
		if len(made) == 0 {
			return fmt.Errorf("tenant %s: %w", t.Tenant, mirror.ErrNotFound)
		}
		if t = made[0]; tag.RowsAffected() == 0 {
			return nil // the previous attempt was committed after all
		}
		return tell(ctx, tx, deed{action: "create token", subject: t.Subject(), tenant: t.Tenant,
			by: t.CreatedBy, note: string(t.Role)})
	})
	if err != nil {
		return view.Token{}, "", fmt.Errorf("token %s: %w", t.Name, err)
	}
	return t, plaintext, nil
}

// RevokeToken ends a token at once. An ended one is unchanged; mirror.ErrNotFound when there is
// none with that ID.
func (s *Tokens) RevokeToken(ctx context.Context, id, by string) error {
	err := s.transact(ctx, func(tx pgx.Tx) error {
		var t view.Token
		err := tx.QueryRow(ctx,
			`SELECT name, tenant, revoked_at FROM tokens WHERE id = $1 FOR UPDATE`, text(id)).Scan(
			&t.Name, &t.Tenant, &t.RevokedAt)
		if errors.Is(err, pgx.ErrNoRows) {
			return mirror.ErrNotFound
		}
		if err != nil || t.RevokedAt != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE tokens SET revoked_at = now() WHERE id = $1`,
			text(id)); err != nil {
			return err
		}
		return tell(ctx, tx, deed{action: "revoke token", subject: t.Subject(), tenant: t.Tenant,
			by: by, note: text(id)})
	})
	return wrap(err, "token %s", id)
}

// ListTokens lists all tokens, newest first, ended ones included. The result never contains a
// plaintext.
func (s *Tokens) ListTokens(ctx context.Context, page view.Page) ([]view.Token, string, error) {
	return list(ctx, s.database, view.Scope{}, listing[view.Token]{
		name: "tokens", sql: `SELECT ` + tokenColumns + ` FROM tokens t`, keys: []string{"t.id"},
		newest: true, scan: scanToken,
		key: func(t view.Token) []string { return []string{t.ID} },
	}, filter{}, page, nil)
}
