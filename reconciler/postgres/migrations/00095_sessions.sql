-- Sessions of people. See docs/adr/0086-sign-in.md.

-- +goose Up

CREATE TABLE sessions (
    id           text COLLATE "C" PRIMARY KEY,
    hash         bytea NOT NULL,               -- SHA-256 of the plaintext, which only the person has
    issuer       text COLLATE "C" NOT NULL,    -- name in the settings
    subject      text COLLATE "C" NOT NULL,    -- the issuer's key of the person
    name         text NOT NULL,
    account      text NOT NULL DEFAULT '',     -- proven account on the Git host
    account_id   bigint NOT NULL DEFAULT 0,
    groups       text[] NOT NULL DEFAULT '{}',
    teams        jsonb NOT NULL DEFAULT '[]',  -- of the account: name and number of each
    kind         text NOT NULL CHECK (kind IN ('page', 'cli')),
    created_at   timestamptz NOT NULL,
    last_used_at timestamptz NOT NULL,
    idle         interval NOT NULL,
    expires_at   timestamptz NOT NULL,
    refresh_at   timestamptz,                  -- when the issuer is asked again for groups; null: never
    refresh      bytea,                        -- the issuer's refresh token, sealed with a key of the plaintext
    revoked_at   timestamptz,
    revoked_by   text NOT NULL DEFAULT ''
);
CREATE INDEX sessions_person ON sessions (issuer, subject, id);
CREATE INDEX sessions_expire ON sessions (expires_at);

-- Sign-ins that have created their session: each creates one.
CREATE TABLE sign_ins (
    hash bytea PRIMARY KEY,
    at   timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX sign_ins_at ON sign_ins (at);

ALTER TABLE tokens ADD COLUMN last_used_at timestamptz;

-- Which tenants name a person. The index follows every writer of declarations, the version before included.
CREATE INDEX declarations_people ON declarations USING gin (
    (lower((body -> 'tenant' -> 'owners')::text)::jsonb),
    (lower((body -> 'tenant' -> 'members')::text)::jsonb),
    (lower((body -> 'tenant' -> 'viewers')::text)::jsonb)) WHERE kind = 'Tenant';

-- The platform's: no right for argosy_reader and argosy_agent. The walls stand all the same.
-- +goose StatementBegin
DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['sessions', 'sign_ins'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY tenant_wall ON %I USING (in_scope('''')) WITH CHECK (in_scope(''''))', t);
        EXECUTE format('CREATE POLICY agent_wall ON %I AS RESTRICTIVE USING ((SELECT agent_bound()) <> ''yes'')', t);
    END LOOP;
END $$;
-- +goose StatementEnd
