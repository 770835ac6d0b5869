-- What people ask of one Application: refresh, sync, terminate, restart. See docs/adr/0088-actions.md.

-- +goose Up

-- It is a table of its own beside syncs: the version before would take each open row there for a sync.
CREATE TABLE actions (
    id           text COLLATE "C" PRIMARY KEY, -- of its operation
    request      text COLLATE "C" NOT NULL,    -- by the client: a repeated one is the same action
    kind         text COLLATE "C" NOT NULL,
    engine       text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    tenant       text COLLATE "C" NOT NULL,
    tenant_uid   uuid,
    environment  text COLLATE "C" NOT NULL,
    deployment   text COLLATE "C" NOT NULL,
    options      jsonb NOT NULL, -- mirror.ActionOptions
    by           text NOT NULL,
    note         text NOT NULL DEFAULT '',
    state        text NOT NULL DEFAULT 'Pending' CHECK (state IN ('Pending', 'Running', 'Succeeded', 'Failed')),
    message      text NOT NULL DEFAULT '',
    results      jsonb NOT NULL DEFAULT '[]', -- []mirror.ResourceResult
    outcome      text NOT NULL DEFAULT '',    -- of a running action whose results are stored
    requested_at timestamptz NOT NULL DEFAULT now(),
    begun_at     timestamptz,
    ended_at     timestamptz
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX actions_request ON actions (tenant, environment, deployment, request);
CREATE INDEX actions_open ON actions (engine) WHERE ended_at IS NULL;
CREATE INDEX actions_ended ON actions (ended_at);

ALTER TABLE actions ENABLE ROW LEVEL SECURITY;
ALTER TABLE actions FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_wall ON actions USING (in_scope(tenant, tenant_uid)) WITH CHECK (in_scope(tenant, tenant_uid));
CREATE POLICY agent_wall ON actions AS RESTRICTIVE USING ((SELECT agent_bound()) <> 'yes' OR engine = (SELECT agent_scope()));
GRANT SELECT ON actions TO argosy_reader, argosy_agent;
