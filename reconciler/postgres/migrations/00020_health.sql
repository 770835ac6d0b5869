-- Since when nothing is known of an engine, so that no state from before is shown as the present one.

-- +goose Up

-- The replica that the engine's agent is connected to, and when the agent was last seen; NULL: no agent was. As in the
-- agent's own row, which only its tenant may read.
ALTER TABLE engines ADD COLUMN agent_replica text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE engines ADD COLUMN agent_seen_at timestamptz;

-- Whether a reachable engine works; '': unknown.
ALTER TABLE engines ADD COLUMN work text NOT NULL DEFAULT '';
ALTER TABLE engines ADD COLUMN work_message text NOT NULL DEFAULT '';
ALTER TABLE engines ADD COLUMN work_since timestamptz;

-- +goose StatementBegin
CREATE FUNCTION keep_agent_contact() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO engines AS e (engine, agent_replica, agent_seen_at) VALUES (NEW.engine, NEW.connected_to, NEW.seen_at)
    ON CONFLICT (engine) DO UPDATE SET agent_replica = excluded.agent_replica, agent_seen_at = excluded.agent_seen_at;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER agent_contact AFTER UPDATE OF connected_to, seen_at ON agents
    FOR EACH ROW WHEN ((OLD.connected_to, OLD.seen_at) IS DISTINCT FROM (NEW.connected_to, NEW.seen_at))
    EXECUTE FUNCTION keep_agent_contact();
UPDATE engines e SET agent_replica = a.connected_to, agent_seen_at = a.seen_at FROM agents a
    WHERE a.engine = e.engine AND a.ended_at IS NULL;

-- When each engine was last seen, or NULL while it is followed: its API server cannot be reached, nobody follows it, its
-- application-controller is stuck, or its agent is not connected. Nothing is written for it: it follows from rows that
-- change with the engine. It is the platform's.
CREATE VIEW silences AS
    SELECT e.engine, least(
        CASE WHEN NOT e.reachable AND e.since < now() - interval '30 seconds' THEN e.since END,
        CASE WHEN e.reachable AND e.work = 'ControllerStuck' THEN e.work_since END,
        CASE WHEN l.expires_at > '-infinity' AND l.expires_at < now() - interval '1 minute' THEN l.expires_at END,
        CASE WHEN e.agent_seen_at IS NOT NULL AND (l.holder = '' OR starts_with(l.holder, 'agent/'))
                AND coalesce(r.beat_at <= clock_timestamp() - interval '30 seconds', true)
            THEN greatest(r.beat_at, e.agent_seen_at) END) AS since
    FROM engines e LEFT JOIN leases l ON l.name = 'engine/' || e.engine
        LEFT JOIN replicas r ON r.replica = e.agent_replica;

-- Of one engine, whoever asks: a tenant gets the time alone.
-- +goose StatementBegin
CREATE FUNCTION silent_since(of_engine text) RETURNS timestamptz LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path FROM CURRENT AS $$
    SELECT since FROM silences WHERE engine = of_engine
$$;
-- +goose StatementEnd

-- All silent engines; for a tenant, those that have Applications of its own. A filter over many rows asks once.
-- +goose StatementBegin
CREATE FUNCTION silent_engines() RETURNS SETOF text LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path FROM CURRENT AS $$
    SELECT engine FROM silences WHERE since IS NOT NULL AND (in_scope('') OR engine IN (
        SELECT d.engine FROM desired d WHERE d.kind = 'Application' AND d.tenant = current_setting('argosy.tenant', true)
        UNION ALL SELECT o.engine FROM own_applications o WHERE o.tenant = current_setting('argosy.tenant', true)))
$$;
-- +goose StatementEnd
