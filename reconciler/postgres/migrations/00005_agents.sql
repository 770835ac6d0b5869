-- Agents: clusters that dial out, what they joined with and how they stand. None of it can be had again from the config repo or from the
-- engines without people: a rebuild keeps it. Of tokens there are SHA-256 hashes only, and of keys the public ones.
--
-- (tenant, name) is the declaration behind it: an environment, or, with tenant '', an Engine.

-- +goose Up

CREATE TABLE agents (
    id         text COLLATE "C" PRIMARY KEY,
    engine     text COLLATE "C" NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    tenant_uid uuid,
    name       text COLLATE "C" NOT NULL,
    -- the identity
    sign        bytea NOT NULL CHECK (length(sign) = 32),
    seal        bytea NOT NULL CHECK (length(seal) = 32),
    thumb       text COLLATE "C" NOT NULL,
    former      text COLLATE "C" NOT NULL DEFAULT '', -- thumb before the last rotation
    cluster_uid text NOT NULL,
    joined_at   timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL,
    ended_at    timestamptz,
    ended       text NOT NULL DEFAULT '' CHECK (ended IN ('', 'revoked', 'cloned')),
    -- what it was last told of its declaration, for when that is gone
    argocd_namespace text NOT NULL DEFAULT 'argocd',
    installation_id  text NOT NULL DEFAULT '',
    mode             text NOT NULL DEFAULT 'managed',
    declared         boolean NOT NULL DEFAULT true, -- see agent_stand; false also while the mirror is rebuilt
    generation       bigint NOT NULL DEFAULT 0,
    changed_at       timestamptz NOT NULL,
    -- its sessions
    opening      bigint NOT NULL DEFAULT 0,
    instance     text NOT NULL DEFAULT '',
    turns        jsonb NOT NULL DEFAULT '[]',
    connected_to text COLLATE "C" NOT NULL DEFAULT '',
    seen_at      timestamptz,
    report_seq   bigint NOT NULL DEFAULT 0,
    -- what it said last
    version           text NOT NULL DEFAULT '',
    reachable         boolean NOT NULL DEFAULT false,
    message           text NOT NULL DEFAULT '',
    argocd            text NOT NULL DEFAULT '',
    pending_deletions integer NOT NULL DEFAULT 0,
    held_deletions    integer NOT NULL DEFAULT 0,
    strays            integer NOT NULL DEFAULT 0,
    own               integer NOT NULL DEFAULT 0,
    CHECK ((tenant = '') = (tenant_uid IS NULL)),
    CHECK ((ended_at IS NULL) = (ended = ''))
) WITH (fillfactor = 60);
CREATE UNIQUE INDEX agents_live ON agents (engine) WHERE ended_at IS NULL;
CREATE INDEX agents_named ON agents (tenant, name, id);
CREATE INDEX agents_left ON agents (tenant, name) WHERE NOT declared AND ended_at IS NULL;
CREATE INDEX agents_ended ON agents (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX agents_changed ON agents (changed_at);

-- Registration tokens. given: a person chose the text, so that no part of it finds the row but its hash.
CREATE TABLE agent_tokens (
    id         text COLLATE "C" PRIMARY KEY,
    hash       bytea NOT NULL UNIQUE CHECK (length(hash) = 32),
    given      boolean NOT NULL,
    engine     text COLLATE "C" NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    tenant_uid uuid,
    name       text COLLATE "C" NOT NULL,
    legacy     boolean NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    used_at    timestamptz,
    used_by    text COLLATE "C" NOT NULL DEFAULT '', -- agent
    revoked_at timestamptz,
    CHECK ((tenant = '') = (tenant_uid IS NULL)),
    CHECK ((used_at IS NULL) = (used_by = ''))
);
CREATE INDEX agent_tokens_expire ON agent_tokens (expires_at);
CREATE INDEX agent_tokens_engine ON agent_tokens (engine);

-- Access tokens, by the assertion that each was given for.
CREATE TABLE agent_access (
    agent      text COLLATE "C" NOT NULL,
    assertion  text COLLATE "C" NOT NULL,
    hash       bytea NOT NULL UNIQUE CHECK (length(hash) = 32),
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (agent, assertion)
);
CREATE INDEX agent_access_expire ON agent_access (expires_at);

-- The processes of the hub, and when each last said that it lives.
CREATE TABLE replicas (
    replica text COLLATE "C" PRIMARY KEY,
    beat_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Applications that the people of an autonomous cluster made. epoch: the session's in which it was last told.
CREATE TABLE own_applications (
    engine          text COLLATE "C" NOT NULL,
    namespace       text COLLATE "C" NOT NULL,
    name            text COLLATE "C" NOT NULL,
    tenant          text COLLATE "C" NOT NULL,
    tenant_uid      uuid NOT NULL,
    environment     text COLLATE "C" NOT NULL,
    epoch           bigint NOT NULL,
    uid             text NOT NULL,
    project         text NOT NULL,
    repo_url        text NOT NULL,
    path            text NOT NULL,
    target_revision text NOT NULL,
    sync            text NOT NULL,
    health          text NOT NULL,
    synced_revision text NOT NULL,
    operation_phase text NOT NULL,
    operation_id    text NOT NULL,
    message         text NOT NULL,
    resources       integer NOT NULL,
    observed_at     timestamptz NOT NULL,
    PRIMARY KEY (engine, namespace, name)
) WITH (fillfactor = 70);
CREATE INDEX own_applications_tenant ON own_applications (tenant, environment, namespace, name);

-- Of a sync of one of these.
ALTER TABLE syncs ADD COLUMN namespace text COLLATE "C" NOT NULL DEFAULT '';

-- Which engines have news is asked for all agents at once: see AgentNews. The engines of environments are many, and have a dot; rows of other
-- engines are not in it, for they would pay for it. Nothing but AgentNews asks this way: who orders rows by number goes by desired_seq or
-- desired_revision.
CREATE INDEX desired_news ON desired (seq) WHERE strpos(engine, '.') > 0;

-- As before, but the rows of a revision are asked for as a range of the index (revision, seq): were the revision asked for as one value, the
-- planner would be free to go along another order and to throw away the rows of others. What was found is looked for once, not for each use.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION settle_revisions() RETURNS void LANGUAGE plpgsql
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET enable_seqscan = off AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM revisions WHERE applied_at IS NULL) THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('argosy settle', 0));
    WITH looked AS MATERIALIZED (
        SELECT r.n, r.witness, (
            SELECT d.seq FROM desired d LEFT JOIN status s ON s.engine = d.engine AND s.kind = d.kind AND s.name = d.name
            WHERE (d.revision, d.seq) >= (r.revision, r.witness) AND (d.revision, d.seq) <= (r.revision, 9223372036854775807)
                AND pending(d.seq, s.seq, s.state) ORDER BY d.revision, d.seq LIMIT 1) AS found
        FROM revisions r WHERE r.applied_at IS NULL),
    moved AS (
        UPDATE revisions r SET witness = coalesce(l.found, r.witness), applied_at = CASE WHEN l.found IS NULL THEN now() END
        FROM looked l WHERE r.n = l.n AND l.found IS DISTINCT FROM l.witness
        RETURNING r.revision, r.applied_at)
    UPDATE operations o SET state = 'Succeeded', done = o.total, ended_at = now()
    FROM moved m WHERE m.applied_at IS NOT NULL AND o.revision = m.revision AND o.kind = 'Reconcile' AND o.ended_at IS NULL AND o.state = 'Running';
