-- Ending revisions costs what was acknowledged, and no acknowledgement waits for another engine's.

-- +goose Up

-- Ends those of the named open revisions (NULL: of all) whose every object has had what its row wants, and the operations that tell of them.
-- It is a statement of its own, sent after the transaction that acknowledged or recorded has been committed: of two transactions that took the
-- last two pending rows of a revision, the one that asks later sees both. So there is no lock among those who ask.
--
-- What was found is written only while the revision is as it was read: one that was recorded again meanwhile (recorded_at), that another has
-- ended, or whose witness another has moved on, keeps what it has. Whoever waits too long for a row leaves it to the next who asks.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION settle(named text[]) RETURNS void LANGUAGE plpgsql
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET enable_seqscan = off SET lock_timeout = '500ms' AS $$
DECLARE l record;
BEGIN
    IF named IS NULL THEN
        SELECT array_agg(r.revision) INTO named FROM revisions r WHERE r.applied_at IS NULL;
    END IF;
    FOR l IN
        WITH looked AS MATERIALIZED (
            SELECT r.n, r.revision, r.witness, r.recorded_at, (
                SELECT d.seq FROM desired d LEFT JOIN status s ON s.engine = d.engine AND s.kind = d.kind AND s.name = d.name
                WHERE (d.revision, d.seq) >= (r.revision, r.witness) AND (d.revision, d.seq) <= (r.revision, 9223372036854775807)
                    AND pending(d.seq, s.seq, s.state) ORDER BY d.revision, d.seq LIMIT 1) AS first
            FROM revisions r WHERE r.revision = ANY (named) AND r.applied_at IS NULL)
        SELECT * FROM looked WHERE first IS DISTINCT FROM witness ORDER BY n
    LOOP
        UPDATE revisions r SET witness = coalesce(l.first, r.witness), applied_at = CASE WHEN l.first IS NULL THEN clock_timestamp() END
        WHERE r.n = l.n AND r.applied_at IS NULL AND r.recorded_at = l.recorded_at AND (l.first IS NULL OR r.witness < l.first);
        IF FOUND AND l.first IS NULL THEN
            UPDATE operations o SET state = 'Succeeded', done = o.total, ended_at = clock_timestamp()
            WHERE o.revision = l.revision AND o.kind = 'Reconcile' AND o.ended_at IS NULL AND o.state = 'Running';
        END IF;
    END LOOP;
END $$;
-- +goose StatementEnd

-- What a sealed file's last use is asked by, when a declaration lets it go.
CREATE INDEX IF NOT EXISTS desired_sealed ON desired (credential_sealed) WHERE credential_sealed IS NOT NULL AND credential_sealed <> '';
