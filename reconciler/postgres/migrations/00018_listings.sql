-- The repositories that tenants' sets list: the commit that was read last, and why the last read failed. The listings
-- themselves are in the declarations of the sets.

-- +goose Up

CREATE TABLE listings (
    tenant          text COLLATE "C" NOT NULL,
    repo_url        text COLLATE "C" NOT NULL,
    target_revision text COLLATE "C" NOT NULL,
    tenant_uid      uuid,
    commit          text NOT NULL,
    error           text NOT NULL,
    changed_at      timestamptz NOT NULL DEFAULT now(), -- of the commit
    since           timestamptz,                        -- of the error
    PRIMARY KEY (tenant, repo_url, target_revision)
);

ALTER TABLE listings ENABLE ROW LEVEL SECURITY;
ALTER TABLE listings FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_wall ON listings USING (in_scope(tenant, tenant_uid)) WITH CHECK (in_scope(tenant, tenant_uid));
CREATE POLICY agent_wall ON listings AS RESTRICTIVE USING ((SELECT agent_bound()) <> 'yes');
GRANT SELECT ON listings TO argosy_reader;
