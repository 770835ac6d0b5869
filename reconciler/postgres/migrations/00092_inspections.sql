-- Reads of Applications behind agents, from the replica of the reader to the replica of the agent. See docs/adr/0085-agents-inspect.md.

-- +goose Up

-- Open reads. A crash of the database empties the table, and the readers ask again.
CREATE UNLOGGED TABLE inspections (
    id          text COLLATE "C" PRIMARY KEY,
    engine      text COLLATE "C" NOT NULL,
    tenant      text COLLATE "C" NOT NULL,
    tenant_uid  uuid,
    replica     text COLLATE "C" NOT NULL,           -- of the reader
    request     jsonb NOT NULL,
    ends_at     timestamptz NOT NULL,
    alive_until timestamptz NOT NULL,                -- the reader has gone after it
    run         text COLLATE "C" NOT NULL DEFAULT '', -- of the answer
    part        integer NOT NULL DEFAULT 0,          -- the last one that was accepted
    ended       boolean NOT NULL DEFAULT false       -- it was the last one
);
CREATE INDEX inspections_engine ON inspections (engine);
CREATE INDEX inspections_tenant ON inspections (tenant);

-- Parts of answers, until their reader takes them.
CREATE UNLOGGED TABLE inspection_parts (
    inspection  text COLLATE "C" NOT NULL REFERENCES inspections ON DELETE CASCADE,
    part        integer NOT NULL,
    tenant      text COLLATE "C" NOT NULL,
    tenant_uid  uuid,
    data        bytea NOT NULL,
    last        boolean NOT NULL,
    failure     jsonb,
    PRIMARY KEY (inspection, part)
);
ALTER TABLE inspection_parts ALTER COLUMN data SET STORAGE EXTERNAL; -- it is compressed already

-- An agent reads the requests of its own engine alone, and no answer.
ALTER TABLE inspections ENABLE ROW LEVEL SECURITY;
ALTER TABLE inspections FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_wall ON inspections USING (in_scope(tenant, tenant_uid)) WITH CHECK (in_scope(tenant, tenant_uid));
CREATE POLICY agent_wall ON inspections AS RESTRICTIVE
    USING ((SELECT agent_bound()) <> 'yes' OR engine = (SELECT agent_scope()));
ALTER TABLE inspection_parts ENABLE ROW LEVEL SECURITY;
ALTER TABLE inspection_parts FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_wall ON inspection_parts USING (in_scope(tenant, tenant_uid)) WITH CHECK (in_scope(tenant, tenant_uid));
CREATE POLICY agent_wall ON inspection_parts AS RESTRICTIVE USING ((SELECT agent_bound()) <> 'yes');
GRANT SELECT ON inspections TO argosy_agent;
