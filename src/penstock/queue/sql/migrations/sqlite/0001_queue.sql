-- The queue. Enumerations are written as OR chains: SQLite builds a temporary b-tree at each execution for
-- an IN list of three or more constants, which doubled the cost of an insert. Long columns come last.
CREATE TABLE unified_queue (
    queue_id          TEXT    NOT NULL CONSTRAINT pk_unified_queue PRIMARY KEY,
    item_type         TEXT    NOT NULL CONSTRAINT chk_item_type CHECK (
        item_type = 'content' OR item_type = 'file' OR item_type = 'folder' OR item_type = 'project'
        OR item_type = 'library' OR item_type = 'delete_tenant' OR item_type = 'delete_document'
        OR item_type = 'rename' OR item_type = 'function'),
    op                TEXT    NOT NULL CONSTRAINT chk_op CHECK (
        op = 'ingest' OR op = 'update' OR op = 'delete' OR op = 'scan' OR op = 'run'),
    tenant_id         TEXT    NOT NULL,
    collection        TEXT    NOT NULL,
    branch            TEXT    NOT NULL DEFAULT 'main',
    priority          INTEGER NOT NULL DEFAULT 5 CONSTRAINT chk_priority CHECK (priority BETWEEN 0 AND 10),
    status            TEXT    NOT NULL DEFAULT 'pending' CONSTRAINT chk_status CHECK (
        status = 'pending' OR status = 'in_progress' OR status = 'done' OR status = 'failed'
        OR status = 'cancelled'),
    created_at        TEXT    NOT NULL,
    updated_at        TEXT    NOT NULL,
    idempotency_key   TEXT    NOT NULL,
    dedupe            INTEGER NOT NULL DEFAULT 1 CONSTRAINT chk_dedupe CHECK (dedupe IN (0, 1)),
    retry_count       INTEGER NOT NULL DEFAULT 0 CONSTRAINT chk_retry_count_positive CHECK (retry_count >= 0),
    max_retries       INTEGER NOT NULL DEFAULT 3 CONSTRAINT chk_max_retries_positive CHECK (max_retries >= 0),
    timeout_s         INTEGER NOT NULL DEFAULT 7200 CONSTRAINT chk_timeout_s CHECK (timeout_s > 0),
    submitted_by      TEXT    NOT NULL DEFAULT 'library',
    run               INTEGER NOT NULL DEFAULT 1 CONSTRAINT chk_run CHECK (run >= 1),
    claim_number      INTEGER NOT NULL DEFAULT 0 CONSTRAINT chk_claim_number CHECK (claim_number >= 0),
    turn              INTEGER NOT NULL DEFAULT 0 CONSTRAINT chk_turn CHECK (turn >= -2),
    held              TEXT CONSTRAINT chk_held CHECK (
        held IS NULL OR held = 'time' OR held = 'lock' OR held = 'pause' OR held = 'after'
        OR held = 'limit'),
    run_at            TEXT,
    lock_key          TEXT,
    lock_held         TEXT,
    lease_until       TEXT,
    worker_id         TEXT,
    started_at        TEXT,
    finished_at       TEXT,
    parent_id         TEXT,
    parent_run        INTEGER,
    root_id           TEXT,
    waiting_for       TEXT,
    awaited           INTEGER NOT NULL DEFAULT 0 CONSTRAINT chk_awaited CHECK (awaited IN (0, 1)),
    limit_key         TEXT,
    limit_at          TEXT,
    backlog_key       TEXT,
    result_ttl_s      INTEGER CONSTRAINT chk_result_ttl_s CHECK (result_ttl_s > 0),
    cancel_requested  INTEGER NOT NULL DEFAULT 0 CONSTRAINT chk_cancel_requested CHECK (cancel_requested IN (0, 1)),
    lost_count        INTEGER NOT NULL DEFAULT 0 CONSTRAINT chk_lost_count CHECK (lost_count >= 0),
    children_open     INTEGER NOT NULL DEFAULT 0 CONSTRAINT chk_children_open CHECK (children_open >= 0),
    children_failed   INTEGER NOT NULL DEFAULT 0 CONSTRAINT chk_children_failed CHECK (children_failed >= 0),
    total_chunks      INTEGER NOT NULL DEFAULT 0 CONSTRAINT chk_total_chunks CHECK (total_chunks >= 0),
    error_code        TEXT,
    error_message     TEXT,
    error_reason      TEXT,
    last_error_at     TEXT,
    after_json        TEXT,
    -- A JSON null when the payload is kept in unified_queue_payload; unified_queue_jobs has every payload.
    payload_json      TEXT    NOT NULL,
    metadata          TEXT    NOT NULL DEFAULT '{}',
    followup_json     TEXT,
    progress_json     TEXT,
    result_json       TEXT,
    history_json      TEXT,
    CONSTRAINT chk_retry_count_within_max CHECK (retry_count <= max_retries),
    CONSTRAINT chk_error_message_on_failure CHECK (status <> 'failed' OR error_message IS NOT NULL),
    -- As two chains of OR: a comparison of two truth values takes SQLite four times as many steps.
    CONSTRAINT chk_finished_at_means_ended
        CHECK (finished_at IS NULL OR status = 'done' OR status = 'failed' OR status = 'cancelled'),
    CONSTRAINT chk_ended_has_finished_at
        CHECK (finished_at IS NOT NULL OR status = 'in_progress' OR status = 'pending'),
    CONSTRAINT chk_in_progress_has_lease
        CHECK (status <> 'in_progress' OR lease_until IS NOT NULL OR waiting_for IS NOT NULL),
    CONSTRAINT chk_lease_means_in_progress CHECK (lease_until IS NULL OR status = 'in_progress'),
    CONSTRAINT chk_held_means_pending CHECK (held IS NULL OR status = 'pending'),
    CONSTRAINT chk_held_time_has_run_at CHECK (held IS NOT 'time' OR run_at IS NOT NULL),
    CONSTRAINT chk_run_at_means_held CHECK (run_at IS NULL OR held IS 'time' OR held IS 'after'),
    -- A worker that cannot read the time of a row cannot claim any.
    CONSTRAINT chk_created_at_is_time CHECK (created_at GLOB '????-??-??*'),
    CONSTRAINT chk_updated_at_is_time CHECK (updated_at GLOB '????-??-??*'),
    -- It is compared as text: ISO 8601 in UTC.
    CONSTRAINT chk_run_at_sorts CHECK (
        run_at IS NULL OR run_at GLOB '????-??-??T*Z' OR run_at GLOB '????-??-??T*+00:00'),
    CONSTRAINT chk_held_after_has_jobs CHECK (held IS NOT 'after' OR after_json IS NOT NULL),
    CONSTRAINT chk_held_lock_has_key CHECK (held IS NOT 'lock' OR lock_key IS NOT NULL),
    CONSTRAINT chk_held_limit_has_key CHECK (held IS NOT 'limit' OR (limit_key IS NOT NULL AND limit_at IS NULL)),
    CONSTRAINT chk_lock_held_is_lock_key CHECK (lock_held IS NULL OR lock_held IS lock_key),
    CONSTRAINT chk_parent_has_run CHECK ((parent_id IS NULL) = (parent_run IS NULL))
);

