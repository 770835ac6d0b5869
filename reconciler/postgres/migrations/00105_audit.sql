-- The audit log in monthly partitions, with a chain of hashes. See docs/adr/0090-audit-log.md.

-- +goose Up

-- The log becomes a partitioned table of its name, whose oldest partition is the former table. The version before writes and prunes on:
-- it names no column that it does not know, and the number and the time of an entry still are defaults.
-- +goose StatementBegin
DO $$
DECLARE boundary timestamptz;
BEGIN
    IF (SELECT relkind FROM pg_class WHERE oid = 'audit'::regclass) = 'p' THEN
        RETURN;
    END IF;
    LOCK TABLE audit IN ACCESS EXCLUSIVE MODE;
    SELECT date_trunc('month', greatest(now(), max(at)) AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' + interval '1 month' INTO boundary FROM audit;
    ALTER TABLE audit RENAME TO audit_before;
    DROP TRIGGER IF EXISTS audit_is_kept ON audit_before;
    DROP TRIGGER IF EXISTS audit_keeps_news ON audit_before;
    ALTER TABLE audit_before DROP CONSTRAINT audit_pkey;
    DROP INDEX IF EXISTS audit_at;
    ALTER TABLE audit_before ALTER COLUMN n DROP IDENTITY;
    ALTER TABLE audit_before
        ADD COLUMN engine text COLLATE "C" NOT NULL DEFAULT '',
        ADD COLUMN pull integer NOT NULL DEFAULT 0,
        ADD COLUMN operation text COLLATE "C" NOT NULL DEFAULT '',
        ADD COLUMN outcome text COLLATE "C" NOT NULL DEFAULT '',
        ADD COLUMN created integer NOT NULL DEFAULT 0,
        ADD COLUMN changed integer NOT NULL DEFAULT 0,
        ADD COLUMN deleted integer NOT NULL DEFAULT 0,
        ADD COLUMN held integer NOT NULL DEFAULT 0,
        ADD COLUMN problems integer NOT NULL DEFAULT 0,
        ADD COLUMN token text COLLATE "C" NOT NULL DEFAULT '',   -- id of the API's token, its public part
        ADD COLUMN session text COLLATE "C" NOT NULL DEFAULT '', -- id of the person's session, its public part
        ADD COLUMN issuer text COLLATE "C" NOT NULL DEFAULT '',  -- of the person's identity
        ADD COLUMN account text COLLATE "C" NOT NULL DEFAULT '', -- subject of the person at the issuer
        -- The seal, absent until the entry is sealed.
        ADD COLUMN format smallint,
        ADD COLUMN position bigint,
        ADD COLUMN previous bytea,
        ADD COLUMN tenant_position bigint,
        ADD COLUMN tenant_previous bytea,
        ADD COLUMN hash bytea;
    CREATE TABLE audit (LIKE audit_before INCLUDING DEFAULTS) PARTITION BY RANGE (at);
    CREATE SEQUENCE audit_numbers OWNED BY audit.n;
    PERFORM setval('audit_numbers', (SELECT coalesce(max(n), 0) + 1 FROM audit_before), false);
    ALTER TABLE audit ALTER COLUMN n SET DEFAULT nextval('audit_numbers');
    ALTER TABLE audit ADD PRIMARY KEY (n, at);
    CREATE INDEX audit_at ON audit (at);
    CREATE INDEX audit_position ON audit (position);
    CREATE INDEX audit_unsealed ON audit (at, n) WHERE hash IS NULL;
    CREATE INDEX audit_tenant ON audit (tenant, n);
    CREATE INDEX audit_actor ON audit (actor, n);
    CREATE INDEX audit_action ON audit (action, n);
    CREATE INDEX audit_subject ON audit (subject, n);
    CREATE INDEX audit_revision ON audit (revision, n) WHERE revision <> '';
    CREATE INDEX audit_operation ON audit (operation) WHERE operation <> '';
    ALTER TABLE audit ENABLE ROW LEVEL SECURITY;
    ALTER TABLE audit FORCE ROW LEVEL SECURITY;
    CREATE POLICY tenant_wall ON audit USING (in_scope(tenant, tenant_uid)) WITH CHECK (in_scope(tenant, tenant_uid));
    CREATE POLICY agent_wall ON audit AS RESTRICTIVE USING ((SELECT agent_bound()) <> 'yes');
    EXECUTE format('ALTER TABLE audit ATTACH PARTITION audit_before FOR VALUES FROM (MINVALUE) TO (%L)', boundary);
    CREATE TABLE audit_other PARTITION OF audit DEFAULT; -- a month without a partition: no decision fails for it
    ALTER TABLE audit_other ENABLE ROW LEVEL SECURITY;
    ALTER TABLE audit_other FORCE ROW LEVEL SECURITY;
    CREATE POLICY tenant_wall ON audit_other USING (in_scope(tenant, tenant_uid)) WITH CHECK (in_scope(tenant, tenant_uid));
    CREATE POLICY agent_wall ON audit_other AS RESTRICTIVE USING ((SELECT agent_bound()) <> 'yes');
    CREATE TRIGGER audit_is_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change();
    CREATE TRIGGER audit_keeps_news BEFORE DELETE ON audit FOR EACH ROW EXECUTE FUNCTION refuse_audit_change();
END $$;
-- +goose StatementEnd

-- An entry is never changed, but for its seal, once. One that is older than 90 days may go, by prune_audit alone.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_LEVEL = 'STATEMENT' THEN
        IF TG_OP = 'DELETE' AND coalesce(current_setting('argosy.prune_audit', true), '') = 'on'
            OR TG_OP = 'UPDATE' AND coalesce(current_setting('argosy.seal_audit', true), '') = 'on' THEN
            RETURN NULL;
        END IF;
        RAISE EXCEPTION 'the audit log is only ever added to' USING ERRCODE = '42501';
    END IF;
    IF TG_OP = 'UPDATE' THEN
        IF OLD.hash IS NULL AND NEW.hash IS NOT NULL
            AND (OLD.n, OLD.at, OLD.actor, OLD.action, OLD.subject, OLD.tenant, OLD.tenant_uid, OLD.revision, OLD.detail, OLD.engine, OLD.pull, OLD.operation,
                OLD.outcome, OLD.created, OLD.changed, OLD.deleted, OLD.held, OLD.problems, OLD.token, OLD.session, OLD.issuer, OLD.account)
            IS NOT DISTINCT FROM (NEW.n, NEW.at, NEW.actor, NEW.action, NEW.subject, NEW.tenant, NEW.tenant_uid, NEW.revision, NEW.detail, NEW.engine, NEW.pull,
                NEW.operation, NEW.outcome, NEW.created, NEW.changed, NEW.deleted, NEW.held, NEW.problems, NEW.token, NEW.session, NEW.issuer, NEW.account) THEN
            RETURN NEW;
        END IF;
        RAISE EXCEPTION 'the audit log is only ever added to' USING ERRCODE = '42501';
    END IF;
    IF OLD.at > now() - interval '90 days' THEN
        RAISE EXCEPTION 'the audit log keeps everything for at least 90 days' USING ERRCODE = '42501';
    END IF;
    RETURN OLD;
END $$;
-- +goose StatementEnd
CREATE OR REPLACE TRIGGER audit_is_sealed_once BEFORE UPDATE ON audit FOR EACH ROW EXECUTE FUNCTION refuse_audit_change();

-- The newest seal of the whole log (owner: the zero UUID) and of each tenant. A tenant's chain is part of the hash of its entries.
CREATE TABLE IF NOT EXISTS audit_heads (
    owner    uuid PRIMARY KEY,
    position bigint NOT NULL,
    hash     bytea NOT NULL
);
INSERT INTO audit_heads VALUES ('00000000-0000-0000-0000-000000000000', 0, '') ON CONFLICT DO NOTHING;

-- Where the chain begins since older entries were pruned.
CREATE TABLE IF NOT EXISTS audit_anchor (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    position bigint NOT NULL, -- of the last pruned entry
    hash     bytea NOT NULL,  -- and its hash
    pruned   bigint NOT NULL, -- entries, ever
    recorded bigint NOT NULL  -- of them, those of which the log itself has an entry
);
INSERT INTO audit_anchor VALUES (true, 0, '', 0, 0) ON CONFLICT DO NOTHING;

-- Creates the partitions of this and the next three months, with the policies and triggers of the log. It waits for no reader: a month that it
-- leaves out is tried again by the next call, an hour later.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION partition_audit() RETURNS void LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
DECLARE
    month timestamptz;
    name text;
BEGIN
    FOR month IN SELECT (date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => i)) AT TIME ZONE 'UTC' FROM generate_series(0, 3) i LOOP
        name := 'audit_' || to_char(month AT TIME ZONE 'UTC', '"y"YYYY"m"MM');
        BEGIN
            CONTINUE WHEN to_regclass(name) IS NOT NULL;
            EXECUTE format('CREATE TABLE %I (LIKE audit INCLUDING DEFAULTS)', name);
            EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
            EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
            EXECUTE format('CREATE POLICY tenant_wall ON %I USING (in_scope(tenant, tenant_uid)) WITH CHECK (in_scope(tenant, tenant_uid))', name);
            EXECUTE format('CREATE POLICY agent_wall ON %I AS RESTRICTIVE USING ((SELECT agent_bound()) <> ''yes'')', name);
            EXECUTE format('ALTER TABLE audit ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', name, month, month + interval '1 month');
        EXCEPTION
            -- the month lies in the oldest partition, or has entries in audit_other; a reader or another replica is in the way
            WHEN invalid_object_definition OR check_violation OR lock_not_available OR duplicate_table OR deadlock_detected THEN NULL;
        END;
    END LOOP;
