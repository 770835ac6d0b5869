-- The mirror: what the config repo wants, and how it stands.
--
-- Every table that holds something of a tenant has a column `tenant`; '' is the platform. What must not pass to a tenant of the same
-- name that is created later carries the tenant's uid as well. Names compare by their bytes, whatever the database's collation.

-- +goose Up

CREATE TABLE tenants (
    uid        uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    tenant     text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    removed_at timestamptz
);
CREATE UNIQUE INDEX tenants_live ON tenants (tenant) WHERE removed_at IS NULL;

-- One row. Its lock puts revisions in an order, and rows are numbered under it, so that the order of seq is the order of commits.
CREATE TABLE mirror (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    applied text NOT NULL DEFAULT '',
    plan    text NOT NULL DEFAULT '',
    seq     bigint NOT NULL DEFAULT 0
);
INSERT INTO mirror DEFAULT VALUES;

-- What the planner remembers beside the tables below, as it gave it.
CREATE TABLE memory (
    one  boolean PRIMARY KEY DEFAULT true CHECK (one),
    body bytea
);
INSERT INTO memory DEFAULT VALUES;

-- How the config repo was last found.
CREATE TABLE source (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    url        text NOT NULL DEFAULT '',
    branch     text NOT NULL DEFAULT '',
    head       text NOT NULL DEFAULT '',
    fetched_at timestamptz,
    error      text NOT NULL DEFAULT '',
    since      timestamptz
);
INSERT INTO source DEFAULT VALUES;

-- (name, epoch) is a key so that taking a lease over, which changes the epoch, waits for writes that hold FOR KEY SHARE on the lease,
-- while renewing it, which does not, never waits.
CREATE TABLE leases (
    name       text COLLATE "C" PRIMARY KEY,
    holder     text NOT NULL,
    epoch      bigint NOT NULL,
    expires_at timestamptz NOT NULL,
    UNIQUE (name, epoch)
);

CREATE TABLE declarations (
    kind   text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    name   text COLLATE "C" NOT NULL,
    path   text COLLATE "C" NOT NULL,
    blob   text COLLATE "C" NOT NULL,
    body   jsonb NOT NULL,
    PRIMARY KEY (kind, tenant, name)
);

CREATE TABLE sealed (
    blob   text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    bytes  bytea NOT NULL,
    PRIMARY KEY (blob, tenant)
);

CREATE TABLE quarantines (
    kind     text COLLATE "C" NOT NULL,
    tenant   text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,
    body     jsonb NOT NULL,
    PRIMARY KEY (kind, tenant, name)
);

CREATE TABLE problems (
    path     text COLLATE "C" NOT NULL,
    kind     text COLLATE "C" NOT NULL,
    tenant   text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,
    n        integer NOT NULL,
    severity text NOT NULL,
    body     jsonb NOT NULL,
    PRIMARY KEY (path, kind, tenant, name, n)
);
CREATE INDEX problems_of ON problems (kind, tenant, name);
CREATE INDEX problems_tenant ON problems (tenant, path);

CREATE TABLE placements (
    tenant       text COLLATE "C" NOT NULL,
    environment  text COLLATE "C" NOT NULL,
    engine       text COLLATE "C" NOT NULL,
    applications integer NOT NULL,
    body         jsonb NOT NULL,
    PRIMARY KEY (tenant, environment)
);
CREATE INDEX placements_engine ON placements (engine);