-- Predicates name as few columns as possible: SQLite checks a partial index, before and after, whenever an update
-- sets a column of its predicate, whether the row is in the index or not. Conditions that the CHECKs above make
-- equivalent (a lease means in progress, a held reason means pending) use the cheaper form.

-- Read by a claim, in claim order.
CREATE INDEX idx_unified_queue_dequeue ON unified_queue (priority DESC, turn, created_at, queue_id)
    WHERE status = 'pending' AND held IS NULL;
-- One live top-level row per key. finished_at instead of status, so that a claim does not touch this index.
CREATE UNIQUE INDEX idx_unified_queue_idempotency ON unified_queue (tenant_id, branch, idempotency_key)
    WHERE finished_at IS NULL AND parent_id IS NULL AND dedupe = 1;
CREATE INDEX idx_unified_queue_lease_expiry ON unified_queue (lease_until)
    WHERE lease_until IS NOT NULL;
-- The last entry of a tenant and priority is the largest waiting turn.
CREATE INDEX idx_unified_queue_collection_tenant ON unified_queue (tenant_id, priority, turn, collection)
    WHERE status = 'pending';
-- Without the status, so that no change of a job touches this index. Parent and id: a list of jobs without their
-- children is the newest of each type. An index for such lists alone would cost an addition 15 % more.
CREATE INDEX idx_unified_queue_item_type ON unified_queue (item_type, parent_id, queue_id);
-- With the columns by which a list of failed jobs is filtered and ordered.
CREATE INDEX idx_unified_queue_failed
    ON unified_queue (status, last_error_at, queue_id, parent_id, tenant_id, error_reason, error_code)
    WHERE status = 'failed';
