-- Comparisons under the next Argo CD that agents make. See docs/adr/0082-agents-compare.md.

-- +goose Up

-- When the shadow changed: its agent is sent the change.
ALTER TABLE shadows ADD COLUMN changed_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX shadows_changed ON shadows (changed_at);
CREATE TRIGGER shadow_changed BEFORE UPDATE ON shadows FOR EACH ROW
    WHEN ((OLD.state, OLD.version, OLD.digest, OLD.message) IS DISTINCT FROM (NEW.state, NEW.version, NEW.digest, NEW.message))
    EXECUTE FUNCTION instance_changed();

-- An agent reads the shadow of its own engine alone, which of its Applications were compared, and the shadow's manifests.
ALTER TABLE shadows ENABLE ROW LEVEL SECURITY;
ALTER TABLE shadows FORCE ROW LEVEL SECURITY;
CREATE POLICY everybody ON shadows USING (true);
CREATE POLICY agent_wall ON shadows AS RESTRICTIVE USING ((SELECT agent_bound()) <> 'yes' OR engine = (SELECT agent_scope()));
DROP POLICY agent_wall ON shadow_differences;
CREATE POLICY agent_wall ON shadow_differences AS RESTRICTIVE
    USING ((SELECT agent_bound()) <> 'yes' OR engine = (SELECT agent_scope()));
DROP POLICY agent_wall ON ring_manifests;
CREATE POLICY agent_wall ON ring_manifests AS RESTRICTIVE
    USING ((SELECT agent_bound()) <> 'yes' OR digest IN (SELECT i.digest FROM instances i WHERE i.engine = (SELECT agent_scope()))
        OR digest IN (SELECT w.digest FROM shadows w WHERE w.engine = (SELECT agent_scope()) AND w.state <> 'Ended'));
GRANT SELECT ON shadows, shadow_differences TO argosy_agent;
