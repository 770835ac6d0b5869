-- What the next version of an engine's Argo CD renders differently. See docs/adr/0072-shadow.md.

-- +goose Up

ALTER TABLE rings DROP CONSTRAINT rings_state_check;
ALTER TABLE rings ADD CONSTRAINT rings_state_check CHECK (state IN
    ('Done', 'Moving', 'Soaking', 'Waiting', 'Paused', 'Halted', 'Rendering', 'Differs', 'Unavailable'));

-- The next version's repo-server beside the present one of an engine.
CREATE TABLE shadows (
    engine       text COLLATE "C" PRIMARY KEY,
    ring         text COLLATE "C" NOT NULL,
    state        text COLLATE "C" NOT NULL CHECK (state IN ('Rendering', 'Compared', 'Failed', 'Ending', 'Ended')),
    version      text NOT NULL,
    digest       text COLLATE "C" NOT NULL,
    message      text NOT NULL DEFAULT '',
    since        timestamptz NOT NULL DEFAULT now(), -- of state
    compared_at  timestamptz,                        -- the last complete comparison with the digest
    applications integer NOT NULL DEFAULT 0,         -- of that comparison
    unrendered   integer NOT NULL DEFAULT 0
);

-- The last comparison of each Application of an engine with a shadow. No content of a Secret is in it.
CREATE TABLE shadow_differences (
    engine          text COLLATE "C" NOT NULL,
    application     text COLLATE "C" NOT NULL,
    ring            text COLLATE "C" NOT NULL,
    version         text NOT NULL,
    digest          text COLLATE "C" NOT NULL,
    tenant          text COLLATE "C" NOT NULL,
    tenant_uid      uuid,
    environment     text COLLATE "C" NOT NULL,
    deployment      text COLLATE "C" NOT NULL,
    inputs          text COLLATE "C" NOT NULL,            -- what the rendering depends on
    revision        text NOT NULL,
    unrendered      text NOT NULL DEFAULT '',             -- why neither version renders it
    error           text NOT NULL DEFAULT '',             -- why the next version alone does not
    hash            text COLLATE "C" NOT NULL DEFAULT '', -- of the difference; '' without one
    resources       jsonb NOT NULL DEFAULT '[]',
    more_resources  integer NOT NULL DEFAULT 0,
    found_at        timestamptz NOT NULL DEFAULT now(),   -- of hash
    approved_hash   text COLLATE "C" NOT NULL DEFAULT '', -- the approval counts for this difference alone
    approved_at     timestamptz,
    approved_by     text NOT NULL DEFAULT '',
    approval_reason text NOT NULL DEFAULT '',
    PRIMARY KEY (engine, application)
);
CREATE INDEX shadow_differences_found ON shadow_differences (engine, application) WHERE hash <> '';
CREATE INDEX shadow_differences_tenant ON shadow_differences (tenant, application) WHERE hash <> '';

ALTER TABLE shadow_differences ENABLE ROW LEVEL SECURITY;
ALTER TABLE shadow_differences FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_wall ON shadow_differences USING (in_scope(tenant, tenant_uid)) WITH CHECK (in_scope(tenant, tenant_uid));
CREATE POLICY agent_wall ON shadow_differences AS RESTRICTIVE USING ((SELECT agent_bound()) <> 'yes');
GRANT SELECT ON shadow_differences TO argosy_reader;