-- Failed jobs by their reason. A job that has not failed has none, so that its changes touch neither this index
-- nor its predicate.
CREATE INDEX idx_unified_queue_reason ON unified_queue (error_reason, queue_id, tenant_id, last_error_at)
    WHERE error_reason IS NOT NULL;
CREATE INDEX idx_unified_queue_worker ON unified_queue (worker_id, status)
    WHERE status = 'in_progress';

-- One holder per lock; the last guard behind the check of the claim.
CREATE UNIQUE INDEX idx_unified_queue_lock ON unified_queue (lock_held)
    WHERE lock_held IS NOT NULL;
CREATE INDEX idx_unified_queue_parked ON unified_queue (lock_key, priority DESC, turn, created_at, queue_id)
    WHERE held = 'lock';
-- Rows with a turn below 0: next to take their lock, if they are claimable. Whether they are is read from the
-- row: with status or held in the predicate, each claim would check this index.
CREATE INDEX idx_unified_queue_front ON unified_queue (lock_key)
    WHERE turn < 0 AND lock_key IS NOT NULL AND finished_at IS NULL;
CREATE INDEX idx_unified_queue_scheduled ON unified_queue (run_at)
    WHERE held = 'time';
CREATE INDEX idx_unified_queue_paused ON unified_queue (priority DESC, turn, created_at, queue_id)
    WHERE held = 'pause';
-- Rows that wait for the limit of a key, and rows with a slot of it (not held, or held until their start). Neither a
-- claim nor a plain end sets these columns.
CREATE INDEX idx_unified_queue_limit ON unified_queue (limit_key, held, priority DESC, turn, created_at, queue_id)
    WHERE held = 'limit' OR limit_at IS NOT NULL;
-- The children of one run of a parent have distinct keys, in any status.
CREATE UNIQUE INDEX idx_unified_queue_children ON unified_queue (parent_id, parent_run, idempotency_key)
    WHERE parent_id IS NOT NULL;
CREATE INDEX idx_unified_queue_tree ON unified_queue (root_id)
    WHERE parent_id IS NOT NULL;
CREATE INDEX idx_unified_queue_waiting ON unified_queue (queue_id)
    WHERE waiting_for IS NOT NULL AND finished_at IS NULL;
-- Counted by backpressure: jobs other than functions, and functions with a limit of their own. The column is NULL for
-- the former: entries are in order of arrival, so that a claim touches one page of the index and not one per tenant.
CREATE INDEX idx_unified_queue_backlog ON unified_queue (backlog_key)
    WHERE status = 'pending' AND parent_id IS NULL AND (item_type <> 'function' OR backlog_key IS NOT NULL);
-- Jobs in back-off, for which an idle worker waits; not jobs with a later start.
CREATE INDEX idx_unified_queue_backoff ON unified_queue (run_at)
    WHERE held = 'time' AND retry_count > 0;
CREATE INDEX idx_unified_queue_finished ON unified_queue (finished_at)
    WHERE finished_at IS NOT NULL AND parent_id IS NULL;

-- SQLite rewrites a whole record at each change; long payloads would be copied twice per job.
CREATE TABLE unified_queue_payload (
    queue_id      TEXT NOT NULL PRIMARY KEY,
    payload_json  TEXT NOT NULL
) WITHOUT ROWID;

-- Rows with held = 'after', by the jobs that they wait for.
CREATE TABLE queue_dependency (
    after_id  TEXT NOT NULL,
    queue_id  TEXT NOT NULL,
    PRIMARY KEY (after_id, queue_id)
) WITHOUT ROWID;
CREATE INDEX idx_queue_dependency_row ON queue_dependency (queue_id);

