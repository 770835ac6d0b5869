-- The pull requests that make rollbacks lasting, one for each deployment. See docs/adr/0097-lasting-rollbacks.md.

-- +goose Up

CREATE TABLE IF NOT EXISTS lasting_rollbacks (
    tenant     text COLLATE "C" NOT NULL,
    tenant_uid uuid,
    deployment text COLLATE "C" NOT NULL,
    state      text NOT NULL CHECK (state IN ('', 'Open', 'Merged', 'Closed', 'Impossible')),
    covers     text[] NOT NULL, -- operations of the rollbacks that it was made for
    blob       text NOT NULL,
    branch     text NOT NULL,
    number     integer NOT NULL,
    url        text NOT NULL,
    message    text NOT NULL,
    attempts   integer NOT NULL,
    again_at   timestamptz NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, deployment)
);
CREATE INDEX IF NOT EXISTS lasting_rollbacks_open ON lasting_rollbacks (tenant, deployment) WHERE state = 'Open';
CREATE INDEX IF NOT EXISTS lasting_rollbacks_ended ON lasting_rollbacks (changed_at) WHERE state <> 'Open';

ALTER TABLE lasting_rollbacks ENABLE ROW LEVEL SECURITY;
ALTER TABLE lasting_rollbacks FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_wall ON lasting_rollbacks;
CREATE POLICY tenant_wall ON lasting_rollbacks USING (in_scope(tenant, tenant_uid)) WITH CHECK (in_scope(tenant, tenant_uid));
DROP POLICY IF EXISTS agent_wall ON lasting_rollbacks;
CREATE POLICY agent_wall ON lasting_rollbacks AS RESTRICTIVE USING ((SELECT agent_bound()) <> 'yes');
GRANT SELECT ON lasting_rollbacks TO argosy_reader;

CREATE INDEX IF NOT EXISTS sync_holds_rollbacks ON sync_holds (tenant, deployment, environment) WHERE sync_run LIKE 'rollback-%';
