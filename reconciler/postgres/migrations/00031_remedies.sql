-- Restarts of components of engines that do not work. See docs/adr/0063-remedies.md.

-- +goose Up

-- What Argosy does next about an engine that does not work, or why nothing.
ALTER TABLE engines ADD COLUMN next_remedy text NOT NULL DEFAULT '';
CREATE INDEX engines_faulty ON engines (engine) WHERE work NOT IN ('', 'Working') OR next_remedy <> '';

CREATE TABLE remedies (
    id           text COLLATE "C" PRIMARY KEY, -- of the operation
    engine       text COLLATE "C" NOT NULL,
    restarts     text COLLATE "C" NOT NULL,
    state        text COLLATE "C" NOT NULL DEFAULT 'Requested' CHECK (state IN
        ('Requested', 'Restarting', 'Restarted', 'Helped', 'DidNotHelp', 'Failed', 'Unneeded')),
    message      text NOT NULL DEFAULT '',
    since        timestamptz NOT NULL DEFAULT now(), -- of state
    fault        text COLLATE "C" NOT NULL,
    fault_since  timestamptz NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT now(),
    ended_at     timestamptz,
    over         boolean NOT NULL DEFAULT false -- the engine has worked since
);
CREATE UNIQUE INDEX remedies_open ON remedies (engine) WHERE ended_at IS NULL;
CREATE INDEX remedies_not_over ON remedies (engine) WHERE NOT over;
CREATE INDEX remedies_engine ON remedies (engine, requested_at);
