-- Sizes of the instances of pools. See docs/adr/0080-instance-sizes.md.

-- +goose Up

ALTER TABLE pools DROP CONSTRAINT pools_state_check;
ALTER TABLE pools ADD CONSTRAINT pools_state_check CHECK (state IN
    ('Steady', 'Growing', 'Resizing', 'Full', 'Draining', 'Waiting', 'Paused', 'Blocked', 'Unknown', 'Ending'));
ALTER TABLE pools ADD COLUMN sizing jsonb NOT NULL DEFAULT '{}'; -- mirror.SizeMemory by the number of the instance

ALTER TABLE instances ADD COLUMN size text NOT NULL DEFAULT ''; -- what its Pods have, reported by its worker; '': no size is set
