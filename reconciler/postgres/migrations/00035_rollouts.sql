-- Rollouts: changes of deployments on their way through waves. See docs/adr/0070-rollouts.md.

-- +goose Up

-- The hash of the manifest that the engine's Argo CD has compared last. Adding a column with a constant default rewrites no table.
ALTER TABLE status ADD COLUMN compared text NOT NULL DEFAULT '';

CREATE TABLE rollouts (
    id         text COLLATE "C" PRIMARY KEY,
    tenant     text COLLATE "C" NOT NULL,
    deployment text COLLATE "C" NOT NULL,
    tenant_uid uuid,
    state      text COLLATE "C" NOT NULL,
    body       jsonb NOT NULL, -- mirror.Rollout
    begun_at   timestamptz NOT NULL,
    ended_at   timestamptz
);
CREATE UNIQUE INDEX rollouts_open ON rollouts (tenant, deployment) WHERE ended_at IS NULL;
CREATE INDEX rollouts_ended ON rollouts (ended_at);

-- The manifest of each Application of an open rollout that the rollout can return to. The transaction that begins the rollout copies it.
CREATE TABLE rollout_manifests (
    tenant      text COLLATE "C" NOT NULL,
    deployment  text COLLATE "C" NOT NULL,
    environment text COLLATE "C" NOT NULL,
    tenant_uid  uuid,
    hash        text COLLATE "C" NOT NULL,
    body        bytea NOT NULL,
    PRIMARY KEY (tenant, deployment, environment, hash)
);

-- Decisions of people, which the leader's next step takes.
CREATE TABLE rollout_decisions (
    n          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    rollout    text COLLATE "C" NOT NULL REFERENCES rollouts ON DELETE CASCADE,
    tenant     text COLLATE "C" NOT NULL,
    tenant_uid uuid,
    verb       text COLLATE "C" NOT NULL CHECK (verb IN ('pause', 'resume', 'abort', 'approve')),
    wave       text NOT NULL DEFAULT '',
    by         text NOT NULL,
    reason     text NOT NULL DEFAULT '',
    at         timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX rollout_decisions_rollout ON rollout_decisions (rollout, n);

-- +goose StatementBegin
DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['rollouts', 'rollout_manifests', 'rollout_decisions'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY tenant_wall ON %I USING (in_scope(tenant, tenant_uid)) WITH CHECK (in_scope(tenant, tenant_uid))', t);
        EXECUTE format('CREATE POLICY agent_wall ON %I AS RESTRICTIVE USING ((SELECT agent_bound()) <> ''yes'')', t);
    END LOOP;
END $$;
-- +goose StatementEnd
GRANT SELECT ON rollouts TO argosy_reader;