END $$;
-- +goose StatementEnd

-- The environments and engines that an agent serves, among all declarations.
CREATE INDEX declarations_agent_environments ON declarations (tenant, name)
    WHERE kind = 'ManagedEnvironment' AND body #> '{environment,agent}' IS NOT NULL;
CREATE INDEX declarations_agent_engines ON declarations (name)
    WHERE kind = 'Engine' AND tenant = '' AND body #> '{engine,connection,agent}' IS NOT NULL;

-- How an agent stands to its declaration. 'declared'; 'removing': there is none any more, or it is reached in another way now, and what is left
-- on the cluster is the agent's to remove; '': what is there is another's.
-- +goose StatementBegin
CREATE FUNCTION agent_stand(of_tenant text, of_name text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN of_tenant <> '' THEN
        CASE WHEN EXISTS (SELECT FROM declarations d WHERE d.kind = 'ManagedEnvironment' AND d.tenant = of_tenant AND d.name = of_name
            AND d.body #> '{environment,agent}' IS NOT NULL) THEN 'declared' ELSE 'removing' END
    ELSE coalesce(
        (SELECT CASE WHEN d.body #> '{engine,connection,agent}' IS NOT NULL THEN 'declared' ELSE '' END
            FROM declarations d WHERE d.kind = 'Engine' AND d.tenant = '' AND d.name = of_name),
        (SELECT 'removing' FROM engines e WHERE e.engine = of_name AND e.spec #> '{connection,agent}' IS NOT NULL), '') END
$$;
-- +goose StatementEnd

-- Whether what belonged to that tenant is still its own: the tenant is there, or is gone and nobody else has its name. '' is the platform.
-- +goose StatementBegin
CREATE FUNCTION still_of(of_tenant text, of_uid uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT of_tenant = '' OR coalesce((SELECT t.uid FROM tenants t WHERE t.tenant = of_tenant AND t.removed_at IS NULL), of_uid) = of_uid
$$;
-- +goose StatementEnd

-- The wall between agents. What is read for one runs as argosy_agent, with argosy.engine set for the transaction. It stands beside the
-- tenants' wall and, being restrictive, never lets through what that one does not.
-- +goose StatementBegin
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'argosy_agent') THEN
        BEGIN
            CREATE ROLE argosy_agent NOLOGIN NOBYPASSRLS;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; -- another database of this server was faster
        END;
    END IF;
    IF NOT pg_has_role(current_user, 'argosy_agent', 'MEMBER') THEN
        EXECUTE format('GRANT argosy_agent TO %I', current_user);
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO argosy_agent', current_schema());
EXCEPTION WHEN insufficient_privilege THEN
    RAISE EXCEPTION 'role argosy_agent is needed and % may not make it', current_user
        USING ERRCODE = '42501',
              HINT = format('as an administrator: CREATE ROLE argosy_agent NOLOGIN NOBYPASSRLS; GRANT argosy_agent TO %I', current_user);
END $$;
-- +goose StatementEnd

-- The engine that reads are bounded to; '' is none. Policies ask it once a statement, and only when agent_bound says yes.
-- +goose StatementBegin
CREATE FUNCTION agent_scope() RETURNS text LANGUAGE sql STABLE AS $$ SELECT coalesce(current_setting('argosy.engine', true), '') $$;
-- +goose StatementEnd

-- Whether reads are bounded to an engine. A word rather than a boolean: of <> the planner expects that almost every row passes, as it does.
-- +goose StatementBegin
CREATE FUNCTION agent_bound() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN current_user = 'argosy_agent' OR coalesce(current_setting('argosy.engine', true), '') <> '' THEN 'yes' ELSE 'no' END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['agents', 'agent_tokens', 'own_applications'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY tenant_wall ON %I USING (in_scope(tenant, tenant_uid)) WITH CHECK (in_scope(tenant, tenant_uid))', t);
    END LOOP;
    FOR t IN SELECT c.relname FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid
        WHERE p.polname = 'tenant_wall' AND c.relnamespace = current_schema()::regnamespace LOOP
        IF t IN ('desired', 'status', 'syncs') THEN
            EXECUTE format('CREATE POLICY agent_wall ON %I AS RESTRICTIVE USING ((SELECT agent_bound()) <> ''yes'' OR engine = (SELECT agent_scope()))', t);
        ELSE
            EXECUTE format('CREATE POLICY agent_wall ON %I AS RESTRICTIVE USING ((SELECT agent_bound()) <> ''yes'')', t);
        END IF;
    END LOOP;
END $$;
-- +goose StatementEnd

-- replicas holds nothing of a tenant; the wall is for those who read it through the agents that they serve.
ALTER TABLE replicas ENABLE ROW LEVEL SECURITY;
ALTER TABLE replicas FORCE ROW LEVEL SECURITY;
CREATE POLICY everybody ON replicas USING (true);
CREATE POLICY agent_wall ON replicas AS RESTRICTIVE USING ((SELECT agent_bound()) <> 'yes');

GRANT SELECT ON desired, status, syncs TO argosy_agent;
GRANT SELECT ON own_applications, replicas TO argosy_reader;
-- A tenant reads neither keys nor hashes.
GRANT SELECT (id, engine, tenant, tenant_uid, name, joined_at, expires_at, ended_at, ended, mode, declared, connected_to, seen_at, version, reachable, message,
    argocd, pending_deletions, held_deletions, strays, own) ON agents TO argosy_reader;
GRANT SELECT (id, engine, tenant, tenant_uid, name, legacy, created_by, created_at, expires_at, used_at, revoked_at) ON agent_tokens TO argosy_reader;
