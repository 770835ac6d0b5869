-- Which account or team of the Git host a name of an owner is pinned to. A login can be given up and taken by a stranger: its number cannot.

-- +goose Up

CREATE TABLE owners (
    host       text COLLATE "C" NOT NULL, -- URL of the Git host's API
    name       text COLLATE "C" NOT NULL, -- in lower case
    id         bigint NOT NULL,           -- that counts
    pinned_at  timestamptz NOT NULL,
    now_id     bigint NOT NULL DEFAULT 0, -- another one that has the name now; 0: the pinned one has it
    changed_at timestamptz,
    PRIMARY KEY (host, name)
);

-- The platform's: no right for argosy_reader and argosy_agent. The walls stand all the same.
ALTER TABLE owners ENABLE ROW LEVEL SECURITY;
ALTER TABLE owners FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_wall ON owners USING (in_scope('')) WITH CHECK (in_scope(''));
CREATE POLICY agent_wall ON owners AS RESTRICTIVE USING ((SELECT agent_bound()) <> 'yes');
