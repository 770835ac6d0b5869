-- Argo CD of managed engines, installed and upgraded ring by ring. See docs/adr/0071-rings.md.

-- +goose Up

-- The files of each version that an engine has or is to have, by the digest of their directory.
CREATE TABLE ring_manifests (
    digest    text COLLATE "C" PRIMARY KEY,
    version   text NOT NULL,
    files     bytea NOT NULL, -- JSON of content by path, compressed by gzip
    stored_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE rings (
    name         text COLLATE "C" PRIMARY KEY,
    state        text COLLATE "C" NOT NULL DEFAULT 'Waiting' CHECK (state IN
        ('Settled', 'Moving', 'Soaking', 'Waiting', 'Paused', 'Halted', 'Unavailable')),
    version      text NOT NULL DEFAULT '',
    digest       text COLLATE "C" NOT NULL DEFAULT '',
    message      text NOT NULL DEFAULT '',
    since        timestamptz NOT NULL DEFAULT now(), -- of state
    halted       text COLLATE "C" NOT NULL DEFAULT '', -- the digest at which a gate failed or a person returned it
    paused_at    timestamptz,
    paused_by    text NOT NULL DEFAULT '',
    pause_reason text NOT NULL DEFAULT '',
    position     integer NOT NULL DEFAULT 0 -- in the Fleet
);

CREATE TABLE instances (
    engine          text COLLATE "C" PRIMARY KEY,
    ring            text COLLATE "C" NOT NULL,
    state           text COLLATE "C" NOT NULL CHECK (state IN ('Installing', 'Running', 'Refused', 'Releasing')),
    version         text NOT NULL,
    digest          text COLLATE "C" NOT NULL,
    message         text NOT NULL DEFAULT '',
    since           timestamptz NOT NULL DEFAULT now(), -- of state
    good_version    text NOT NULL DEFAULT '',
    good_digest     text COLLATE "C" NOT NULL DEFAULT '',
    degraded_before integer NOT NULL DEFAULT 0,
    unknown_before  integer NOT NULL DEFAULT 0
);
CREATE INDEX instances_ring ON instances (ring, engine);
