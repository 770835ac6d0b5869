-- Slices: parts of an environment, which are placed and move as environments do. See docs/adr/0066-slices.md.

-- +goose Up

-- '': the whole environment.
ALTER TABLE placements ADD COLUMN slice text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE move_requests ADD COLUMN slice text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE move_requests ADD COLUMN split boolean NOT NULL DEFAULT false; -- halve the slice; its second half moves
ALTER TABLE application_moves ADD COLUMN slice text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE drain_moves ADD COLUMN slice text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE rebalance_moves ADD COLUMN slice text COLLATE "C" NOT NULL DEFAULT '';

-- Rows of slices are in tables of their own, which inherit from those of whole environments: a statement on one of those
-- reads, changes and deletes both. The tables of whole environments keep their keys, which the previous version's
-- statements need.
-- +goose StatementBegin
DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['placements', 'move_requests', 'drain_moves'] LOOP
        EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I CHECK (slice = '''') NO INHERIT', t, t || '_whole');
        EXECUTE format('CREATE TABLE %I (CHECK (slice ~ ''^[01]{1,6}$''), PRIMARY KEY (tenant, environment, slice)) INHERITS (%I)',
            t || '_of_slices', t);
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t || '_of_slices');
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t || '_of_slices');
        EXECUTE format('CREATE POLICY tenant_wall ON %I USING (in_scope(tenant%s)) WITH CHECK (in_scope(tenant%s))', t || '_of_slices',
            CASE t WHEN 'placements' THEN '' ELSE ', tenant_uid' END, CASE t WHEN 'placements' THEN '' ELSE ', tenant_uid' END);
        EXECUTE format('CREATE POLICY agent_wall ON %I AS RESTRICTIVE USING ((SELECT agent_bound()) <> ''yes'')', t || '_of_slices');
    END LOOP;
END $$;
-- +goose StatementEnd
CREATE INDEX placements_of_slices_engine ON placements_of_slices (engine);
CREATE INDEX placements_of_slices_evacuated ON placements_of_slices (tenant, environment) WHERE body ? 'evacuated';
CREATE INDEX drain_moves_of_slices_engine ON drain_moves_of_slices (engine);
CREATE INDEX drain_moves_of_slices_at ON drain_moves_of_slices (at);

-- Whether one of two slices holds the other.
-- +goose StatementBegin
CREATE FUNCTION slices_overlap(a text, b text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN starts_with(a, b) OR starts_with(b, a);
-- +goose StatementEnd

-- move_mirror of versions that know slices.
-- +goose StatementBegin
CREATE FUNCTION move_mirror_with_slices(base text, head text, by_plan text, numbers bigint, stay boolean) RETURNS void LANGUAGE plpgsql AS $$
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

-- The previous version would give a split environment two owners: it records nothing while there is one.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION move_mirror(base text, head text, by_plan text, numbers bigint, stay boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE split text;
BEGIN
    PERFORM move_mirror_with_slices(base, head, by_plan, numbers, stay);
    SELECT min(tenant || '/' || environment) INTO split FROM placements_of_slices;
    IF split IS NOT NULL THEN
        RAISE EXCEPTION 'environment % is split, and this version does not know slices: run the newer version, or join it with that version first', split;
    END IF;
END $$;
-- +goose StatementEnd
