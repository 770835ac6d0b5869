-- What lets old rows be found and dropped, and states that are looked for be found without reading everything.

-- +goose Up

-- The audit log is only ever added to. What is older than 90 days may go, by prune_audit alone.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_LEVEL = 'STATEMENT' THEN
        IF TG_OP = 'DELETE' AND coalesce(current_setting('argosy.prune_audit', true), '') = 'on' THEN
            RETURN NULL;
        END IF;
        RAISE EXCEPTION 'the audit log is only ever added to' USING ERRCODE = '42501';
    END IF;
    IF OLD.at > now() - interval '90 days' THEN
        RAISE EXCEPTION 'the audit log keeps everything for at least 90 days' USING ERRCODE = '42501';
    END IF;
    RETURN OLD;
END $$;
-- +goose StatementEnd
DROP TRIGGER IF EXISTS audit_is_kept ON audit;
DROP TRIGGER IF EXISTS audit_keeps_news ON audit;
CREATE TRIGGER audit_is_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change();
CREATE TRIGGER audit_keeps_news BEFORE DELETE ON audit FOR EACH ROW EXECUTE FUNCTION refuse_audit_change();

-- Drops the oldest entries that are older than that, at most so many, and returns how many.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION prune_audit(age interval, most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE dropped bigint;
BEGIN
    PERFORM set_config('argosy.prune_audit', 'on', true);
    DELETE FROM audit WHERE n IN (SELECT n FROM audit WHERE at < now() - age ORDER BY at LIMIT most FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS dropped = ROW_COUNT;
    PERFORM set_config('argosy.prune_audit', '', true);
    RETURN dropped;
END $$;
-- +goose StatementEnd

CREATE INDEX IF NOT EXISTS audit_at ON audit (at);
CREATE INDEX IF NOT EXISTS approvals_at ON approvals (at);

-- A tenant's status goes when another tenant takes the name. The column never changes, so updates of status still stay within their page.
CREATE INDEX IF NOT EXISTS status_tenant ON status (tenant);

-- The few rows that people look for among all. Where health or state becomes or ceases to be one of these, the update leaves its page; the
-- flood of other updates does not.
CREATE INDEX IF NOT EXISTS status_unwell ON status (health) WHERE health IN ('Degraded', 'Missing', 'Suspended');
CREATE INDEX IF NOT EXISTS status_failed ON status (state) WHERE state IN ('Failed', 'Conflict');

CREATE INDEX IF NOT EXISTS sealed_tenant ON sealed (tenant);

-- The engines that a placement did not choose, apart from what every start reads.
ALTER TABLE placements ADD COLUMN IF NOT EXISTS alternatives jsonb;

-- Refuses a part of a report that was taken, or that a later one has overtaken. It follows fence_engine, whose lock keeps reports of one engine in
-- an order.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION fence_report(agent text, seq bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE taken bigint;
BEGIN
    SELECT a.report_seq INTO taken FROM agents a WHERE a.id = agent;
    IF taken >= seq THEN
        RAISE EXCEPTION 'report % of agent %: report % was taken', seq, agent, taken USING ERRCODE = 'AY004';
    END IF;
END $$;
-- +goose StatementEnd

-- What a sealed file's last use is found by. Blobs compare by their bytes, as sealed.blob does: an index in another order finds none of them.
DROP INDEX IF EXISTS desired_sealed;
CREATE INDEX IF NOT EXISTS desired_sealed_blob ON desired (credential_sealed COLLATE "C") WHERE credential_sealed IS NOT NULL AND credential_sealed <> '';
