-- The times of a commit's way. See docs/adr/0091-traces.md.

-- +goose Up

ALTER TABLE revisions
    ADD COLUMN IF NOT EXISTS fetched_at timestamptz,
    ADD COLUMN IF NOT EXISTS checked_at timestamptz,
    ADD COLUMN IF NOT EXISTS planned_at timestamptz,
    ADD COLUMN IF NOT EXISTS first_recorded_at timestamptz; -- recorded_at is that of the last record

-- When an Application was first Synced, and first Synced and Healthy, after its row was acknowledged. They are part of the update that a report makes
-- anyway, and no index has them, so that the update stays within its page.
ALTER TABLE status
    ADD COLUMN IF NOT EXISTS synced_at timestamptz,
    ADD COLUMN IF NOT EXISTS healthy_at timestamptz;
