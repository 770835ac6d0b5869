-- What owners of tenants let pass the freezes of their tenant. See docs/adr/0083-passing-own-freezes.md.

-- +goose Up

-- It is not a column of approvals: the version before would take such an approval for one of the platform.
CREATE TABLE freeze_releases (
    revision   text COLLATE "C" NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    tenant_uid uuid,
    by         text NOT NULL,
    at         timestamptz NOT NULL,
    note       text NOT NULL,
    PRIMARY KEY (revision, tenant)
);
CREATE INDEX freeze_releases_at ON freeze_releases (at);

ALTER TABLE freeze_releases ENABLE ROW LEVEL SECURITY;
ALTER TABLE freeze_releases FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_wall ON freeze_releases USING (in_scope(tenant, tenant_uid)) WITH CHECK (in_scope(tenant, tenant_uid));
CREATE POLICY agent_wall ON freeze_releases AS RESTRICTIVE USING ((SELECT agent_bound()) <> 'yes');
GRANT SELECT ON freeze_releases TO argosy_reader;
