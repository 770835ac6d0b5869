-- Agents of environments follow rings, and their tenant sees how far they have come. See docs/adr/0081-agents-alone.md.

-- +goose Up

-- A tenant reads the instances of its own agents alone: the policy of agents decides which ones these are.
CREATE POLICY tenant_wall ON instances AS RESTRICTIVE TO argosy_reader
    USING (EXISTS (SELECT FROM agents a WHERE a.engine = instances.engine AND a.ended_at IS NULL));
GRANT SELECT ON instances TO argosy_reader;
