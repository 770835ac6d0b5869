-- The revisions with which each Application was Synced and Healthy, for rollbacks. See docs/adr/0089-rollbacks.md.

-- +goose Up

CREATE TABLE IF NOT EXISTS healthy_revisions (
    tenant      text COLLATE "C" NOT NULL,
    tenant_uid  uuid,
    environment text COLLATE "C" NOT NULL,
    deployment  text COLLATE "C" NOT NULL,
    revision    text COLLATE "C" NOT NULL, -- of its sources, joined by commas if there are several
    first_at    timestamptz NOT NULL DEFAULT now(),
    last_at     timestamptz NOT NULL DEFAULT now(), -- within an hour
    PRIMARY KEY (tenant, environment, deployment, revision)
);
CREATE INDEX IF NOT EXISTS healthy_revisions_last ON healthy_revisions (last_at);

ALTER TABLE healthy_revisions ENABLE ROW LEVEL SECURITY;
ALTER TABLE healthy_revisions FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_wall ON healthy_revisions USING (in_scope(tenant, tenant_uid)) WITH CHECK (in_scope(tenant, tenant_uid));
CREATE POLICY agent_wall ON healthy_revisions AS RESTRICTIVE USING ((SELECT agent_bound()) <> 'yes');
GRANT SELECT ON healthy_revisions TO argosy_reader;

-- Rollbacks are actions that the loop takes.
CREATE INDEX IF NOT EXISTS actions_rollbacks ON actions (id) WHERE kind = 'rollback' AND begun_at IS NULL AND ended_at IS NULL;
