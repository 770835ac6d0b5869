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