-- The objects that engines are to have. Written once per change of an object, never for its status.
CREATE TABLE desired (
    engine            text COLLATE "C" NOT NULL,
    kind              text COLLATE "C" NOT NULL,
    name              text COLLATE "C" NOT NULL,
    tenant            text COLLATE "C" NOT NULL,
    environment       text COLLATE "C" NOT NULL,
    deployment        text COLLATE "C" NOT NULL,
    seq               bigint NOT NULL,
    created_at        timestamptz NOT NULL,
    changed_at        timestamptz NOT NULL,
    absent            boolean NOT NULL,
    held              boolean NOT NULL DEFAULT false,
    deletion          text NOT NULL,
    credential_tenant text COLLATE "C",
    credential_name   text COLLATE "C",
    credential_sealed text,
    revision          text COLLATE "C" NOT NULL,
    hash              text NOT NULL,
    body              bytea NOT NULL,
    PRIMARY KEY (engine, kind, name)
);
CREATE INDEX desired_seq ON desired (engine, seq);
CREATE INDEX desired_revision ON desired (revision, seq);
CREATE INDEX desired_application ON desired (tenant, deployment, environment, engine) WHERE kind = 'Application';
CREATE INDEX desired_created ON desired (created_at) WHERE kind = 'Application';
CREATE INDEX desired_credential ON desired (engine, credential_tenant, credential_name) WHERE credential_name IS NOT NULL;

-- How each object stands: what its worker did, and what the engine last said of it. Narrow, with room on its pages and no index beside
-- the key, so that every update stays within its page (HOT). A worker's batch often updates all rows of a page in one transaction, and the
-- old versions go only after it: so there is room for each row twice.
CREATE TABLE status (
    engine           text COLLATE "C" NOT NULL,
    kind             text COLLATE "C" NOT NULL,
    name             text COLLATE "C" NOT NULL,
    tenant           text COLLATE "C" NOT NULL,
    seq              bigint NOT NULL DEFAULT 0,
    state            text NOT NULL DEFAULT 'Pending' CHECK (state IN ('Pending', 'Applied', 'Failed', 'Conflict', 'Deleting', 'Held')),
    state_message    text NOT NULL DEFAULT '',
    acked_at         timestamptz,
    sync             text NOT NULL DEFAULT 'Unknown',
    health           text NOT NULL DEFAULT 'Unknown',
    resources        integer NOT NULL DEFAULT 0,
    gone             boolean NOT NULL DEFAULT false,
    uid              text NOT NULL DEFAULT '',
    synced_revision  text NOT NULL DEFAULT '',
    operation_phase  text NOT NULL DEFAULT '',
    operation_id     text NOT NULL DEFAULT '',
    operation_error  text NOT NULL DEFAULT '',
    message          text NOT NULL DEFAULT '',
    resource_version text NOT NULL DEFAULT '',
    reconciled_at    timestamptz,
    observed_at      timestamptz,
    PRIMARY KEY (engine, kind, name)
) WITH (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05);

-- What is known of each engine. spec is the last in effect, kept after the declaration has gone, for as long as there are rows to remove.
CREATE TABLE engines (
    engine    text COLLATE "C" PRIMARY KEY,
    spec      jsonb,
    reachable boolean NOT NULL DEFAULT false,
    message   text NOT NULL DEFAULT 'not looked at yet',
    since     timestamptz NOT NULL DEFAULT now(),
    argocd    text NOT NULL DEFAULT '',
    cursor    bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 70);

CREATE TABLE revisions (
    n            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    revision     text COLLATE "C" NOT NULL UNIQUE,
    author       text NOT NULL,
    subject      text NOT NULL,
    committed_at timestamptz NOT NULL,
    recorded_at  timestamptz NOT NULL,
    created      integer NOT NULL,
    changed      integer NOT NULL,
    deleted      integer NOT NULL,
    held         integer NOT NULL,
    problems     integer NOT NULL,
    witness      bigint NOT NULL DEFAULT 0,
    applied_at   timestamptz
) WITH (fillfactor = 80);
CREATE INDEX revisions_open ON revisions (revision) WHERE applied_at IS NULL;

CREATE TABLE holds (
    n        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    revision text COLLATE "C" NOT NULL,
    reason   text COLLATE "C" NOT NULL,
    tenant   text COLLATE "C" NOT NULL,
    items    jsonb NOT NULL,
    message  text NOT NULL,
    since    timestamptz NOT NULL,
    UNIQUE (revision, reason, tenant)
);

