-- Messages about the fleet: what they are about, and how far they have come. See docs/adr/0092-notifications.md.

-- +goose Up

-- A state that messages are about, until its end has been sent.
CREATE TABLE incidents (
    trigger    text COLLATE "C" NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    tenant_uid uuid,
    subject    text COLLATE "C" NOT NULL,
    since      timestamptz NOT NULL,
    over_since timestamptz,
    sent       text[] COLLATE "C" NOT NULL,
    PRIMARY KEY (trigger, tenant, subject)
);

-- One event for one channel. Events of a channel that are due together are one message.
CREATE TABLE notifications (
    id            text COLLATE "C" PRIMARY KEY,
    tenant        text COLLATE "C" NOT NULL, -- of the channel
    tenant_uid    uuid,
    channel       text COLLATE "C" NOT NULL,
    state         text COLLATE "C" NOT NULL CHECK (state IN ('Pending', 'Sending', 'Sent', 'Failed', 'Dropped')),
    body          jsonb NOT NULL, -- mirror.Notification
    at            timestamptz NOT NULL,
    due           timestamptz NOT NULL,
    message       text COLLATE "C" NOT NULL DEFAULT '',
    attempts      integer NOT NULL DEFAULT 0,
    answer        text NOT NULL DEFAULT '',
    claimed_until timestamptz,
    ended_at      timestamptz
);
CREATE INDEX notifications_open ON notifications (tenant, channel, due) WHERE ended_at IS NULL;
CREATE INDEX notifications_ended ON notifications (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX notifications_at ON notifications (tenant, at);

-- +goose StatementBegin
DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['incidents', 'notifications'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY tenant_wall ON %I USING (in_scope(tenant, tenant_uid)) WITH CHECK (in_scope(tenant, tenant_uid))', t);
        EXECUTE format('CREATE POLICY agent_wall ON %I AS RESTRICTIVE USING ((SELECT agent_bound()) <> ''yes'')', t);
    END LOOP;
END $$;
-- +goose StatementEnd
GRANT SELECT ON notifications TO argosy_reader;
