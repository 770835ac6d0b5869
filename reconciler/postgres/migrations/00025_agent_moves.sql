-- Moves to and from engines behind agents, which carry out the steps of their side. See docs/adr/0062-agents-move.md.

-- +goose Up

-- The version of the protocol in the agent's last session; 0: before this migration.
ALTER TABLE agents ADD COLUMN protocol integer NOT NULL DEFAULT 0;

-- Open moves are few; the ended ones stay for people.
CREATE INDEX application_moves_open ON application_moves (from_engine, to_engine) WHERE step <> 'Done';

-- An agent reads the moves of its own engine alone, and writes none.
DROP POLICY agent_wall ON application_moves;
CREATE POLICY agent_wall ON application_moves AS RESTRICTIVE
    USING ((SELECT agent_bound()) <> 'yes' OR (SELECT agent_scope()) IN (from_engine, to_engine));
GRANT SELECT ON application_moves TO argosy_agent;
