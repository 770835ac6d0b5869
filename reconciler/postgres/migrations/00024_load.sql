-- The measured load of engines. See docs/adr/0060-load.md.

-- +goose Up

ALTER TABLE engines ADD COLUMN load jsonb; -- NULL: never measured