END $$;
-- +goose StatementEnd
SELECT partition_audit();

-- Drops the oldest entries that are older than that, about so many at most, and returns how many. It drops them in the order of the chain, of which
-- audit_anchor keeps the end that they had: an entry that is not sealed stays, and so do those after one that is younger. A partition that is done with
-- goes as a whole, if no reader is in the way.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION prune_audit(age interval, most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    cut bigint;     -- position of the last entry that may go
    last bigint;    -- of the last one that goes now
    last_hash bytea;
    dropped bigint := 0;
    part regclass;
    low bigint;
    high bigint;
    n_of bigint;
BEGIN
    age := greatest(age, interval '90 days');
    IF NOT pg_try_advisory_xact_lock(hashtextextended('argosy prune audit', 0)) THEN
        RETURN 0;
    END IF;
    SELECT a.position - 1 INTO cut FROM audit a WHERE a.position IS NOT NULL AND a.at >= now() - age ORDER BY a.position LIMIT 1;
    IF cut IS NULL THEN
        SELECT max(a.position) INTO cut FROM audit a;
    END IF;
    SELECT count(*), max(o.position) INTO n_of, last FROM (SELECT a.position FROM audit a WHERE a.position <= cut ORDER BY a.position LIMIT most) o;
    IF n_of = 0 THEN
        RETURN 0;
    END IF;
    -- The first partition that has nothing but entries before the cut, which come before those of all others.
    SELECT c.oid::regclass INTO part FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'audit'::regclass AND c.relname NOT IN ('audit_before', 'audit_other') ORDER BY c.relname LIMIT 1;
    IF part IS NOT NULL AND NOT EXISTS (SELECT FROM audit_before) THEN
        EXECUTE format('SELECT count(*), min(position), max(position) FROM %s WHERE NOT EXISTS (SELECT FROM %s WHERE hash IS NULL)', part, part)
            INTO n_of, low, high;
        IF n_of > 0 AND high <= cut
            AND NOT EXISTS (SELECT FROM audit a WHERE a.position < high AND a.tableoid <> part::oid) THEN
            EXECUTE format('SELECT hash FROM %s WHERE position = $1', part) INTO last_hash USING high;
            BEGIN
                PERFORM set_config('lock_timeout', '200ms', true);
                EXECUTE format('DROP TABLE %s', part);
                dropped := n_of;
                last := high;
            EXCEPTION WHEN lock_not_available OR deadlock_detected THEN NULL; -- row by row
            END;
            PERFORM set_config('lock_timeout', '5s', true);
        END IF;
    END IF;
    IF dropped = 0 THEN
        SELECT a.hash INTO last_hash FROM audit a WHERE a.position = last;
        PERFORM set_config('argosy.prune_audit', 'on', true);
        DELETE FROM audit a WHERE a.position <= last;
        GET DIAGNOSTICS dropped = ROW_COUNT;
        PERFORM set_config('argosy.prune_audit', '', true);
    END IF;
    UPDATE audit_anchor SET position = last, hash = last_hash, pruned = pruned + dropped;
    RETURN dropped;
END $$;
-- +goose StatementEnd

-- How an operation began, when no decision of a person tells it, and how it ended, whoever ends it.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION audit_operation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit (actor, action, subject, tenant, tenant_uid, engine, revision, operation, outcome, detail)
    VALUES (CASE TG_OP WHEN 'INSERT' THEN NEW.requested_by ELSE 'argosy' END,
        CASE WHEN TG_OP = 'UPDATE' THEN 'end ' WHEN NEW.state = 'Held' THEN 'hold ' ELSE 'begin ' END || lower(NEW.kind),
        NEW.subject, NEW.tenant, NEW.tenant_uid, NEW.engine, NEW.revision, NEW.id, CASE TG_OP WHEN 'UPDATE' THEN NEW.state ELSE '' END, NEW.message);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE OR REPLACE TRIGGER operation_begins AFTER INSERT ON operations FOR EACH ROW
    WHEN (NEW.ended_at IS NULL AND (NEW.kind <> 'Reconcile' OR NEW.state = 'Held')) EXECUTE FUNCTION audit_operation();
CREATE OR REPLACE TRIGGER operation_ends AFTER UPDATE ON operations FOR EACH ROW
    WHEN (OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL) EXECUTE FUNCTION audit_operation();

-- The pull request of a commit of the branch.
CREATE INDEX IF NOT EXISTS pulls_merged ON pulls ((body->>'mergeCommit')) WHERE body->>'mergeCommit' <> '';

-- A tenant reads the entries about itself.
GRANT SELECT ON audit TO argosy_reader;
