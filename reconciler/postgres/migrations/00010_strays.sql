-- Strays: live objects that bear our labels and that no row names. And tombstones: what was proven gone lately, so that a request
-- from before its deletion, which arrives late and makes the object anew, is known for what it is.

-- +goose Up

-- Only this object is removed for the row, whoever has its name by then; '' of a row that the config repo asks for.
ALTER TABLE desired ADD COLUMN uid text NOT NULL DEFAULT '';

CREATE TABLE strays (
    engine      text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    tenant      text COLLATE "C" NOT NULL,
    environment text COLLATE "C" NOT NULL,
    deployment  text COLLATE "C" NOT NULL,
    uid         text NOT NULL,
    revision    text COLLATE "C" NOT NULL,
    epoch       bigint NOT NULL,
    found_at    timestamptz NOT NULL,
    deletion    text NOT NULL DEFAULT '', -- of a removal that is decided: Delete or Orphan
    removed_by  text NOT NULL DEFAULT '',
    removed_at  timestamptz,
    PRIMARY KEY (engine, kind, name)
);

CREATE TABLE tombstones (
    engine   text COLLATE "C" NOT NULL,
    kind     text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,
    tenant   text COLLATE "C" NOT NULL,
    uid      text NOT NULL, -- of the object that is gone; '' when none was ever seen
    epoch    bigint NOT NULL, -- of the lease under which it was proven gone
    seq      bigint NOT NULL, -- of its last row
    deletion text NOT NULL,
    at       timestamptz NOT NULL,
    PRIMARY KEY (engine, kind, name)
);
CREATE INDEX tombstones_at ON tombstones (at);

-- The platform's: no right for argosy_reader and argosy_agent. The walls stand all the same.
-- +goose StatementBegin
DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['strays', 'tombstones'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY tenant_wall ON %I USING (in_scope(tenant)) WITH CHECK (in_scope(tenant))', t);
        EXECUTE format('CREATE POLICY agent_wall ON %I AS RESTRICTIVE USING ((SELECT agent_bound()) <> ''yes'')', t);
    END LOOP;
END $$;
-- +goose StatementEnd

-- Decides that a stray is removed: one row asks for it, bound to the UID, and the engine's worker or agent handles it like any other
-- deletion. It takes the mirror's lock first, as Record does, so that a declaration that adopts the object comes before or after. It
-- returns the row's number; 0 when no stray of that UID is listed, a row names the object, or its removal is decided already.
-- +goose StatementBegin
CREATE FUNCTION remove_stray(of_engine text, of_kind text, of_name text, only_uid text, policy text, who text)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    n bigint;
    s strays%ROWTYPE;
BEGIN
    PERFORM FROM mirror FOR UPDATE;
    SELECT * INTO s FROM strays WHERE engine = of_engine AND kind = of_kind AND name = of_name FOR UPDATE;
    IF NOT FOUND OR s.uid <> only_uid OR s.uid = ''
        OR EXISTS (SELECT FROM desired d WHERE d.engine = of_engine AND d.kind = of_kind AND d.name = of_name) THEN
        RETURN 0;
    END IF;
    UPDATE mirror SET seq = seq + 1 RETURNING seq INTO n;
    INSERT INTO desired (engine, kind, name, tenant, environment, deployment, seq, created_at, changed_at, absent, deletion, revision, hash, body, uid)
    VALUES (s.engine, s.kind, s.name, s.tenant, s.environment, s.deployment, n, now(), now(), true, policy, '', encode(sha256('{}'), 'hex'), '{}', s.uid);
    UPDATE strays SET deletion = policy, removed_by = who, removed_at = now()
    WHERE engine = of_engine AND kind = of_kind AND name = of_name;
    RETURN n;
END $$;
-- +goose StatementEnd

-- When the engine's state was last seen to go back in time (restored from a backup), and how that showed.
ALTER TABLE engines ADD COLUMN went_back_at timestamptz;
ALTER TABLE engines ADD COLUMN went_back text NOT NULL DEFAULT '';
