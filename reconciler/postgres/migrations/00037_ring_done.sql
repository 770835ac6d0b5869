-- The state of a ring whose soak is over is Done. It was Settled.

-- +goose Up

ALTER TABLE rings DROP CONSTRAINT rings_state_check;
UPDATE rings SET state = 'Done' WHERE state = 'Settled';
ALTER TABLE rings ADD CONSTRAINT rings_state_check CHECK (state IN
    ('Done', 'Moving', 'Soaking', 'Waiting', 'Paused', 'Halted', 'Unavailable'));
