-- The proofs that an agent's sessions were opened with of late, and until when each is remembered: a request that was recorded on its way opens
-- none, on whichever replica.

-- +goose Up

ALTER TABLE agents ADD COLUMN proofs jsonb NOT NULL DEFAULT '{}';
