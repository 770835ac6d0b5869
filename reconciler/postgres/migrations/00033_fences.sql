-- Fences of engines: their controllers are scaled to zero before they are evacuated. See docs/adr/0068-fences.md.

-- +goose Up

-- One row for each engine with a fence, until it is lifted. A rebuild of the mirror keeps it: it is a person's decision.
CREATE TABLE fences (
    engine       text COLLATE "C" PRIMARY KEY,
    id           text NOT NULL, -- of the operation, and on the engine's workloads
    state        text COLLATE "C" NOT NULL CHECK (state IN ('Checking', 'Scaling', 'Emptying', 'Fenced', 'Broken', 'Lifting')),
    message      text NOT NULL DEFAULT '',
    since        timestamptz NOT NULL DEFAULT now(), -- of state
    by           text NOT NULL,
    reason       text NOT NULL DEFAULT '',
    at           timestamptz NOT NULL DEFAULT now(),
    proven_at    timestamptz, -- when the last proof began that no writer was left
    workloads    jsonb NOT NULL DEFAULT '[]', -- with their replicas before
    confirmed_by text NOT NULL DEFAULT '' -- who has confirmed since that the silent engine is gone
);

-- Why no step may be taken that relies on the fence of an engine; '' if it is proven now, or if there is none.
-- +goose StatementBegin
CREATE FUNCTION unfenced(of_engine text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce((
        SELECT CASE
            WHEN f.state = 'Fenced' AND f.proven_at > clock_timestamp() - interval '15 seconds' THEN ''
            WHEN f.confirmed_by <> '' AND NOT EXISTS (SELECT FROM engines g JOIN leases l ON l.name = 'engine/' || g.engine
                WHERE g.engine = f.engine AND g.reachable AND l.expires_at > clock_timestamp()) THEN ''
            WHEN f.state = 'Fenced' THEN 'the fence of engine ' || f.engine || ' was proven at ' ||
                to_char(f.proven_at AT TIME ZONE 'UTC', 'HH24:MI:SS UTC') || ' and not since' || coalesce(nullif(': ' || f.message, ': '), '')
            ELSE 'the fence of engine ' || f.engine || ' is ' || f.state || coalesce(nullif(': ' || f.message, ': '), '') END
        FROM fences f WHERE f.engine = of_engine AND f.state <> 'Checking'), '')
$$;
-- +goose StatementEnd

-- Nor does one leave a fenced engine that may write.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION fence_evacuation(of_engine text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    why text;
BEGIN
    PERFORM FROM evacuations WHERE engine = of_engine AND state <> 'Ending' FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the evacuation of engine % has ended', of_engine;
    END IF;
    PERFORM FROM fences WHERE engine = of_engine FOR SHARE;
    why := unfenced(of_engine);
    IF why <> '' THEN
        RAISE EXCEPTION '%', why;
    END IF;
END $$;
-- +goose StatementEnd
