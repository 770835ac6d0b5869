-- The owner whose decisions a token makes, as Tenant.spec.owners names them. See docs/adr/0076-wave-gates.md.

-- +goose Up

ALTER TABLE tokens ADD COLUMN owner text NOT NULL DEFAULT '';
