-- Pushes to the repositories of Applications, and the Applications that each of them concerns. See docs/adr/0098-source-pushes.md.

-- +goose Up

-- What the Applications of each engine deploy from which repository: a push is looked up by the repository, the ref and each changed file
-- with its folders. Rows are derived from desired, up to source_index.seq.
CREATE TABLE IF NOT EXISTS source_watches (
    repository text COLLATE "C" NOT NULL,
    ref        text COLLATE "C" NOT NULL, -- a name without refs/heads/ or refs/tags/, HEAD, or *: the tags that a range may select
    path       text COLLATE "C" NOT NULL, -- a file or folder; '': the whole repository
    engine     text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    PRIMARY KEY (repository, ref, path, engine, name)
);
CREATE INDEX IF NOT EXISTS source_watches_object ON source_watches (engine, name);
CREATE INDEX IF NOT EXISTS desired_applications ON desired (seq) WHERE kind = 'Application';

CREATE TABLE IF NOT EXISTS source_index (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    seq  bigint NOT NULL
);
INSERT INTO source_index (seq) VALUES (0) ON CONFLICT DO NOTHING;

-- Pushes that are not handled yet.
CREATE TABLE IF NOT EXISTS source_pushes (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    repositories text[] NOT NULL,
    ref          text NOT NULL,
    is_default   boolean NOT NULL, -- whether ref is the default branch
    paths        text[], -- the changed files; NULL: not known, any
    tenant       text COLLATE "C" NOT NULL, -- whose Applications alone it refreshes; '': any
    at           timestamptz NOT NULL DEFAULT now()
);

-- How many pushes wait of each sender.
CREATE INDEX IF NOT EXISTS source_pushes_tenant ON source_pushes (tenant);

-- Refreshes that are not over. The worker of the engine, or its agent, carries them out as it does a person's.
CREATE TABLE IF NOT EXISTS source_refreshes (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    engine       text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    tenant       text COLLATE "C" NOT NULL,
    environment  text COLLATE "C" NOT NULL,
    deployment   text COLLATE "C" NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT now(),
    begun_at     timestamptz
) WITH (fillfactor = 80);
CREATE INDEX IF NOT EXISTS source_refreshes_engine ON source_refreshes (engine, id);
CREATE INDEX IF NOT EXISTS source_refreshes_object ON source_refreshes (engine, name, id);

-- +goose StatementBegin
DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['source_watches', 'source_pushes', 'source_refreshes'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('DROP POLICY IF EXISTS tenant_wall ON %I', t);
        EXECUTE format('CREATE POLICY tenant_wall ON %I USING (in_scope(tenant)) WITH CHECK (in_scope(tenant))', t);
        EXECUTE format('DROP POLICY IF EXISTS agent_wall ON %I', t);
    END LOOP;
    CREATE POLICY agent_wall ON source_watches AS RESTRICTIVE USING ((SELECT agent_bound()) <> 'yes');
    CREATE POLICY agent_wall ON source_pushes AS RESTRICTIVE USING ((SELECT agent_bound()) <> 'yes');
    CREATE POLICY agent_wall ON source_refreshes AS RESTRICTIVE
        USING ((SELECT agent_bound()) <> 'yes' OR engine = (SELECT agent_scope()));
END $$;
-- +goose StatementEnd
GRANT SELECT ON source_refreshes TO argosy_agent;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION forget_watches() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM source_watches w USING (SELECT g.engine, g.name FROM gone g WHERE g.kind = 'Application') g
    WHERE w.engine = g.engine AND w.name = g.name;
    DELETE FROM source_refreshes r USING (SELECT g.engine, g.name FROM gone g WHERE g.kind = 'Application') g
    WHERE r.engine = g.engine AND r.name = g.name;
    RETURN NULL;
END $$;
-- +goose StatementEnd
DROP TRIGGER IF EXISTS watches_gone ON desired;
CREATE TRIGGER watches_gone AFTER DELETE ON desired REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION forget_watches();
