-- Drains of engines: what empties them, and the moves that it has requested. See docs/adr/0054-drains.md.

-- +goose Up

ALTER TABLE move_requests ADD COLUMN drain boolean NOT NULL DEFAULT false; -- requested by a drain

-- One row for each engine that is declared Draining.
CREATE TABLE drains (
    engine       text COLLATE "C" PRIMARY KEY,
    state        text COLLATE "C" NOT NULL CHECK (state IN ('Moving', 'Waiting', 'Paused', 'Stopped', 'Empty')),
    message      text NOT NULL DEFAULT '',
    since        timestamptz NOT NULL DEFAULT now(), -- of state
    paused_by    text NOT NULL DEFAULT '',
    pause_reason text NOT NULL DEFAULT '',
    paused_at    timestamptz,
    resumed_at   timestamptz NOT NULL DEFAULT '-infinity' -- by a person: what failed before counts no more
);

-- The last request of a drain for each environment, or the move off a draining engine that a person has undone.
CREATE TABLE drain_moves (
    tenant      text COLLATE "C" NOT NULL,
    environment text COLLATE "C" NOT NULL,
    tenant_uid  uuid,
    engine      text COLLATE "C" NOT NULL, -- that drains
    operation   text NOT NULL,
    state       text COLLATE "C" NOT NULL DEFAULT 'Requested' CHECK (state IN ('Requested', 'Refused', 'Undone')),
    message     text NOT NULL DEFAULT '', -- why it is Refused or Undone
    at          timestamptz NOT NULL DEFAULT now(), -- of the request
    ended_at    timestamptz, -- since when it is Refused or Undone
    PRIMARY KEY (tenant, environment)
);
CREATE INDEX drain_moves_engine ON drain_moves (engine);
CREATE INDEX application_moves_from ON application_moves (from_engine) WHERE step <> 'Done';

ALTER TABLE drain_moves ENABLE ROW LEVEL SECURITY;
ALTER TABLE drain_moves FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_wall ON drain_moves USING (in_scope(tenant, tenant_uid)) WITH CHECK (in_scope(tenant, tenant_uid));
CREATE POLICY agent_wall ON drain_moves AS RESTRICTIVE USING ((SELECT agent_bound()) <> 'yes');
