package postgres

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// A token is argosy_<id>_<secret>. The id finds the row; the row holds the SHA-256 of the whole
// text. A slow hash would add nothing: the secret is 130 random bits, not a password.
const tokenPrefix = "argosy_"

const tokenColumns = `t.id, t.name, t.tenant, t.role, t.created_by, t.created_at, t.expires_at, t.revoked_at, t.owner, t.last_used_at`

func scanToken(row pgx.CollectableRow) (view.Token, error) {
	var t view.Token
	err := row.Scan(&t.ID, &t.Name, &t.Tenant, &t.Role, &t.CreatedBy, &t.CreatedAt, &t.ExpiresAt,
		&t.RevokedAt, &t.Owner, &t.LastUsedAt)
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
			&t.ExpiresAt, &t.RevokedAt, &t.Owner, &t.LastUsedAt)
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
	s.uses.add(usedTokens, found[0].ID)
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

// CreateToken creates a token from Name, Tenant, Role, Owner, CreatedBy and ExpiresAt, and returns
// it with its plaintext, which is not stored. mirror.ErrNotFound when there is no such tenant.
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
			INSERT INTO tokens (id, hash, name, tenant, tenant_uid, role, created_by, created_at, expires_at, owner)
			SELECT $1, $2, $3, $4, live_tenant($4), $5, $6, now(), $7, $8 WHERE $4 = '' OR live_tenant($4) IS NOT NULL
			ON CONFLICT (id) DO NOTHING`, t.ID, hash[:], t.Name, string(t.Tenant), string(t.Role), text(t.CreatedBy), t.ExpiresAt,
			text(t.Owner))
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
		return recordDecision(
			ctx, tx, decision{action: "create token", subject: t.Subject(), tenant: t.Tenant,
				by: t.CreatedBy, note: strings.TrimSpace(string(t.Role) + " " + t.Owner)})
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
		return recordDecision(
			ctx, tx, decision{action: "revoke token", subject: t.Subject(), tenant: t.Tenant,
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

// A registration token is argosy_agent_<id>_<secret>, stored like the API's tokens: see
// CreateToken. A token with a chosen text is found by its hash.
const agentTokenPrefix = "argosy_agent_"

const agentTokenColumns = `t.id, t.engine, t.tenant, t.name, t.created_by, t.created_at, t.expires_at, t.used_at, t.revoked_at, t.legacy`

// Limits of registration tokens. A chosen text has at least 128 bits if each of 32 characters has
// four.
const (
	maxTokenLife  = 30 * 24 * time.Hour
	maxLegacyLife = 366 * 24 * time.Hour
	minGiven      = 32
	maxGiven      = 128
	minDistinct   = 10 // different characters of a chosen token: fewer are no random text
)

func scanAgentToken(row pgx.CollectableRow) (registry.Token, error) {
	var t registry.Token
	var name string
	err := row.Scan(&t.ID, &t.Engine, &t.Tenant, &name, &t.CreatedBy, &t.CreatedAt, &t.ExpiresAt,
		&t.UsedAt, &t.RevokedAt, &t.Legacy)
	if t.Tenant != "" {
		t.Environment = fleet.EnvironmentName(name)
	}
	return t, err
}

// agentTokenID is the part of a token that identifies it; "" if it is not a token.
func agentTokenID(plaintext string) string {
	rest, ok := strings.CutPrefix(plaintext, agentTokenPrefix)
	id, secret, both := strings.Cut(rest, "_")
	if !ok || !both || secret == "" || len(plaintext) > maxGiven {
		return ""
	}
	return text(id)
}

// CreateAgentToken creates a registration token for the environment Tenant/Environment, or for
// Engine when both are empty, from CreatedBy, ExpiresAt (at most 30 days ahead, 366 when Legacy)
// and Legacy. given is a text chosen by a person, 32 to 128 visible ASCII characters, for a cluster
// that is set up by hand; "" generates one. The plaintext is returned and not stored.
// mirror.ErrNotFound when the target is not declared as served by an agent; registry.ErrUsed when
// the given text is a token already.
func (s *Agents) CreateAgentToken(ctx context.Context, t registry.Token,
	given string) (registry.Token, string, error) {
	name := string(t.Environment)
	if t.Tenant == "" && t.Environment == "" {
		name = string(t.Engine)
	} else {
		t.Engine = fleet.AgentEngine(fleet.EnvironmentID{Tenant: t.Tenant, Name: t.Environment})
	}
	t.ID = newID()
	plaintext := agentTokenPrefix + t.ID + "_" + rand.Text()
	if given != "" {
		plaintext = given
	}
	err := checkAgentToken(t, given)
	if err == nil {
		err = s.transact(ctx, func(tx pgx.Tx) (err error) {
			t, err = createAgentToken(ctx, tx, t, name, plaintext, given != "")
			return err
		})
	}
	if err != nil {
		return registry.Token{}, "", fmt.Errorf("token for the agent of %s: %w", t.Engine, err)
	}
	return t, plaintext, nil
}

func checkAgentToken(t registry.Token, given string) error {
	most := maxTokenLife
	if t.Legacy {
		most = maxLegacyLife
	}
	if left := time.Until(t.ExpiresAt); left <= 0 || left > most+time.Minute {
		return fmt.Errorf("it has to expire within %d hours from now", int(most.Hours()))
	}
	if given == "" {
		return nil
	}
	distinct := map[rune]bool{}
	for _, r := range given {
		if r <= ' ' || r > '~' {
			return errors.New("a given token is of visible ASCII characters")
		}
		distinct[r] = true
	}
	if len(given) < minGiven || len(given) > maxGiven || len(distinct) < minDistinct {
		return fmt.Errorf(
			"a given token is random text of %d to %d characters; make one with `openssl rand "+
				"-hex 32`", minGiven, maxGiven)
	}
	if strings.HasPrefix(given, agentTokenPrefix) || strings.HasPrefix(given, tokenPrefix) {
		return fmt.Errorf("a given token does not begin with %s", tokenPrefix)
	}
	return nil
}

