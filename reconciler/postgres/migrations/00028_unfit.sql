-- Which engines refuse writes: a move to or from one is refused. See docs/adr/0067-moves-from-git.md.

-- +goose Up

-- Why a reachable engine refuses writes: the blocking findings of its preflight; '': it does not.
ALTER TABLE engines ADD COLUMN unfit text NOT NULL DEFAULT '';
