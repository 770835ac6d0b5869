-- What a search finds: the words of names, and what Applications run. See docs/adr/0095-search.md.

-- +goose Up

-- The images and commits that each Application runs, as its engine has reported them last. A row changes with a deployment, not with a
-- status: it is inserted and deleted, never updated. A row goes with the Application's status.
CREATE TABLE running (
    engine text COLLATE "C" NOT NULL,
    name   text COLLATE "C" NOT NULL,
    kind   text COLLATE "C" NOT NULL CHECK (kind IN ('image', 'commit')),
    value  text COLLATE "C" NOT NULL,
    short  text COLLATE "C" NOT NULL, -- of an image, the last part of its repository and its tag; else ''
    tag    text COLLATE "C" NOT NULL, -- of an image; else ''
    tenant text COLLATE "C" NOT NULL,
    PRIMARY KEY (engine, name, kind, value)
);
-- The range of a beginning; the columns that follow make it an index-only scan.
CREATE INDEX running_value ON running (value, tenant, kind);
CREATE INDEX running_short ON running (short, tenant, value) WHERE kind = 'image';
CREATE INDEX running_tag ON running (tag, tenant, value) WHERE kind = 'image';
CREATE INDEX running_tenant ON running (tenant, value, kind);

-- The names of declarations, each from each of its words on: checkout-api is checkout-api and api. kind Agent is an environment with an
-- agent. tenant of a Tenant is its own name.
CREATE TABLE search_words (
    kind   text COLLATE "C" NOT NULL,
    word   text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    name   text COLLATE "C" NOT NULL,
    PRIMARY KEY (kind, word, tenant, name)
);
CREATE INDEX search_words_tenant ON search_words (tenant, kind, word, name);
CREATE INDEX search_words_name ON search_words (kind, tenant, name);

-- Objects of engines by their names.
CREATE INDEX desired_name ON desired (name, tenant) WHERE kind = 'Application';

-- +goose StatementBegin
DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['running', 'search_words'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY tenant_wall ON %I USING (in_scope(tenant)) WITH CHECK (in_scope(tenant))', t);
        EXECUTE format('CREATE POLICY agent_wall ON %I AS RESTRICTIVE USING ((SELECT agent_bound()) <> ''yes'')', t);
    END LOOP;
END $$;
-- +goose StatementEnd
GRANT SELECT ON running, search_words TO argosy_reader;

-- The texts under which a name is found.
-- +goose StatementBegin
CREATE FUNCTION words_of(name text) RETURNS SETOF text LANGUAGE sql IMMUTABLE AS $$
    SELECT DISTINCT lower(substr(name, i)) FROM generate_series(1, length(name)) AS i
    WHERE i = 1 OR substr(name, i - 1, 1) IN ('-', '.', '_') AND substr(name, i, 1) NOT IN ('-', '.', '_')
$$;
-- +goose StatementEnd

-- The database keeps both itself, so that the version before this one, which does not know them, keeps them too.
-- +goose StatementBegin
CREATE FUNCTION keep_search_words() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM search_words w USING before b
        WHERE w.kind IN (b.kind, CASE b.kind WHEN 'ManagedEnvironment' THEN 'Agent' END)
            AND w.tenant = CASE b.kind WHEN 'Tenant' THEN b.name ELSE b.tenant END AND w.name = b.name;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO search_words (kind, word, tenant, name)
        SELECT a.kind, word, CASE a.kind WHEN 'Tenant' THEN a.name ELSE a.tenant END, a.name
        FROM after a CROSS JOIN LATERAL words_of(a.name) AS word
        WHERE a.kind IN ('Tenant', 'ManagedEnvironment', 'GitOpsDeployment', 'GitOpsDeploymentSet', 'Engine', 'EnginePool')
        UNION ALL
        SELECT 'Agent', word, a.tenant, a.name FROM after a CROSS JOIN LATERAL words_of(a.name) AS word
        WHERE a.kind = 'ManagedEnvironment' AND a.body #> '{environment,agent}' IS NOT NULL
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER search_words_new AFTER INSERT ON declarations REFERENCING NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION keep_search_words();
CREATE TRIGGER search_words_gone AFTER DELETE ON declarations REFERENCING OLD TABLE AS before
    FOR EACH STATEMENT EXECUTE FUNCTION keep_search_words();

-- A declaration keeps its name; only whether its environment has an agent changes.
-- +goose StatementBegin
CREATE FUNCTION keep_agent_words() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM search_words w WHERE w.kind = 'Agent' AND w.tenant = NEW.tenant AND w.name = NEW.name;
    INSERT INTO search_words (kind, word, tenant, name)
    SELECT 'Agent', word, NEW.tenant, NEW.name FROM words_of(NEW.name) AS word WHERE NEW.body #> '{environment,agent}' IS NOT NULL;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER search_words_agent AFTER UPDATE ON declarations FOR EACH ROW
    WHEN (NEW.kind = 'ManagedEnvironment' AND (OLD.body #> '{environment,agent}' IS NULL) <> (NEW.body #> '{environment,agent}' IS NULL))
    EXECUTE FUNCTION keep_agent_words();

-- +goose StatementBegin
CREATE FUNCTION forget_running() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM running r USING (SELECT g.engine, g.name FROM gone g WHERE g.kind = 'Application') g
    WHERE r.engine = g.engine AND r.name = g.name;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER running_gone AFTER DELETE ON status REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION forget_running();

INSERT INTO search_words (kind, word, tenant, name)
SELECT d.kind, word, CASE d.kind WHEN 'Tenant' THEN d.name ELSE d.tenant END, d.name
FROM declarations d CROSS JOIN LATERAL words_of(d.name) AS word
WHERE d.kind IN ('Tenant', 'ManagedEnvironment', 'GitOpsDeployment', 'GitOpsDeploymentSet', 'Engine', 'EnginePool')
UNION ALL
SELECT 'Agent', word, d.tenant, d.name FROM declarations d CROSS JOIN LATERAL words_of(d.name) AS word
WHERE d.kind = 'ManagedEnvironment' AND d.body #> '{environment,agent}' IS NOT NULL
ON CONFLICT DO NOTHING;

INSERT INTO running (engine, name, kind, value, short, tag, tenant)
SELECT engine, name, 'commit', synced_revision, '', '', tenant FROM status WHERE kind = 'Application' AND synced_revision <> ''
ON CONFLICT DO NOTHING;
