-- What proxies say, and answers that must not be given twice. No revision, no NOTIFY.

-- Idempotency for verdicts. Kept longer than any proxy's spool.
CREATE TABLE verdicts (
    verdict_id        uuid PRIMARY KEY,
    proxy_id          text   NOT NULL,
    subject_kind      text   NOT NULL,
    subject_id        bigint NOT NULL,
    model             text   NOT NULL DEFAULT '',
    credential_id     bigint NOT NULL DEFAULT 0,
    cause             text   NOT NULL,
    fence_revision    bigint NOT NULL DEFAULT 0,             -- the fence it was judged under
    observed_revision bigint NOT NULL,
    spec_revision     bigint NOT NULL DEFAULT 0,
    epoch             text   NOT NULL,                       -- as the proxy said
    disposition       text   NOT NULL,
    status_revision   bigint NOT NULL DEFAULT 0,             -- answered with APPLIED
    evidence          jsonb,
    received_at       timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX verdicts_recent ON verdicts (received_at);

-- What each proxy last said of a subject. Crossings write statuses.
CREATE TABLE health (
    proxy_id        text   NOT NULL,
    subject_kind    text   NOT NULL,
    subject_id      bigint NOT NULL,
    model           text   NOT NULL DEFAULT '',
    credential_id   bigint NOT NULL DEFAULT 0,
    spec_revision   bigint NOT NULL,
    successes       bigint NOT NULL DEFAULT 0,
    failures        bigint NOT NULL DEFAULT 0,
    trailing_failures bigint NOT NULL DEFAULT 0,
    observed_revision bigint NOT NULL DEFAULT 0,             -- of the newest attempt counted: below the fence it is history
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (proxy_id, subject_kind, subject_id, model, credential_id, spec_revision)
);
CREATE INDEX health_by_subject ON health (subject_kind, subject_id, model, credential_id);
CREATE INDEX health_recent ON health (updated_at);

-- Answers of calls that carry a request id, and ids of batches already counted.
CREATE TABLE requests (
    request_id  uuid PRIMARY KEY,
    method      text  NOT NULL,
    body_hash   bytea NOT NULL,                              -- keyed: bodies hold secrets
    response    bytea NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX requests_recent ON requests (created_at);

CREATE TABLE proxies (
    proxy_id         text PRIMARY KEY,
    instance_id      text   NOT NULL,
    session_id       uuid,                                   -- null: not connected. Also the fence for updates
    replica_id       text   NOT NULL DEFAULT '',
    build            text   NOT NULL,
    labels           jsonb  NOT NULL DEFAULT '{}',
    groups           text[] NOT NULL DEFAULT '{}',
    features         text[] NOT NULL DEFAULT '{}',
    applied_epoch    text,
    applied_revision bigint,
    applied_digest   bigint,                                 -- the bits of an unsigned number
    rejections       bytea  NOT NULL DEFAULT '',             -- an encoded Ack: what it refuses
    last_seen_at     timestamptz NOT NULL DEFAULT now()
);