-- Ended jobs whose result has a time to live. An entry may be stale: the row decides.
CREATE TABLE queue_result (
    expires_at  TEXT NOT NULL,
    queue_id    TEXT NOT NULL,
    PRIMARY KEY (expires_at, queue_id)
) WITHOUT ROWID;

-- Phase of a pause and its resume, and the position of the resume in the claim order.
CREATE TABLE queue_pause (
    tenant_id    TEXT NOT NULL,
    collection   TEXT NOT NULL,
    phase        TEXT NOT NULL CONSTRAINT chk_queue_pause_phase CHECK (
        phase = 'paused' OR phase = 'gathering' OR phase = 'releasing'),
    at_priority  INTEGER,
    at_turn      INTEGER,
    at_created   TEXT,
    at_id        TEXT,
    PRIMARY KEY (tenant_id, collection)
) WITHOUT ROWID;

CREATE TABLE queue_worker (
    worker_id   TEXT    NOT NULL PRIMARY KEY,
    host        TEXT    NOT NULL,
    pid         INTEGER NOT NULL,
    started_at  TEXT    NOT NULL,
    seen_at     TEXT,
    info_json   TEXT    NOT NULL
) WITHOUT ROWID;

-- Schedules, whole as JSON; the other columns are copies of fields.
CREATE TABLE queue_schedule (
    tenant_id  TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    next_at    TEXT,
    body       TEXT    NOT NULL,
    PRIMARY KEY (tenant_id, name)
) WITHOUT ROWID;
CREATE INDEX idx_queue_schedule_next ON queue_schedule (next_at) WHERE next_at IS NOT NULL;

-- Limits, whole as JSON.
CREATE TABLE queue_limit (
    limit_key  TEXT NOT NULL PRIMARY KEY,
    body       TEXT NOT NULL
) WITHOUT ROWID;

-- The queue with every payload, long ones too. The same view is in PostgreSQL. SQLite omits the join when a query does
-- not use the payload.
CREATE VIEW unified_queue_jobs AS
SELECT
    q.queue_id, q.item_type, q.op, q.tenant_id, q.collection, q.branch, q.priority, q.status, q.created_at,
    q.updated_at, q.idempotency_key, q.dedupe, q.retry_count, q.max_retries, q.timeout_s, q.submitted_by, q.run,
    q.claim_number, q.turn, q.held, q.run_at, q.lock_key, q.lock_held, q.lease_until, q.worker_id, q.started_at,
    q.finished_at, q.parent_id, q.parent_run, q.root_id, q.waiting_for, q.awaited, q.limit_key, q.limit_at,
    q.backlog_key, q.result_ttl_s, q.cancel_requested, q.lost_count, q.children_open, q.children_failed,
    q.total_chunks, q.error_code, q.error_message, q.error_reason, q.last_error_at, q.after_json,
    CASE q.payload_json WHEN 'null' THEN p.payload_json ELSE q.payload_json END AS payload_json,
    q.metadata, q.followup_json, q.progress_json, q.result_json, q.history_json
FROM unified_queue q LEFT JOIN unified_queue_payload p ON p.queue_id = q.queue_id;

-- Function jobs with the columns and words of a task queue. New ones can be inserted, see below.
CREATE VIEW task_queue AS
SELECT
    task_id,
    json_extract(asked, '$.entity_type')   AS entity_type,
    json_extract(asked, '$.entity_id')     AS entity_id,
    json_extract(asked, '$.function_name') AS function_name,
    json_extract(asked, '$.payload')       AS payload,
    status,
    error_message,
    retry_count,
    max_retries,
    created_at,
    updated_at
FROM (
    SELECT
        q.queue_id AS task_id,
        CASE q.payload_json WHEN 'null' THEN p.payload_json ELSE q.payload_json END AS asked,
        CASE q.status
            WHEN 'pending' THEN 'PENDING'
            WHEN 'in_progress' THEN 'IN_PROGRESS'
            WHEN 'done' THEN 'COMPLETED'
            ELSE 'FAILED'
        END AS status,
        q.error_message,
        q.retry_count,
        q.max_retries,
        q.created_at,
        q.updated_at
    FROM unified_queue q
    LEFT JOIN unified_queue_payload p ON p.queue_id = q.queue_id
    WHERE q.item_type = 'function'
);

