-- Evacuations of dead engines: their environments get other engines without their part. See docs/adr/0058-evacuations.md.

-- +goose Up

-- One row for each evacuated engine, until a person ends the evacuation. A rebuild of the mirror keeps it: it is a
-- person's decision, as a stop is.
CREATE TABLE evacuations (
    engine    text COLLATE "C" PRIMARY KEY,
    operation text NOT NULL,
    state     text COLLATE "C" NOT NULL CHECK (state IN ('Moving', 'Waiting', 'Moved', 'Ending')),
    message   text NOT NULL DEFAULT '',
    since     timestamptz NOT NULL DEFAULT now(), -- of state
    by        text NOT NULL,
    reason    text NOT NULL DEFAULT '',
    restored  boolean NOT NULL DEFAULT false, -- the mirror was lost since: the engine's objects may have no rows
    at        timestamptz NOT NULL DEFAULT now()
);

-- The environments that evacuated engines have lost. Nearly always, there are none.
CREATE INDEX placements_evacuated ON placements (tenant, environment) WHERE body ? 'evacuated';

-- No environment leaves an engine whose evacuation a person has ended meanwhile.
-- +goose StatementBegin
CREATE FUNCTION fence_evacuation(of_engine text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM evacuations WHERE engine = of_engine AND state <> 'Ending' FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the evacuation of engine % has ended', of_engine;
    END IF;
END $$;
-- +goose StatementEnd
