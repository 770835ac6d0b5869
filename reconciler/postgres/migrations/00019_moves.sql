-- Moves of environments between engines: the requests that no plan has taken up yet, and the Applications under way.
-- See docs/adr/0045-moves.md.

-- +goose Up

CREATE TABLE move_requests (
    tenant      text COLLATE "C" NOT NULL,
    environment text COLLATE "C" NOT NULL,
    tenant_uid  uuid,
    operation   text NOT NULL,
    to_engine   text COLLATE "C" NOT NULL,
    by          text NOT NULL,
    note        text NOT NULL,
    undo        boolean NOT NULL, -- of the move under way
    dry_run     boolean NOT NULL,
    PRIMARY KEY (tenant, environment)
);

CREATE TABLE application_moves (
    tenant      text COLLATE "C" NOT NULL,
    environment text COLLATE "C" NOT NULL,
    deployment  text COLLATE "C" NOT NULL,
    tenant_uid  uuid,
    operation   text NOT NULL,
    from_engine text COLLATE "C" NOT NULL,
    to_engine   text COLLATE "C" NOT NULL,
    step        text NOT NULL CHECK (step IN ('Check', 'Compare', 'Ready', 'Freeze', 'Adopt', 'Delete', 'Enable', 'Return', 'Done')),
    departure   jsonb NOT NULL DEFAULT '{}',
    message     text NOT NULL DEFAULT '',
    since       timestamptz NOT NULL DEFAULT now(),
    undo        boolean NOT NULL DEFAULT false,
    took        jsonb NOT NULL DEFAULT '[]', -- steps that have ended, with seconds and requests
    PRIMARY KEY (tenant, environment, deployment)
);

-- +goose StatementBegin
DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['move_requests', 'application_moves'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY tenant_wall ON %I USING (in_scope(tenant, tenant_uid)) WITH CHECK (in_scope(tenant, tenant_uid))', t);
        EXECUTE format('CREATE POLICY agent_wall ON %I AS RESTRICTIVE USING ((SELECT agent_bound()) <> ''yes'')', t);
    END LOOP;
END $$;
-- +goose StatementEnd
GRANT SELECT ON application_moves TO argosy_reader;
