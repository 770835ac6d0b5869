-- The database may go back in time: it is restored from a backup, or a standby is promoted that lacks the last seconds. Nothing is taken as
-- ended or gone because a row is missing: ends and removals are records of their own.

-- +goose Up

-- The latest end of the stop of each place. A stop is in force until there is an end that is not before it: the lack of its row ends nothing.
CREATE TABLE IF NOT EXISTS stop_ends (
    scope  text COLLATE "C" NOT NULL CHECK (scope IN ('fleet', 'tenant', 'engine')),
    name   text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL GENERATED ALWAYS AS (CASE WHEN scope = 'tenant' THEN name ELSE '' END) STORED,
    by     text NOT NULL,
    at     timestamptz NOT NULL,
    PRIMARY KEY (scope, name)
);
ALTER TABLE stop_ends ENABLE ROW LEVEL SECURITY;
ALTER TABLE stop_ends FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_wall ON stop_ends;
CREATE POLICY tenant_wall ON stop_ends USING (scope = 'fleet' OR in_scope(tenant)) WITH CHECK (in_scope(tenant));
DROP POLICY IF EXISTS agent_wall ON stop_ends;
CREATE POLICY agent_wall ON stop_ends AS RESTRICTIVE USING ((SELECT agent_bound()) <> 'yes');

-- Ends the stop of a place at a time that is after it and after every earlier end of the place, whatever the clocks say.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION end_stop(of_scope text, of_name text, after timestamptz, ended_by text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO stop_ends AS e (scope, name, by, at)
    VALUES (of_scope, of_name, ended_by, greatest(clock_timestamp(), after + interval '1 microsecond'))
    ON CONFLICT (scope, name) DO UPDATE SET by = excluded.by, at = greatest(excluded.at, e.at + interval '1 microsecond')
$$;
-- +goose StatementEnd

-- The row of a stop is deleted to end it, and by nothing else: a binary of an earlier version that resumes leaves the record as well.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION keep_stop_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM end_stop(OLD.scope, OLD.name, OLD.at, coalesce(current_setting('argosy.by', true), ''));
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE OR REPLACE TRIGGER stop_ends AFTER DELETE ON stops FOR EACH ROW EXECUTE FUNCTION keep_stop_end();

-- A stop that is set is later than every end of its place.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION begin_stop() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.at := greatest(NEW.at, (SELECT e.at + interval '1 microsecond' FROM stop_ends e WHERE e.scope = NEW.scope AND e.name = NEW.name));
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE OR REPLACE TRIGGER stop_begins BEFORE INSERT OR UPDATE ON stops FOR EACH ROW EXECUTE FUNCTION begin_stop();

-- life: of this mirror, whatever server it is on. wanted and confirmed: sessions of workers ask for a confirmation with the next
-- number, and the leader confirms that what is applied follows from the head that it has just fetched.
ALTER TABLE mirror
    ADD COLUMN IF NOT EXISTS life      uuid   NOT NULL DEFAULT gen_random_uuid(),
    ADD COLUMN IF NOT EXISTS wanted    bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS confirmed bigint NOT NULL DEFAULT 0;

-- Which incarnation of the database this is: another one after a promotion, and in a restored copy. Any role may ask. Where the server does
-- not tell its timeline, what is stored in the mirror has to do.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION incarnation() RETURNS text LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    timeline text := '';
BEGIN
    BEGIN
        timeline := substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8);
    EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_function OR object_not_in_prerequisite_state THEN NULL;
    END;
    RETURN (SELECT timeline || '.' || d.oid || '.' || m.life FROM pg_database d, mirror m WHERE d.datname = current_database());
END $$;
-- +goose StatementEnd

-- Error AY001: what was read under a lease was read from another incarnation.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION fence_life(of_lease text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF incarnation() <> of_lease THEN
        RAISE EXCEPTION 'the database is another than the one that the lease is of' USING ERRCODE = 'AY001';
    END IF;
END $$;
-- +goose StatementEnd

-- As before, and a revision that moves the mirror on confirms it: its base was proven and is what stands.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION move_mirror(base text, head text, by_plan text, numbers bigint, stay boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE m mirror%ROWTYPE;
BEGIN
    SELECT * INTO m FROM mirror FOR UPDATE;
    IF NOT stay AND m.applied = head AND m.plan = by_plan THEN
        RAISE EXCEPTION 'revision % is recorded already', head USING ERRCODE = 'AY002';
    END IF;
    IF m.applied <> base THEN
        RAISE EXCEPTION 'the mirror stands at revision %, not %', m.applied, base USING ERRCODE = 'AY003';
    END IF;
    IF NOT stay THEN
        UPDATE mirror SET applied = head, plan = by_plan, seq = seq + numbers,
            confirmed = CASE WHEN base <> head THEN wanted ELSE confirmed END;
    END IF;
END $$;
-- +goose StatementEnd

-- Objects that are proven gone: their rows were deleted for that, and for nothing else. A record of another incarnation proves nothing.
CREATE TABLE IF NOT EXISTS removals (
    engine text COLLATE "C" NOT NULL,
    kind   text COLLATE "C" NOT NULL,
    name   text COLLATE "C" NOT NULL,
    life   text NOT NULL,
    at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (engine, kind, name)
);
CREATE INDEX IF NOT EXISTS removals_at ON removals (at);
ALTER TABLE removals ENABLE ROW LEVEL SECURITY;
ALTER TABLE removals FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS everybody ON removals;
CREATE POLICY everybody ON removals USING (true);
DROP POLICY IF EXISTS agent_wall ON removals;
CREATE POLICY agent_wall ON removals AS RESTRICTIVE USING ((SELECT agent_bound()) <> 'yes');

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION keep_removals() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO removals AS r (engine, kind, name, life)
    SELECT g.engine, g.kind, g.name, i.life FROM gone g, (SELECT incarnation() AS life) i WHERE g.absent
    ON CONFLICT (engine, kind, name) DO UPDATE SET life = excluded.life, at = excluded.at;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE OR REPLACE TRIGGER removals AFTER DELETE ON desired REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION keep_removals();
