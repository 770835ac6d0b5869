-- Commit statuses on the repositories of Applications. See docs/adr/0093-commit-statuses.md.

-- +goose Up

-- The commits that the last operation of an Application deployed or tried to.
ALTER TABLE status ADD COLUMN operation_revision text NOT NULL DEFAULT '';

-- One commit of an Application, and the report about it.
CREATE TABLE commit_statuses (
    tenant        text COLLATE "C" NOT NULL,
    tenant_uid    uuid,
    deployment    text COLLATE "C" NOT NULL,
    environment   text COLLATE "C" NOT NULL,
    repository    text COLLATE "C" NOT NULL,
    commit        text COLLATE "C" NOT NULL,
    settings      text COLLATE "C" NOT NULL,
    state         text COLLATE "C" NOT NULL CHECK (state IN ('Queued', 'InProgress', 'Failed', 'Succeeded', 'Ended')),
    was           text NOT NULL DEFAULT '',
    replaced_by   text NOT NULL DEFAULT '',
    message       text NOT NULL DEFAULT '',
    begun_at      timestamptz NOT NULL DEFAULT now(),
    changed_at    timestamptz NOT NULL DEFAULT now(),
    version       bigint NOT NULL DEFAULT 1,
    delivery      text COLLATE "C" NOT NULL DEFAULT 'Pending' CHECK (delivery IN ('Pending', 'Sending', 'Sent', 'Failed', 'Dropped')),
    attempts      integer NOT NULL DEFAULT 0,
    tried         boolean NOT NULL DEFAULT false,
    answer        text NOT NULL DEFAULT '',
    due           timestamptz NOT NULL DEFAULT now(),
    claimed_until timestamptz,
    sent_at       timestamptz,
    PRIMARY KEY (tenant, deployment, environment, repository, commit)
) WITH (fillfactor = 80);
CREATE INDEX commit_statuses_due ON commit_statuses (tenant, settings, due) WHERE delivery IN ('Pending', 'Sending');
CREATE INDEX commit_statuses_sent ON commit_statuses (tenant, settings, sent_at);
CREATE INDEX commit_statuses_changed ON commit_statuses (changed_at);

-- +goose StatementBegin
DO $$
BEGIN
    ALTER TABLE commit_statuses ENABLE ROW LEVEL SECURITY;
    ALTER TABLE commit_statuses FORCE ROW LEVEL SECURITY;
    CREATE POLICY tenant_wall ON commit_statuses USING (in_scope(tenant, tenant_uid)) WITH CHECK (in_scope(tenant, tenant_uid));
    CREATE POLICY agent_wall ON commit_statuses AS RESTRICTIVE USING ((SELECT agent_bound()) <> 'yes');
END $$;
-- +goose StatementEnd
GRANT SELECT ON commit_statuses TO argosy_reader;
