-- Rules that the database keeps itself.

-- +goose Up

-- A write is made under a lease or not at all. Error AY001: the lease has run out or passed on. One that has run out gives no right even
-- while nobody else has taken it: a holder that goes on writing would otherwise keep the others from taking it, who wait for its locks.
-- +goose StatementBegin
CREATE FUNCTION fence(lease text, who text, at bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM leases l WHERE l.name = lease AND l.holder = who AND l.epoch = at AND l.expires_at > clock_timestamp() FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'lease % of %, epoch %', lease, who, at USING ERRCODE = 'AY001';
    END IF;
    -- The arrays that follow are laid out in memory rather than on disk.
    PERFORM set_config('work_mem', '128MB', true);
END $$;
-- +goose StatementEnd

-- The status of an engine is written by one transaction at a time, so that two batches never wait for each other in a circle.
-- +goose StatementBegin
CREATE FUNCTION fence_engine(lease text, who text, at bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('argosy ' || lease, 0));
    PERFORM fence(lease, who, at);
END $$;
-- +goose StatementEnd

-- Takes the lock of the mirror, moves it from base to head and numbers so many rows. AY002: that has happened already; AY003: the mirror
-- stands elsewhere. A revision that waits as a whole gives stay, and moves nothing.
-- +goose StatementBegin
CREATE FUNCTION move_mirror(base text, head text, by_plan text, numbers bigint, stay boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE m mirror%ROWTYPE;
BEGIN
    SELECT * INTO m FROM mirror FOR UPDATE;
    IF NOT stay AND m.applied = head AND m.plan = by_plan THEN
        RAISE EXCEPTION 'revision % is recorded already', head USING ERRCODE = 'AY002';
    END IF;
    IF m.applied <> base THEN
        RAISE EXCEPTION 'the mirror stands at revision %, not %', m.applied, base USING ERRCODE = 'AY003';
    END IF;
    IF NOT stay THEN
        UPDATE mirror SET applied = head, plan = by_plan, seq = seq + numbers;
    END IF;
END $$;
-- +goose StatementEnd

-- The uid of the tenant that bears the name now.
-- +goose StatementBegin
CREATE FUNCTION live_tenant(called text) RETURNS uuid LANGUAGE sql STABLE AS $$
    SELECT t.uid FROM tenants t WHERE t.tenant = called AND t.removed_at IS NULL
$$;
-- +goose StatementEnd

-- Event numbers grow with the transaction's id. A reader takes those up to event_horizon, below the oldest transaction that still runs in
-- this database, and so never passes over an event that is committed later, without any lock.
-- +goose StatementBegin
CREATE FUNCTION new_event(kind text, tenant text, name text, txt text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO events (seq, kind, tenant, tenant_uid, name, text)
    VALUES ((pg_current_xact_id()::text::bigint << 20) | (nextval('event_numbers') & 1048575), kind, tenant, live_tenant(tenant), name, txt)
$$;
-- +goose StatementEnd

-- The highest number below which no event can be committed any more. It looks first at how far transactions have come and then at who is
-- still busy; what it returns holds for snapshots that are taken afterwards. Transactions of other databases do not count, unless
-- sessions of other roles hide what they do.
-- +goose StatementBegin
CREATE FUNCTION event_horizon() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    WITH point AS (
        SELECT pg_snapshot_xmin(s)::text::bigint AS low, pg_snapshot_xmax(s)::text::bigint AS high FROM pg_current_snapshot() s),
    busy AS (
        SELECT p.low, p.high, a.query, ((p.high & 4294967295) - a.backend_xid::text::bigint + 4294967296) % 4294967296 AS behind
        FROM point p LEFT JOIN pg_stat_activity a
            ON a.datname = current_database() AND a.backend_type = 'client backend' AND a.pid <> pg_backend_pid())
    SELECT (CASE WHEN bool_or(query = '<insufficient privilege>') THEN min(low)
                 ELSE least(min(high), min(high - behind) FILTER (WHERE behind < 2147483648)) END << 20) - 1
    FROM busy
$$;
-- +goose StatementEnd

-- Whether an object has what its row wants.
-- +goose StatementBegin
CREATE FUNCTION pending(seq bigint, acked bigint, state text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT acked IS NULL OR acked < seq OR state <> 'Applied'
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is only ever added to' USING ERRCODE = '42501';
END $$;
-- +goose StatementEnd
CREATE TRIGGER audit_is_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- The second wall between tenants. The first is the tenant in every query; this one holds when a query forgets it.
--
-- Reads for a tenant run as argosy_reader, with argosy.tenant set for the transaction. A policy looks at current_user rather than being
-- given TO a role, so that it also holds behind a view, which the database would judge as the view's owner.
-- +goose StatementBegin
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'argosy_reader') THEN
        BEGIN
            CREATE ROLE argosy_reader NOLOGIN NOBYPASSRLS;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; -- another database of this server was faster
        END;
    END IF;
    IF NOT pg_has_role(current_user, 'argosy_reader', 'MEMBER') THEN
        EXECUTE format('GRANT argosy_reader TO %I', current_user);
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO argosy_reader', current_schema());
EXCEPTION WHEN insufficient_privilege THEN
    RAISE EXCEPTION 'role argosy_reader is needed and % may not make it', current_user
        USING ERRCODE = '42501',
              HINT = format('as an administrator: CREATE ROLE argosy_reader NOLOGIN NOBYPASSRLS; GRANT argosy_reader TO %I', current_user);
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION in_scope(of text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN current_user = 'argosy_reader' OR coalesce(current_setting('argosy.tenant', true), '') <> ''
                THEN coalesce(of = nullif(current_setting('argosy.tenant', true), ''), false)
                ELSE true END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION in_scope(of text, of_uid uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN current_user = 'argosy_reader' OR coalesce(current_setting('argosy.tenant', true), '') <> ''
                THEN coalesce(of = nullif(current_setting('argosy.tenant', true), '') AND of_uid = live_tenant(of), false)
                ELSE true END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['tenants', 'declarations', 'sealed', 'quarantines', 'problems', 'placements', 'desired', 'status', 'holds',
                             'deletions', 'sync_holds'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY tenant_wall ON %I USING (in_scope(tenant)) WITH CHECK (in_scope(tenant))', t);
    END LOOP;
    FOREACH t IN ARRAY ARRAY['syncs', 'operations', 'audit', 'tokens', 'events'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY tenant_wall ON %I USING (in_scope(tenant, tenant_uid)) WITH CHECK (in_scope(tenant, tenant_uid))', t);
    END LOOP;
    -- The Tenant itself is the platform's declaration, and the tenant may read it.
    ALTER POLICY tenant_wall ON declarations USING (in_scope(CASE kind WHEN 'Tenant' THEN name ELSE tenant END));
    ALTER TABLE stops ENABLE ROW LEVEL SECURITY;
    ALTER TABLE stops FORCE ROW LEVEL SECURITY;
    CREATE POLICY tenant_wall ON stops USING (scope = 'fleet' OR in_scope(tenant)) WITH CHECK (in_scope(tenant));
END $$;
-- +goose StatementEnd

-- What a tenant may read at all. Tokens, the audit log and ciphertexts are not among it, nor is what belongs to the platform alone.
GRANT SELECT ON tenants, declarations, problems, placements, desired, status, holds, operations, events, stops, approvals TO argosy_reader;

-- Ends revisions of which every object has had what its row wants, and the operations that tell of them.
--
-- Each open revision keeps as its witness the first of its rows that is known to be pending. While that one is, nothing else is looked at;
-- when it no longer is, the search goes on after it. So a revision of n objects costs n looks in all, however many acknowledgements come.
-- One transaction settles at a time: the next then sees what that one acknowledged.
-- +goose StatementBegin
CREATE FUNCTION settle_revisions() RETURNS void LANGUAGE plpgsql
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET enable_seqscan = off AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM revisions WHERE applied_at IS NULL) THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('argosy settle', 0));
    WITH looked AS (
        SELECT r.n, r.witness, (
            SELECT d.seq FROM desired d LEFT JOIN status s ON s.engine = d.engine AND s.kind = d.kind AND s.name = d.name
            WHERE d.revision = r.revision AND d.seq >= r.witness AND pending(d.seq, s.seq, s.state) ORDER BY d.seq LIMIT 1) AS found
        FROM revisions r WHERE r.applied_at IS NULL),
    moved AS (
        UPDATE revisions r SET witness = coalesce(l.found, r.witness), applied_at = CASE WHEN l.found IS NULL THEN now() END
        FROM looked l WHERE r.n = l.n AND l.found IS DISTINCT FROM l.witness
        RETURNING r.revision, r.applied_at)
    UPDATE operations o SET state = 'Succeeded', done = o.total, ended_at = now()
    FROM moved m WHERE m.applied_at IS NOT NULL AND o.revision = m.revision AND o.kind = 'Reconcile' AND o.ended_at IS NULL AND o.state = 'Running';
END $$;
-- +goose StatementEnd
