-- Argo CDs that agents install and upgrade. See docs/adr/0075-agents-roll-out.md.

-- +goose Up

-- When the instance changed: its agent is sent the change.
ALTER TABLE instances ADD COLUMN changed_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX instances_changed ON instances (changed_at);

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION instance_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.changed_at := clock_timestamp();
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER instance_changed BEFORE UPDATE ON instances FOR EACH ROW EXECUTE FUNCTION instance_changed();

-- An agent reads the instance of its own engine alone, and the manifests that this instance has or is to have.
ALTER TABLE instances ENABLE ROW LEVEL SECURITY;
ALTER TABLE instances FORCE ROW LEVEL SECURITY;
CREATE POLICY everybody ON instances USING (true);
CREATE POLICY agent_wall ON instances AS RESTRICTIVE USING ((SELECT agent_bound()) <> 'yes' OR engine = (SELECT agent_scope()));
ALTER TABLE ring_manifests ENABLE ROW LEVEL SECURITY;
ALTER TABLE ring_manifests FORCE ROW LEVEL SECURITY;
CREATE POLICY everybody ON ring_manifests USING (true);
CREATE POLICY agent_wall ON ring_manifests AS RESTRICTIVE
    USING ((SELECT agent_bound()) <> 'yes' OR digest IN (SELECT i.digest FROM instances i WHERE i.engine = (SELECT agent_scope())));
GRANT SELECT ON instances, ring_manifests TO argosy_agent;