func createAgentToken(ctx context.Context, tx pgx.Tx, t registry.Token, name, plaintext string,
	given bool) (registry.Token, error) {
	hash := sha256.Sum256([]byte(plaintext))
	tag, err := tx.Exec(ctx, `
		INSERT INTO agent_tokens (id, hash, given, engine, tenant, tenant_uid, name, legacy, created_by, created_at, expires_at)
		SELECT $1, $2, $3, $4, $5, live_tenant($5), $6, $7, $8, now(), $9
		WHERE agent_stand($5, $6) = 'declared' AND ($5 = '' OR live_tenant($5) IS NOT NULL)
		ON CONFLICT DO NOTHING`, t.ID, hash[:], given, string(t.Engine), text(string(t.Tenant)), text(name), t.Legacy, text(t.CreatedBy), t.ExpiresAt)
	if err != nil {
		return t, err
	}
	if tag.RowsAffected() == 1 {
		if err := recordDecision(
			ctx, tx, agentDecision("create agent token", t.Tenant, t.Engine, t.CreatedBy,
				t.ID, "a token to join was made")); err != nil {
			return t, err
		}
	}
	made, err := read(ctx, tx, scanAgentToken, `SELECT `+agentTokenColumns+
		` FROM agent_tokens t WHERE t.hash = $1`, hash[:])
	switch {
	case err != nil:
		return t, err
	case len(made) == 0:
		return t, mirror.ErrNotFound
	case made[0].ID != t.ID:
		return t, registry.ErrUsed
	}
	return made[0], nil
}

// ListAgentTokens lists tokens that match Filter.{Tenant, Engine}, newest first, ended ones
// included. The result never contains the plaintext.
func (s *Agents) ListAgentTokens(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]registry.Token, string, error) {
	f := filter{}
	f.tenants("t.tenant", scope, by.Tenant)
	f.equal("t.engine", string(by.Engine))
	if scope.Tenant != "" {
		f.and("t.tenant_uid = live_tenant(t.tenant)")
	}
	return list(ctx, s.database, scope, listing[registry.Token]{
		name: "agent tokens", sql: `SELECT ` + agentTokenColumns + ` FROM agent_tokens t`,
		keys: []string{"t.id"}, newest: true, scan: scanAgentToken,
		key: func(t registry.Token) []string { return []string{t.ID} },
	}, f, page, nil)
}

// RevokeAgentToken ends a registration token at once; agents that joined with it stay. An ended
// token is unchanged. mirror.ErrNotFound when the scope has no token with that ID.
func (s *Agents) RevokeAgentToken(ctx context.Context, scope view.Scope, id, by string) error {
	err := s.transact(ctx, func(tx pgx.Tx) error {
		f := filter{}
		f.and("t.id = " + f.place(text(id)))
		f.tenants("t.tenant", scope, "")
		if scope.Tenant != "" {
			f.and("t.tenant_uid = live_tenant(t.tenant)")
		}
		found, err := read(ctx, tx, scanAgentToken, `SELECT `+agentTokenColumns+
			` FROM agent_tokens t`+f.where()+` FOR UPDATE`, f.args...)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return mirror.ErrNotFound
		}
		t := found[0]
		if t.RevokedAt != nil {
			return nil
		}
		if _, err := tx.Exec(ctx, `UPDATE agent_tokens SET revoked_at = now() WHERE id = $1`,
			t.ID); err != nil {
			return err
		}
		return recordDecision(
			ctx, tx, agentDecision("revoke agent token", t.Tenant, t.Engine, by, t.ID,
				"a token to join was revoked"))
	})
	return wrap(err, "agent token %s", id)
}

// LegacyToken returns the token that may read the older route of applications, used or not, until
// it expires or is revoked; mirror.ErrNotFound for any other.
func (s *Agents) LegacyToken(ctx context.Context, plaintext string) (registry.Token, error) {
	var t tokenRow
	err := s.transact(ctx, func(tx pgx.Tx) (err error) {
		t, err = findToken(ctx, tx, plaintext, "")
		if err == nil && (!t.Legacy || !t.live) {
			err = mirror.ErrNotFound
		}
		return err
	})
	if err != nil {
		return registry.Token{}, fmt.Errorf("token of the older route: %w", err)
	}
	if t.Tenant != "" {
		t.Environment = fleet.EnvironmentName(t.name)
	}
	return t.Token, nil
}
