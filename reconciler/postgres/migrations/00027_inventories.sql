-- Which engines were compared with the rows of this incarnation of the database. After the database went back in time, an
-- environment that has moved since is on another engine than its placement says.

-- +goose Up

-- The incarnation in which every object without a row on the engine was recorded; '': in none.
ALTER TABLE engines ADD COLUMN inventoried text NOT NULL DEFAULT '';

-- The incarnation in which the rows were confirmed last. An engine that is declared later in it is new.
ALTER TABLE mirror ADD COLUMN confirmed_in text NOT NULL DEFAULT '';