-- A task that is inserted becomes a job, as by a call without options: at the end of the queue, in the default tenant
-- and collection. What a registered function asks for (limits, hooks, required fields) is not known here.
CREATE TRIGGER task_queue_insert INSTEAD OF INSERT ON task_queue
BEGIN
    SELECT RAISE(ABORT, 'task_queue: function_name must be text of 1 to 255 characters')
    WHERE typeof(NEW.function_name) <> 'text' OR length(NEW.function_name) NOT BETWEEN 1 AND 255;
    SELECT RAISE(ABORT, 'task_queue: entity_type and entity_id: expected both or neither, of 1 to 255 characters')
    WHERE (NEW.entity_type IS NULL) <> (NEW.entity_id IS NULL)
       OR length(NEW.entity_type) NOT BETWEEN 1 AND 255 OR length(NEW.entity_id) NOT BETWEEN 1 AND 255;
    SELECT RAISE(ABORT, 'task_queue: entity_type must not contain a colon') WHERE instr(NEW.entity_type, ':') > 0;
    SELECT RAISE(ABORT, 'task_queue: payload must be a JSON object')
    WHERE CASE WHEN NEW.payload IS NULL THEN 0 WHEN NOT json_valid(NEW.payload) THEN 1
               ELSE json_type(NEW.payload) NOT IN ('object', 'null') END;
    SELECT RAISE(ABORT, 'task_queue: a new task is PENDING, without an error and without retries')
    WHERE coalesce(NEW.status, 'PENDING') <> 'PENDING' OR coalesce(NEW.retry_count, 0) <> 0
       OR NEW.error_message IS NOT NULL;
    SELECT RAISE(ABORT, 'task_queue: max_retries must be an integer')
    WHERE CAST(NEW.max_retries AS INTEGER) IS NOT NEW.max_retries;
    SELECT RAISE(ABORT, 'task_queue: task_id must be 1 to 128 letters, digits and . _ : -')
    WHERE NEW.task_id IS NOT NULL AND (length(NEW.task_id) NOT BETWEEN 1 AND 128
       OR NEW.task_id GLOB '*[^A-Za-z0-9._:-]*' OR NEW.task_id GLOB '[._:-]*');
    SELECT RAISE(ABORT, 'task_queue: created_at is not a time')
    WHERE NEW.created_at IS NOT NULL AND strftime('%s', NEW.created_at) IS NULL;
    INSERT INTO unified_queue (
        queue_id, item_type, op, tenant_id, collection, created_at, updated_at, idempotency_key, dedupe, max_retries,
        turn, lock_key, root_id, payload_json)
    SELECT
        id, 'function', 'run', 'default', 'default', at, at, 'function:default:' || substr(id, -16), 0,
        coalesce(NEW.max_retries, 3),
        max(
            coalesce((SELECT turn FROM unified_queue WHERE status = 'pending' AND held IS NULL AND priority = 5
                      AND turn >= 0 ORDER BY turn LIMIT 1), 0),
            coalesce((SELECT turn + 1 FROM unified_queue WHERE status = 'pending' AND tenant_id = 'default'
                      AND priority = 5 ORDER BY turn DESC LIMIT 1), 0)),
        'entity:' || NEW.entity_type || ':' || NEW.entity_id,
        id,
        CASE WHEN NEW.entity_type IS NULL
             THEN json_object('function_name', NEW.function_name, 'payload', json(coalesce(NEW.payload, 'null')))
             ELSE json_object('function_name', NEW.function_name, 'payload', json(coalesce(NEW.payload, 'null')),
                              'entity_type', NEW.entity_type, 'entity_id', NEW.entity_id) END
    FROM (SELECT coalesce(NEW.task_id, lower(hex(randomblob(16)))) AS id,
                 strftime('%Y-%m-%dT%H:%M:%f', coalesce(NEW.created_at, 'now')) || '000Z' AS at);
END;
