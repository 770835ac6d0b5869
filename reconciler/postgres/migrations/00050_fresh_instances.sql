-- Gates of rings compare no engine that had no Application before its change. See docs/adr/0071-rings.md.

-- +goose Up

ALTER TABLE instances ADD COLUMN fresh boolean NOT NULL DEFAULT false;
