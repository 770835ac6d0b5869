-- The version of agents in rings. See docs/adr/0075-agents-roll-out.md.

-- +goose Up

ALTER TABLE rings ADD COLUMN agent_version text NOT NULL DEFAULT '', ADD COLUMN agent_digest text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE instances ADD COLUMN agent_version text NOT NULL DEFAULT '', ADD COLUMN agent_digest text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN good_agent_version text NOT NULL DEFAULT '', ADD COLUMN good_agent_digest text COLLATE "C" NOT NULL DEFAULT '';
