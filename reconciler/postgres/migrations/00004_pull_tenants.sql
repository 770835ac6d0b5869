-- The pull requests of each tenant, newest first: who lists those of one tenant reads no other's.

-- +goose Up

-- One row for each tenant that a pull request touches, '' the platform; tenant_uid is the tenant that bore the name when it was saved, if
-- there was one. Kept by the database itself, so that the version before this one, which knows nothing of it, keeps it too.
CREATE TABLE pull_tenants (
    tenant     text COLLATE "C" NOT NULL,
    number     integer NOT NULL REFERENCES pulls ON DELETE CASCADE,
    tenant_uid uuid,
    state      text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, number)
);
CREATE INDEX pull_tenants_state ON pull_tenants (tenant, state, number);
CREATE INDEX pull_tenants_number ON pull_tenants (number);

-- +goose StatementBegin
CREATE FUNCTION keep_pull_tenants() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND (OLD.state, OLD.tenants, OLD.tenant_uids) IS NOT DISTINCT FROM (NEW.state, NEW.tenants, NEW.tenant_uids) THEN
        RETURN NULL;
    END IF;
    DELETE FROM pull_tenants WHERE number = NEW.number AND tenant <> ALL (NEW.tenants);
    INSERT INTO pull_tenants AS p (tenant, number, tenant_uid, state)
    SELECT DISTINCT name, NEW.number, (SELECT t.uid FROM tenants t WHERE t.tenant = name AND t.uid = ANY (NEW.tenant_uids) LIMIT 1), NEW.state
    FROM unnest(NEW.tenants) AS name
    ON CONFLICT (tenant, number) DO UPDATE SET tenant_uid = excluded.tenant_uid, state = excluded.state
    WHERE (p.tenant_uid, p.state) IS DISTINCT FROM (excluded.tenant_uid, excluded.state);
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER pull_tenants AFTER INSERT OR UPDATE ON pulls FOR EACH ROW EXECUTE FUNCTION keep_pull_tenants();

INSERT INTO pull_tenants (tenant, number, tenant_uid, state)
SELECT DISTINCT name, p.number, (SELECT t.uid FROM tenants t WHERE t.tenant = name AND t.uid = ANY (p.tenant_uids) LIMIT 1), p.state
FROM pulls p, unnest(p.tenants) AS name;

ALTER TABLE pull_tenants ENABLE ROW LEVEL SECURITY;
ALTER TABLE pull_tenants FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_wall ON pull_tenants USING (in_scope(tenant, tenant_uid)) WITH CHECK (in_scope(tenant, tenant_uid));
GRANT SELECT ON pull_tenants TO argosy_reader;