CREATE TABLE approvals (
    revision text COLLATE "C" PRIMARY KEY,
    by       text NOT NULL,
    at       timestamptz NOT NULL,
    note     text NOT NULL
);

CREATE TABLE deletions (
    n           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL,
    revision    text COLLATE "C" NOT NULL,
    tenant      text COLLATE "C" NOT NULL,
    environment text COLLATE "C" NOT NULL,
    deployment  text COLLATE "C" NOT NULL,
    engine      text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    approved    boolean NOT NULL DEFAULT false
);
CREATE INDEX deletions_at ON deletions (at);

CREATE TABLE syncs (
    id          text COLLATE "C" PRIMARY KEY,
    operation   text NOT NULL,
    engine      text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    tenant      text COLLATE "C" NOT NULL,
    tenant_uid  uuid,
    environment text COLLATE "C" NOT NULL,
    deployment  text COLLATE "C" NOT NULL,
    sync_run    text COLLATE "C" NOT NULL,
    revision    text COLLATE "C" NOT NULL,
    prune       boolean NOT NULL,
    state       text NOT NULL,
    message     text NOT NULL DEFAULT ''
);
CREATE INDEX syncs_open ON syncs (engine) WHERE state IN ('Pending', 'Running');

CREATE TABLE sync_holds (
    tenant          text COLLATE "C" NOT NULL,
    deployment      text COLLATE "C" NOT NULL,
    environment     text COLLATE "C" NOT NULL,
    sync_run        text COLLATE "C" NOT NULL,
    target_revision text NOT NULL,
    PRIMARY KEY (tenant, deployment, environment)
);

CREATE TABLE stops (
    scope  text COLLATE "C" NOT NULL CHECK (scope IN ('fleet', 'tenant', 'engine')),
    name   text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL GENERATED ALWAYS AS (CASE WHEN scope = 'tenant' THEN name ELSE '' END) STORED,
    by     text NOT NULL,
    reason text COLLATE "C" NOT NULL,
    at     timestamptz NOT NULL,
    PRIMARY KEY (scope, name)
);

CREATE TABLE operations (
    id           text COLLATE "C" PRIMARY KEY,
    kind         text COLLATE "C" NOT NULL,
    state        text NOT NULL CHECK (state IN ('Pending', 'Running', 'Succeeded', 'Failed', 'Held')),
    tenant       text COLLATE "C" NOT NULL,
    tenant_uid   uuid,
    engine       text COLLATE "C" NOT NULL,
    subject      text NOT NULL,
    revision     text COLLATE "C" NOT NULL,
    requested_by text NOT NULL,
    message      text NOT NULL,
    done         integer NOT NULL,
    total        integer NOT NULL,
    started_at   timestamptz NOT NULL,
    ended_at     timestamptz
) WITH (fillfactor = 80);
CREATE INDEX operations_tenant ON operations (tenant, id);
CREATE INDEX operations_open ON operations (revision) WHERE ended_at IS NULL;

-- What people did, for good.
CREATE TABLE audit (
    n          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT now(),
    actor      text NOT NULL,
    action     text NOT NULL,
    subject    text NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    tenant_uid uuid,
    revision   text COLLATE "C" NOT NULL DEFAULT '',
    detail     text NOT NULL DEFAULT ''
);

CREATE TABLE tokens (
    id         text COLLATE "C" PRIMARY KEY,
    hash       bytea NOT NULL,
    name       text COLLATE "C" NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    tenant_uid uuid,
    role       text NOT NULL CHECK (role IN ('read', 'write')),
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    CHECK ((tenant = '') = (tenant_uid IS NULL))
);

-- seq is the transaction's id and a number within it: see new_event.
CREATE SEQUENCE event_numbers;
CREATE TABLE events (
    seq        bigint PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT now(),
    kind       text COLLATE "C" NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    tenant_uid uuid,
    name       text COLLATE "C" NOT NULL,
    text       text NOT NULL
);
CREATE INDEX events_at ON events (at);
