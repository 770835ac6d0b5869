-- When the spans of a commit were exported. See docs/adr/0091-traces.md.

-- +goose Up

ALTER TABLE revisions ADD COLUMN IF NOT EXISTS traced_at timestamptz; -- NULL: not exported
