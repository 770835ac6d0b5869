-- Rebalances: proposals to relieve engines with a high measured load. See docs/adr/0064-rebalances.md.

-- +goose Up

ALTER TABLE move_requests ADD COLUMN rebalance text NOT NULL DEFAULT ''; -- that requested it

-- A rebuild of the mirror keeps both tables: they hold decisions of people.
CREATE TABLE rebalances (
    id           text COLLATE "C" PRIMARY KEY,
    state        text COLLATE "C" NOT NULL
        CHECK (state IN ('Proposed', 'Moving', 'Waiting', 'Paused', 'Stopped', 'Done', 'Rejected', 'Obsolete')),
    message      text NOT NULL DEFAULT '',
    since        timestamptz NOT NULL DEFAULT now(), -- of state
    engines      jsonb NOT NULL, -- with their load, as proposed
    proposed_at  timestamptz NOT NULL DEFAULT now(),
    accepted_by  text NOT NULL DEFAULT '',
    accepted_at  timestamptz,
    resumed_at   timestamptz NOT NULL DEFAULT '-infinity', -- by a person: what failed before counts no more
    ended_at     timestamptz
);
CREATE UNIQUE INDEX rebalances_open ON rebalances ((true)) WHERE ended_at IS NULL;
CREATE INDEX rebalances_ended ON rebalances (ended_at);

CREATE TABLE rebalance_moves (
    rebalance    text COLLATE "C" NOT NULL REFERENCES rebalances ON DELETE CASCADE,
    position     integer NOT NULL,
    tenant       text COLLATE "C" NOT NULL,
    environment  text COLLATE "C" NOT NULL,
    tenant_uid   uuid,
    from_engine  text COLLATE "C" NOT NULL,
    to_engine    text COLLATE "C" NOT NULL,
    applications integer NOT NULL,
    unready      integer NOT NULL,
    state        text COLLATE "C" NOT NULL DEFAULT 'Planned'
        CHECK (state IN ('Planned', 'Requested', 'Moved', 'Skipped', 'Refused', 'Undone')),
    message      text NOT NULL DEFAULT '',
    operation    text NOT NULL DEFAULT '',
    requested_at timestamptz,
    ended_at     timestamptz,
    PRIMARY KEY (rebalance, position)
);
CREATE INDEX rebalance_moves_requested ON rebalance_moves (operation) WHERE state = 'Requested';
CREATE INDEX rebalance_moves_ended ON rebalance_moves (ended_at) WHERE state IN ('Refused', 'Undone');
CREATE INDEX rebalance_moves_begun ON rebalance_moves (requested_at);
CREATE INDEX drain_moves_at ON drain_moves (at);
CREATE INDEX application_moves_since ON application_moves (since); -- the engines of moves that have ended of late

-- The platform's: no right for argosy_reader and argosy_agent.
ALTER TABLE rebalance_moves ENABLE ROW LEVEL SECURITY;
ALTER TABLE rebalance_moves FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_wall ON rebalance_moves USING (in_scope(tenant, tenant_uid)) WITH CHECK (in_scope(tenant, tenant_uid));
CREATE POLICY agent_wall ON rebalance_moves AS RESTRICTIVE USING ((SELECT agent_bound()) <> 'yes');
