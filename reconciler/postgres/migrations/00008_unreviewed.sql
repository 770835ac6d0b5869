-- Files that are held since nobody is known to have reviewed them, and who pushed what to the branch. Pushes cannot be had again from the
-- config repo: a rebuild keeps them.

-- +goose Up

ALTER TABLE holds ADD COLUMN IF NOT EXISTS paths jsonb NOT NULL DEFAULT '[]';

-- As signed deliveries of the Git host told. The first delivery of a push counts. No tenant reads it. Kept for 90 days.
CREATE TABLE IF NOT EXISTS pushes (
    after_commit  text COLLATE "C" NOT NULL,
    before_commit text COLLATE "C" NOT NULL,
    account       bigint NOT NULL,
    login         text NOT NULL,
    at            timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (after_commit, before_commit)
);
CREATE INDEX IF NOT EXISTS pushes_at ON pushes (at);
