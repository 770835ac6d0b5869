-- What a verification of the audit log looks for beside the chain. See docs/adr/0090-audit-log.md.

-- +goose Up

CREATE INDEX IF NOT EXISTS audit_forged ON audit (n) WHERE (hash IS NULL) <> (position IS NULL);
