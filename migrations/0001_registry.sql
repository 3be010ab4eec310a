-- The registry: what proxies serve from. Forward-only; later files expand first and contract a release later.

-- One row. Every write to the registry holds it FOR UPDATE from before its first read until its commit, so revisions become
-- visible in the order they were handed out: a reader at revision R has seen everything up to R. (A sequence does not
-- give that: a reader with a cursor loses rows that commit late.)
CREATE TABLE registry_head (
    singleton  boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    epoch      uuid    NOT NULL DEFAULT gen_random_uuid(),   -- `new-epoch` changes it after a restore or a lossy failover
    revision   bigint  NOT NULL DEFAULT 0,
    compacted  bigint  NOT NULL DEFAULT 0                    -- events at or below this are gone
);
INSERT INTO registry_head DEFAULT VALUES;

-- What this database knows about itself.
CREATE TABLE settings (
    name   text  PRIMARY KEY,
    value  bytea NOT NULL
);
-- Keys the hashes by which secrets are compared and shown: useless to whoever has only the hashes.
INSERT INTO settings VALUES
    ('secret_key', decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'));

-- The baseline of each channel: the columns that SQL asks about. The whole spec is the row of channel_specs with the same
-- spec_revision; one function writes both.
CREATE TABLE channels (
    channel_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name           text    NOT NULL CHECK (name ~ '^[a-z][a-z0-9-]{0,62}$'),
    provider       text    NOT NULL,
    base_url       text    NOT NULL,
    host           text    NOT NULL,                         -- of base_url, lower case, with its port
    groups         text[]  NOT NULL CHECK (cardinality(groups) > 0),
    auto_disable   boolean,                                  -- null: as the global policy says
    spec_revision  bigint  NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    deleted_at     timestamptz
);
CREATE UNIQUE INDEX channels_name_live ON channels (name) WHERE deleted_at IS NULL;
CREATE INDEX channels_newest ON channels (spec_revision DESC, channel_id DESC) WHERE deleted_at IS NULL;

-- Every spec a channel ever had, immutable: history, rollback, and the candidates of rollouts. Canonical proto JSON.
CREATE TABLE channel_specs (
    channel_id     bigint NOT NULL REFERENCES channels,
    spec_revision  bigint NOT NULL,
    spec           jsonb  NOT NULL,
    author         text   NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (channel_id, spec_revision)
);

-- groups x models of the baseline, written in the same transaction as the channel. Disabling flips `enabled` and keeps the
-- row, so priority and history survive; enabling flips it back. One table answers "who serves this?".
-- `enabled` is a projection of `statuses`: one statement recomputes a channel's rows in every transaction that writes one.
CREATE TABLE abilities (
    group_name      text    NOT NULL,
    model           text    NOT NULL,
    channel_id      bigint  NOT NULL REFERENCES channels,
    upstream_model  text    NOT NULL,
    priority        integer NOT NULL,
    weight          bigint  NOT NULL CHECK (weight >= 0),
    enabled         boolean NOT NULL DEFAULT true,
    PRIMARY KEY (group_name, model, channel_id)
);
CREATE INDEX abilities_by_channel ON abilities (channel_id, model);

-- Immutable but for retirement. A rotated key is a new row, so a late verdict names a dead one. A credential may serve
-- several channels of one provider and host (one account, rotated in one place, learnt to be dead once).
CREATE TABLE credentials (
    credential_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sealed_secret    bytea,                                  -- never selected by admin reads; wiped on retirement
    sealing_key_id   text   NOT NULL,                        -- which master key sealed it; 'plain' until sealing exists
    secret_hash      bytea,                                  -- keyed, for equality; wiped on retirement
    fingerprint      text   NOT NULL,
    revision         bigint NOT NULL,
    retired_revision bigint,
    created_at       timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX credentials_by_hash ON credentials (secret_hash) WHERE retired_revision IS NULL;
CREATE TABLE channel_credentials (
    channel_id     bigint  NOT NULL REFERENCES channels,
    rank           integer NOT NULL,
    credential_id  bigint  NOT NULL REFERENCES credentials,
    PRIMARY KEY (channel_id, rank),
    UNIQUE (channel_id, credential_id)
);
CREATE INDEX channel_credentials_by_credential ON channel_credentials (credential_id);

-- How requests are handled: one row per group, '' for all. Canonical proto JSON.
CREATE TABLE policies (
    group_name text   PRIMARY KEY,
    spec       jsonb  NOT NULL,
    revision   bigint NOT NULL
);

-- Departures from 'active', and rows whose fence still matters. 'probing' is not a state: it is what readers show while
-- probe_lease_until > now(). Taking a lease bumps no revision; every other write to the row clears it.
-- A verdict that waits for a probe (`pending_*`) is kept here too, so that an enable or a disable drops it with the rest, but it is
-- not part of the registry: a row of revision 0 reaches no proxy.
CREATE TABLE statuses (
    subject_kind    text   NOT NULL CHECK (subject_kind IN ('channel', 'credential', 'ability')),
    subject_id      bigint NOT NULL,
    model           text   NOT NULL DEFAULT '',              -- for abilities
    credential_id   bigint NOT NULL DEFAULT 0,               -- for abilities out with one key only
    state           text   NOT NULL CHECK (state IN ('active', 'disabled')),
    degraded        boolean NOT NULL DEFAULT false,
    cause           text   NOT NULL DEFAULT '',
    reason          text   NOT NULL DEFAULT '',
    actor           text   NOT NULL DEFAULT '',              -- who wrote this state
    evidence        jsonb,
    disabled_at     timestamptz,
    last_probed_at  timestamptz,
    retry_at        timestamptz,                             -- throttled: active again; else: next probe
    hinted          boolean NOT NULL DEFAULT false,          -- retry_at came from the provider
    failed_probes   integer NOT NULL DEFAULT 0,              -- the back-off exponent
    throttles       integer NOT NULL DEFAULT 0,              -- in a row without a hint
    throttled_until timestamptz,                             -- when the last throttle ended
    revision        bigint NOT NULL,
    fence_revision  bigint NOT NULL DEFAULT 0,
    pending_cause      text NOT NULL DEFAULT '',
    pending_reason     text NOT NULL DEFAULT '',
    pending_actor      text NOT NULL DEFAULT '',
    pending_evidence   jsonb,
    pending_since      timestamptz,
    pending_suppressed boolean NOT NULL DEFAULT false,
    due_at          timestamptz,                             -- when the prober should look; null: never
    probe_lease     uuid,
    probe_lease_until timestamptz,
    PRIMARY KEY (subject_kind, subject_id, model, credential_id),
    CHECK ((state = 'active') = (cause = ''))
);
CREATE INDEX statuses_due ON statuses (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX statuses_throttled ON statuses (retry_at) WHERE cause = 'throttled';
CREATE INDEX statuses_out ON statuses (disabled_at) WHERE state = 'disabled';
CREATE INDEX statuses_by_credential ON statuses (credential_id) WHERE credential_id <> 0;

-- Whether a status keeps its subject from being picked at a time: a throttle that is over does not.
CREATE FUNCTION status_out(s statuses, at timestamptz) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$ SELECT s.state = 'disabled' AND (s.cause <> 'throttled' OR s.retry_at > at) $$;

-- Audit log and outbox in one: what replicas replay to catch up and what ListEvents pages through.
CREATE TABLE events (
    revision    bigint  NOT NULL,
    ordinal     integer NOT NULL,                            -- several events of one transaction
    created_at  timestamptz NOT NULL,
    kind        text    NOT NULL,
    actor       text    NOT NULL,
    item        text    NOT NULL CHECK (item IN ('channel', 'credential', 'status', 'policy', '')),  -- what changed; '': nothing
    subject_kind text   NOT NULL DEFAULT '',                 -- as in statuses; also of channels and credentials
    subject_id  bigint  NOT NULL DEFAULT 0,
    model       text    NOT NULL DEFAULT '',
    credential_id bigint NOT NULL DEFAULT 0,
    group_name  text    NOT NULL DEFAULT '',                 -- of policies
    channel_ids bigint[] NOT NULL DEFAULT '{}',              -- the channels concerned
    detail      jsonb   NOT NULL DEFAULT '{}',
    PRIMARY KEY (revision, ordinal)
);
CREATE INDEX events_by_channel ON events USING gin (channel_ids);
CREATE INDEX events_by_kind ON events (kind, revision DESC, ordinal DESC);

-- A hint, never data. Only the registry's rare writes notify; reports must not (a commit with a NOTIFY takes a
-- database-wide lock).
CREATE FUNCTION notify_registry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_notify('registry', NEW.revision::text); RETURN NULL; END $$;
CREATE TRIGGER registry_head_notify AFTER UPDATE OF revision ON registry_head
    FOR EACH ROW EXECUTE FUNCTION notify_registry();
