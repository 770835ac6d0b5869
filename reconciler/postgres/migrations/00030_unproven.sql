-- Objects whose deletion cannot be proven: a person has forgotten the engine or the cluster that had them. See docs/adr/0065-forgotten.md.

-- +goose Up

-- A row stays until the object's absence is proven, by a read of the engine or by a person. A rebuild of the mirror keeps it.
CREATE TABLE unproven (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lost         text COLLATE "C" NOT NULL CHECK (lost IN ('Engine', 'Cluster')), -- which of them is forgotten
    engine       text COLLATE "C" NOT NULL,
    kind         text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    tenant       text COLLATE "C" NOT NULL,
    environment  text COLLATE "C" NOT NULL,
    deployment   text COLLATE "C" NOT NULL,
    uid          text NOT NULL, -- '' when the object was never seen
    hash         text NOT NULL, -- of body
    body         bytea NOT NULL, -- of the last row
    seen_at      timestamptz,
    forgotten_at timestamptz NOT NULL DEFAULT now(),
    forgotten_by text NOT NULL,
    reason       text NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX unproven_object ON unproven (lost, engine, kind, name, uid);
CREATE INDEX unproven_environment ON unproven (tenant, environment);

-- The platform's: no right for argosy_reader and argosy_agent.
ALTER TABLE unproven ENABLE ROW LEVEL SECURITY;
ALTER TABLE unproven FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_wall ON unproven USING (in_scope(tenant)) WITH CHECK (in_scope(tenant));
CREATE POLICY agent_wall ON unproven AS RESTRICTIVE USING ((SELECT agent_bound()) <> 'yes');

-- When a person forgot the engine, and who; NULL unless its return is not expected any more.
ALTER TABLE evacuations ADD COLUMN forgotten_at timestamptz;
ALTER TABLE evacuations ADD COLUMN forgotten_by text NOT NULL DEFAULT '';
