-- Environments that are larger than their engine, or than every engine. See docs/balancing.md.

-- +goose Up

-- Each collection of the metrics counts them: few of many placements.
CREATE INDEX placements_too_large ON placements (engine) WHERE body ? 'tooLarge';
CREATE INDEX placements_of_slices_too_large ON placements_of_slices (engine) WHERE body ? 'tooLarge';
