-- What the forge asks to look at, and what is kept of pull requests. None of it can be had again from the config repo: a rebuild keeps it.
--
-- The jobs that look are in River's tables (river_…), which are made after these migrations; they hold keys of looks and nothing else.

-- +goose Up

-- Deliveries of the forge that were taken, so that one that comes again is known. Kept for 30 days.
CREATE TABLE deliveries (
    id    text COLLATE "C" PRIMARY KEY,
    event text NOT NULL,
    at    timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX deliveries_at ON deliveries (at);

-- What is to be looked at. wanted: a job for it waits to begin. Whatever asks meanwhile is answered by that job.
CREATE TABLE looks (
    key      text COLLATE "C" PRIMARY KEY,
    wanted   boolean NOT NULL,
    priority smallint NOT NULL,
    body     jsonb NOT NULL,
    at       timestamptz NOT NULL DEFAULT now() -- when it was last wanted
);
CREATE INDEX looks_wanted ON looks (key) WHERE wanted;

-- One row a pull request. tenants are those that its plan touches, '' the platform; tenant_uids are the tenants that bore these names when
-- it was saved, so that a stranger who takes a name later does not see it.
CREATE TABLE pulls (
    number      integer PRIMARY KEY,
    state       text COLLATE "C" NOT NULL CHECK (state IN ('open', 'merged', 'closed')),
    head        text COLLATE "C" NOT NULL,
    settled     boolean NOT NULL,
    tenants     text[] NOT NULL,
    tenant_uids uuid[] NOT NULL,
    body        jsonb NOT NULL,
    changed_at  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX pulls_state ON pulls (state, number);
CREATE INDEX pulls_unsettled ON pulls (number) WHERE state = 'open' OR NOT settled;

-- The newest plan of each head that reviewers saw.
CREATE TABLE reviewed_plans (
    number   integer NOT NULL,
    head     text COLLATE "C" NOT NULL,
    base     text COLLATE "C" NOT NULL,
    hash     text NOT NULL,
    at       timestamptz NOT NULL,
    saved_at timestamptz NOT NULL,
    effects  jsonb NOT NULL,
    touches  text[] NOT NULL,
    report   bytea NOT NULL,
    PRIMARY KEY (number, head)
);
CREATE INDEX reviewed_plans_newest ON reviewed_plans (number, saved_at);
CREATE INDEX reviewed_plans_saved ON reviewed_plans (saved_at);

-- The files that the newest plan of each pull request changes.
CREATE TABLE pull_touches (
    number integer NOT NULL,
    touch  text COLLATE "C" NOT NULL,
    PRIMARY KEY (number, touch)
);
CREATE INDEX pull_touches_touch ON pull_touches (touch, number);

-- Whether a row that belongs to several tenants is one of the reader's. See in_scope(text, uuid).
-- +goose StatementBegin
CREATE FUNCTION in_scope(of uuid[]) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN current_user = 'argosy_reader' OR coalesce(current_setting('argosy.tenant', true), '') <> ''
                THEN coalesce(live_tenant(nullif(current_setting('argosy.tenant', true), '')) = ANY (of), false)
                ELSE true END
$$;
-- +goose StatementEnd

ALTER TABLE pulls ENABLE ROW LEVEL SECURITY;
ALTER TABLE pulls FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_wall ON pulls USING (in_scope(tenant_uids)) WITH CHECK (in_scope(tenant_uids));

-- A report holds the parts of all tenants that the plan touches. Whoever may see the pull request may read it, and is given their own part.
ALTER TABLE reviewed_plans ENABLE ROW LEVEL SECURITY;
ALTER TABLE reviewed_plans FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_wall ON reviewed_plans
    USING (EXISTS (SELECT FROM pulls p WHERE p.number = reviewed_plans.number AND in_scope(p.tenant_uids)))
    WITH CHECK (in_scope(ARRAY[]::uuid[]));

GRANT SELECT ON pulls, reviewed_plans TO argosy_reader;
