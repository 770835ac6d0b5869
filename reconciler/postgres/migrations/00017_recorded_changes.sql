-- What each recorded revision changed, for the reports on pull requests. Kept for two days.

-- +goose Up

-- One row per record that changed a tenant or the platform, in the order of commits.
CREATE TABLE recorded_changes (
    n       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    base    text COLLATE "C" NOT NULL,
    head    text COLLATE "C" NOT NULL,
    changed text[] NOT NULL,                   -- tenants with changed declarations or objects; '' is the platform
    effects jsonb,                             -- on objects; NULL where they say nothing about a merge
    at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX recorded_changes_head ON recorded_changes (head) WHERE effects IS NOT NULL;
CREATE INDEX recorded_changes_at ON recorded_changes (at);

-- The platform's: argosy_reader and argosy_agent have no right to it.
ALTER TABLE recorded_changes ENABLE ROW LEVEL SECURITY;
ALTER TABLE recorded_changes FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_wall ON recorded_changes USING (in_scope('')) WITH CHECK (in_scope(''));
CREATE POLICY agent_wall ON recorded_changes AS RESTRICTIVE USING ((SELECT agent_bound()) <> 'yes');
