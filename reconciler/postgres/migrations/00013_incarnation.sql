-- What tells one incarnation of the database from another also changes with a restore in place, and agents' leases are of one.

-- +goose Up

-- As before, and the file of the mirror's table: a dump that is restored in place brings the mirror's random value along, into another file.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION incarnation() RETURNS text LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    timeline text := '';
BEGIN
    BEGIN
        timeline := substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8);
    EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_function OR object_not_in_prerequisite_state THEN NULL;
    END;
    RETURN (SELECT timeline || '.' || d.oid || '.' || coalesce(pg_relation_filenode('mirror'), 0) || '.' || m.life
        FROM pg_database d, mirror m WHERE d.datname = current_database());
END $$;
-- +goose StatementEnd

-- The incarnation in which an agent's process was given its epoch; '' of what an earlier version gave. In another one the process gets a
-- higher epoch with its next session, for which it reads every row anew: numbers of rows that it knows count for nothing.
ALTER TABLE leases ADD COLUMN IF NOT EXISTS life text NOT NULL DEFAULT '';

-- Whether an acknowledgement by number alone may count: an agent of an earlier version names no content, and after the database went
-- back its numbers are those of other rows.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION same_life(of_lease text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT l.life IN ('', incarnation()) FROM leases l WHERE l.name = of_lease), true)
$$;
-- +goose StatementEnd
