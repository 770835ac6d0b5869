-- Environments whose clusters their engines cannot read, and how many Applications there are parked meanwhile.

-- +goose Up

CREATE TABLE reach (
    engine      text COLLATE "C" NOT NULL,
    tenant      text COLLATE "C" NOT NULL,
    environment text COLLATE "C" NOT NULL,
    tenant_uid  uuid,
    reason      text NOT NULL,
    message     text NOT NULL,
    since       timestamptz NOT NULL,
    parked      integer NOT NULL,
    PRIMARY KEY (engine, tenant, environment)
);
CREATE INDEX reach_environment ON reach (tenant, environment);

ALTER TABLE reach ENABLE ROW LEVEL SECURITY;
ALTER TABLE reach FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_wall ON reach USING (in_scope(tenant, tenant_uid)) WITH CHECK (in_scope(tenant, tenant_uid));
CREATE POLICY agent_wall ON reach AS RESTRICTIVE USING ((SELECT agent_bound()) <> 'yes');
GRANT SELECT ON reach TO argosy_reader;
