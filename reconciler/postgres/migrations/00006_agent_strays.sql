-- Which environments the strays of an agent's cluster are of, each as tenant/name: after a rebuild they are placed where they stand. NULL: an
-- agent that does not tell. It is for placement alone; no tenant reads it.

-- +goose Up

ALTER TABLE agents ADD COLUMN stray_environments text[] COLLATE "C";
