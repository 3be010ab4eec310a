-- Staged changes: overlays on the registry, shown only to their cohorts.

CREATE TABLE rollouts (
    rollout_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    description    text   NOT NULL,
    author         text   NOT NULL,
    comment        text   NOT NULL DEFAULT '',
    state          text   NOT NULL CHECK (state IN ('active', 'paused', 'succeeded', 'aborted')),
    stages         jsonb  NOT NULL,                          -- canonical proto JSON, in order
    current_stage  integer NOT NULL DEFAULT 0,
    -- Of every stage that has begun: how far into the hash's 2^32 points its cohort reaches, and the revision it began at.
    reaches        bigint[] NOT NULL,
    entered        bigint[] NOT NULL,
    stage_started_at timestamptz NOT NULL,
    mark           bigint[] NOT NULL DEFAULT '{0,0,0,0}',    -- tallies when the stage began: ours good, bad, baseline's good, bad
    why            text   NOT NULL DEFAULT '',
    created_at     timestamptz NOT NULL,
    ended_at       timestamptz,
    revision       bigint NOT NULL                           -- of its last change
);
CREATE INDEX rollouts_open ON rollouts (rollout_id) WHERE state IN ('active', 'paused');

CREATE TABLE rollout_changes (
    rollout_id    bigint  NOT NULL REFERENCES rollouts,
    ordinal       integer NOT NULL,
    item          text    NOT NULL CHECK (item IN ('channel', 'policy')),
    channel_id    bigint  NOT NULL DEFAULT 0,
    name          text    NOT NULL DEFAULT '',               -- of the channel, under its candidate
    group_name    text    NOT NULL DEFAULT '',               -- of policies
    base_revision bigint  NOT NULL DEFAULT 0,                -- of the baseline at the start; 0: there was none
    spec_revision bigint,                                    -- the candidate's version; null: delete
    policy        jsonb,                                     -- the candidate of a policy; a channel's is in channel_specs
    active        boolean NOT NULL DEFAULT true,             -- false once the rollout ends
    PRIMARY KEY (rollout_id, ordinal)
);
-- "One active rollout per channel", kept by the database rather than by code.
CREATE UNIQUE INDEX rollout_changes_exclusive ON rollout_changes (item, channel_id, group_name) WHERE active;
CREATE UNIQUE INDEX rollout_changes_names ON rollout_changes (name) WHERE active AND item = 'channel';

-- Every candidate there ever was: a verdict that was reached under one says so by its spec_revision, however late it comes.
CREATE TABLE rollout_specs (
    channel_id    bigint NOT NULL,
    spec_revision bigint NOT NULL,
    rollout_id    bigint NOT NULL REFERENCES rollouts,
    PRIMARY KEY (channel_id, spec_revision)
);
CREATE INDEX rollout_specs_by_revision ON rollout_specs (spec_revision);
CREATE INDEX rollout_specs_by_rollout ON rollout_specs (rollout_id);

-- Work that exactly one replica does. Every write of the holder is conditional on `token`.
CREATE TABLE leases (
    name       text PRIMARY KEY,
    holder     text   NOT NULL,
    token      bigint NOT NULL,
    expires_at timestamptz NOT NULL
);
