-- Replicas tell each other that their workers run, and hand leases over to one another.

-- +goose Up

-- worked_at: when the workers of the replica last said that they run; NULL: they never did, or have ended.
-- preparing: sessions of theirs that have begun and do not write yet.
ALTER TABLE replicas ADD COLUMN IF NOT EXISTS worked_at timestamptz;
ALTER TABLE replicas ADD COLUMN IF NOT EXISTS preparing integer NOT NULL DEFAULT 0;

-- A lease that was released for another replica is nobody else's until then.
ALTER TABLE leases ADD COLUMN IF NOT EXISTS offered_to text;
ALTER TABLE leases ADD COLUMN IF NOT EXISTS offered_until timestamptz;
