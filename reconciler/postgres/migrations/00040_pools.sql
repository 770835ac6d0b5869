-- Pools of engines that load makes and calm removes. See docs/adr/0073-pools.md. The instances are
-- Engines of the mirror (declarations); this table has what a pool remembers between two steps.

-- +goose Up
CREATE TABLE pools (
    name         text COLLATE "C" PRIMARY KEY,
    state        text COLLATE "C" NOT NULL DEFAULT 'Steady' CHECK (state IN
        ('Steady', 'Growing', 'Full', 'Draining', 'Waiting', 'Paused', 'Blocked', 'Unknown', 'Ending')),
    message      text NOT NULL DEFAULT '',
    since        timestamptz NOT NULL DEFAULT now(), -- of state
    load         integer NOT NULL DEFAULT 0, -- percent
    waiting      integer NOT NULL DEFAULT 0, -- environments
    high_since   timestamptz, -- the load is above the target
    low_since    timestamptz, -- the load is low enough for one instance less
    stepped_at   timestamptz, -- the end of the last step
    paused_at    timestamptz,
    paused_by    text NOT NULL DEFAULT '',
    pause_reason text NOT NULL DEFAULT '',
    known_in     text NOT NULL DEFAULT '' -- the incarnation of the database in which its clusters were read
);

ALTER TABLE instances DROP CONSTRAINT instances_state_check;
ALTER TABLE instances ADD CONSTRAINT instances_state_check
    CHECK (state IN ('Installing', 'Running', 'Refused', 'Releasing', 'Removing'));
