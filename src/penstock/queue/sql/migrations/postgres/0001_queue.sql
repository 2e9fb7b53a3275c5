-- The queue. Ids, keys and names compare by their bytes (COLLATE "C"), as on every other engine.
-- JSON is stored as text, so that it comes back exactly as given.

-- The rules of a row, called by its only CHECK. PostgreSQL reads and prepares the expressions of all CHECKs for each
-- statement that writes, but a function once per session: 25 CHECKs cost a third of a job added or claimed alone. In
-- plpgsql, because a function in SQL would be inlined into the CHECK. Its names are its
-- parameters: it reads no table. The error has the name of the broken rule as its constraint, the same as in SQLite.
CREATE FUNCTION unified_queue_row_ok(
    item_type text, op text, priority integer, status text, retry_count integer, max_retries integer,
    timeout_s integer, run integer, claim_number integer, turn integer, held text, run_at timestamptz,
    lock_key text, lock_held text, lease_until timestamptz, finished_at timestamptz, parent_id text,
    parent_run integer, waiting_for text, lost_count integer, children_open integer, children_failed integer,
    total_chunks bigint, error_message text, after_json text,
    limit_key text, limit_at timestamptz, result_ttl_s integer
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    broken text := CASE
        WHEN item_type NOT IN (
            'content', 'file', 'folder', 'project', 'library', 'delete_tenant', 'delete_document', 'rename',
            'function') THEN 'chk_item_type'
        WHEN op NOT IN ('ingest', 'update', 'delete', 'scan', 'run') THEN 'chk_op'
        WHEN priority NOT BETWEEN 0 AND 10 THEN 'chk_priority'
        WHEN status NOT IN ('pending', 'in_progress', 'done', 'failed', 'cancelled') THEN 'chk_status'
        WHEN retry_count < 0 THEN 'chk_retry_count_positive'
        WHEN max_retries < 0 THEN 'chk_max_retries_positive'
        WHEN retry_count > max_retries THEN 'chk_retry_count_within_max'
        WHEN timeout_s <= 0 THEN 'chk_timeout_s'
        WHEN run < 1 THEN 'chk_run'
        WHEN claim_number < 0 THEN 'chk_claim_number'
        WHEN turn < -2 THEN 'chk_turn'
        WHEN lost_count < 0 THEN 'chk_lost_count'
        WHEN children_open < 0 THEN 'chk_children_open'
        WHEN children_failed < 0 THEN 'chk_children_failed'
        WHEN total_chunks < 0 THEN 'chk_total_chunks'
        WHEN result_ttl_s <= 0 THEN 'chk_result_ttl_s'
        WHEN status = 'failed' AND error_message IS NULL THEN 'chk_error_message_on_failure'
        WHEN finished_at IS NOT NULL AND status IN ('pending', 'in_progress') THEN 'chk_finished_at_means_ended'
        WHEN finished_at IS NULL AND status IN ('done', 'failed', 'cancelled') THEN 'chk_ended_has_finished_at'
        WHEN status = 'in_progress' AND lease_until IS NULL AND waiting_for IS NULL THEN 'chk_in_progress_has_lease'
        WHEN lease_until IS NOT NULL AND status <> 'in_progress' THEN 'chk_lease_means_in_progress'
        WHEN held NOT IN ('time', 'lock', 'pause', 'after', 'limit') THEN 'chk_held'
        WHEN held IS NOT NULL AND status <> 'pending' THEN 'chk_held_means_pending'
        WHEN held = 'time' AND run_at IS NULL THEN 'chk_held_time_has_run_at'
        WHEN run_at IS NOT NULL AND coalesce(held, '') NOT IN ('time', 'after') THEN 'chk_run_at_means_held'
        WHEN held = 'after' AND after_json IS NULL THEN 'chk_held_after_has_jobs'
        WHEN held = 'lock' AND lock_key IS NULL THEN 'chk_held_lock_has_key'
        WHEN held = 'limit' AND (limit_key IS NULL OR limit_at IS NOT NULL) THEN 'chk_held_limit_has_key'
        WHEN lock_held IS NOT NULL AND lock_held IS DISTINCT FROM lock_key THEN 'chk_lock_held_is_lock_key'
        WHEN (parent_id IS NULL) <> (parent_run IS NULL) THEN 'chk_parent_has_run'
    END;
BEGIN
    IF broken IS NULL THEN
        RETURN true;
    END IF;
    RAISE check_violation USING
        MESSAGE = format('new row for relation "unified_queue" violates check constraint "%s"', broken),
        TABLE = 'unified_queue', CONSTRAINT = broken;
END
$$;

CREATE TABLE unified_queue (
    queue_id          text        COLLATE "C" NOT NULL CONSTRAINT pk_unified_queue PRIMARY KEY,
    item_type         text        COLLATE "C" NOT NULL,
    op                text        COLLATE "C" NOT NULL,
    tenant_id         text        COLLATE "C" NOT NULL,
    collection        text        COLLATE "C" NOT NULL,
    branch            text        COLLATE "C" NOT NULL DEFAULT 'main',
    priority          integer     NOT NULL DEFAULT 5,
    status            text        COLLATE "C" NOT NULL DEFAULT 'pending',
    created_at        timestamptz NOT NULL,
    updated_at        timestamptz NOT NULL,
    idempotency_key   text        COLLATE "C" NOT NULL,
    dedupe            boolean     NOT NULL DEFAULT true,
    retry_count       integer     NOT NULL DEFAULT 0,
    max_retries       integer     NOT NULL DEFAULT 3,
    timeout_s         integer     NOT NULL DEFAULT 7200,
    submitted_by      text        COLLATE "C" NOT NULL DEFAULT 'library',
    run               integer     NOT NULL DEFAULT 1,
    claim_number      integer     NOT NULL DEFAULT 0,
    turn              integer     NOT NULL DEFAULT 0,
    held              text        COLLATE "C",
    run_at            timestamptz,
    lock_key          text        COLLATE "C",
    lock_held         text        COLLATE "C",
    lease_until       timestamptz,
    worker_id         text        COLLATE "C",
    started_at        timestamptz,
    finished_at       timestamptz,
    parent_id         text        COLLATE "C",
    parent_run        integer,
    root_id           text        COLLATE "C",
    waiting_for       text        COLLATE "C",
    awaited           boolean     NOT NULL DEFAULT false,
    limit_key         text        COLLATE "C",
    limit_at          timestamptz,
    backlog_key       text        COLLATE "C",
    result_ttl_s      integer,
    cancel_requested  boolean     NOT NULL DEFAULT false,
    lost_count        integer     NOT NULL DEFAULT 0,
    children_open     integer     NOT NULL DEFAULT 0,
    children_failed   integer     NOT NULL DEFAULT 0,
    total_chunks      bigint      NOT NULL DEFAULT 0,
    error_code        text,
    error_message     text,
    error_reason      text        COLLATE "C",
    last_error_at     timestamptz,
    after_json        text,
    payload_json      text        NOT NULL,
    metadata          text        NOT NULL DEFAULT '{}',
    followup_json     text,
    progress_json     text,
    result_json       text,
    history_json      text,
    CONSTRAINT unified_queue_row_ok CHECK (unified_queue_row_ok(
        item_type, op, priority, status, retry_count, max_retries, timeout_s, run, claim_number, turn, held, run_at,
        lock_key, lock_held, lease_until, finished_at, parent_id, parent_run, waiting_for, lost_count, children_open,
        children_failed, total_chunks, error_message, after_json, limit_key, limit_at, result_ttl_s))
) WITH (
    -- Every job leaves two dead versions of its row. The claim index must not fill up with them between two
    -- vacuums, and the table is read by index only, so that a vacuum pays early.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

-- Every change of a row that meets the predicate of an index adds an entry: narrow predicates are cheaper. And
-- every statement that changes rows opens every index: one more costs 1 to 2 % of a job claimed and ended alone.

-- Read by a claim, in claim order: pending and not held. No held reason is called pending, so one expression states
-- both, and matches no other index: without statistics the planner would use any index over pending rows, and sort.
CREATE INDEX idx_unified_queue_dequeue ON unified_queue (priority DESC, turn, created_at, queue_id)
    WHERE coalesce(held, status) = 'pending';
-- One live top-level row per key.
CREATE UNIQUE INDEX idx_unified_queue_idempotency ON unified_queue (tenant_id, branch, idempotency_key)
    WHERE finished_at IS NULL AND parent_id IS NULL AND dedupe;
CREATE INDEX idx_unified_queue_lease_expiry ON unified_queue (lease_until)
    WHERE lease_until IS NOT NULL;
-- The last entry of a tenant and priority is the largest waiting turn.
CREATE INDEX idx_unified_queue_collection_tenant ON unified_queue (tenant_id, priority, turn, collection)
    WHERE status = 'pending';
-- With the parent, because backpressure counts the pending jobs of a type without a parent, and with the key of functions
-- that have a limit of their own.
CREATE INDEX idx_unified_queue_item_type ON unified_queue (item_type, status, parent_id, backlog_key)
    WHERE status IN ('pending', 'failed');
-- Also jobs in back-off, for which an idle worker waits; not jobs with a later start. run_at IS NOT NULL keeps the
-- planner from confusing this index with the one of scheduled rows.
-- With the columns by which a list of failed jobs is filtered and ordered.
CREATE INDEX idx_unified_queue_failed
    ON unified_queue (status, last_error_at, queue_id, parent_id, tenant_id, error_reason, error_code)
    WHERE status = 'failed' OR (retry_count > 0 AND run_at IS NOT NULL);
CREATE INDEX idx_unified_queue_worker ON unified_queue (worker_id, status)
    WHERE status = 'in_progress';

-- One holder per lock; the last guard behind the check of the claim.
CREATE UNIQUE INDEX idx_unified_queue_lock ON unified_queue (lock_held)
    WHERE lock_held IS NOT NULL;
CREATE INDEX idx_unified_queue_parked ON unified_queue (lock_key, priority DESC, turn, created_at, queue_id)
    WHERE held = 'lock';
-- The claimable and parked rows of each lock in claim order. A claim takes only the first. One expression, as in the
-- claim index: with a condition on the status, statements would match other indexes over pending rows.
CREATE INDEX idx_unified_queue_line ON unified_queue (lock_key, priority DESC, turn, created_at, queue_id)
    WHERE lock_key IS NOT NULL AND coalesce(held, status) IN ('pending', 'lock');
CREATE INDEX idx_unified_queue_scheduled ON unified_queue (run_at)
    WHERE held = 'time';
CREATE INDEX idx_unified_queue_paused ON unified_queue (priority DESC, turn, created_at, queue_id)
    WHERE held = 'pause';
-- The children of one run of a parent have distinct keys, in any status.
CREATE UNIQUE INDEX idx_unified_queue_children ON unified_queue (parent_id, parent_run, idempotency_key)
    WHERE parent_id IS NOT NULL;
-- Children have another root. Not by their parent: a statement for the children of one parent would match this index
-- as well, and read all of it.
CREATE INDEX idx_unified_queue_tree ON unified_queue (root_id, queue_id)
    WHERE root_id <> queue_id;
CREATE INDEX idx_unified_queue_waiting ON unified_queue (queue_id)
    WHERE waiting_for IS NOT NULL AND finished_at IS NULL;
CREATE INDEX idx_unified_queue_finished ON unified_queue (finished_at, queue_id)
    WHERE finished_at IS NOT NULL AND parent_id IS NULL;

-- Rows that wait for the limit of a key, and rows with a slot of it (not held, or held until their start).
CREATE INDEX idx_unified_queue_limit ON unified_queue (limit_key, held, priority DESC, turn, created_at, queue_id)
    WHERE held = 'limit' OR limit_at IS NOT NULL;

-- Rows with held = 'after', by the jobs that they wait for.
CREATE TABLE queue_dependency (
    after_id  text COLLATE "C" NOT NULL,
    queue_id  text COLLATE "C" NOT NULL,
    PRIMARY KEY (after_id, queue_id)
);
CREATE INDEX idx_queue_dependency_row ON queue_dependency (queue_id, after_id);

-- Ended jobs whose result has a time to live. An entry may be stale: the row decides.
CREATE TABLE queue_result (
    expires_at  timestamptz NOT NULL,
    queue_id    text        COLLATE "C" NOT NULL,
    PRIMARY KEY (expires_at, queue_id)
);

-- Phase of a pause and its resume, and the position of the resume in the claim order.
CREATE TABLE queue_pause (
    tenant_id    text        COLLATE "C" NOT NULL,
    collection   text        COLLATE "C" NOT NULL,
    phase        text        COLLATE "C" NOT NULL
        CONSTRAINT chk_queue_pause_phase CHECK (phase IN ('paused', 'gathering', 'releasing')),
    at_priority  integer,
    at_turn      integer,
    at_created   timestamptz,
    at_id        text        COLLATE "C",
    PRIMARY KEY (tenant_id, collection)
);

CREATE TABLE queue_worker (
    worker_id   text        COLLATE "C" NOT NULL PRIMARY KEY,
    host        text        NOT NULL,
    pid         integer     NOT NULL,
    started_at  timestamptz NOT NULL,
    seen_at     timestamptz,
    info_json   text        NOT NULL
);

-- Schedules, whole as JSON; the other columns are copies of fields.
CREATE TABLE queue_schedule (
    tenant_id  text    NOT NULL,
    name       text    NOT NULL,
    version    integer NOT NULL,
    next_at    timestamptz,
    body       text    NOT NULL,
    PRIMARY KEY (tenant_id, name)
);
CREATE INDEX idx_queue_schedule_next ON queue_schedule (next_at) WHERE next_at IS NOT NULL;

-- Limits, whole as JSON.
CREATE TABLE queue_limit (
    limit_key  text COLLATE "C" NOT NULL PRIMARY KEY,
    body       text NOT NULL
);

-- The queue with every payload, as in SQLite, where long ones are in another table.
CREATE VIEW unified_queue_jobs AS
SELECT
    queue_id, item_type, op, tenant_id, collection, branch, priority, status, created_at, updated_at,
    idempotency_key, dedupe, retry_count, max_retries, timeout_s, submitted_by, run, claim_number, turn, held,
    run_at, lock_key, lock_held, lease_until, worker_id, started_at, finished_at, parent_id, parent_run,
    root_id, waiting_for, awaited, limit_key, limit_at, backlog_key, result_ttl_s, cancel_requested, lost_count,
    children_open, children_failed, total_chunks, error_code, error_message, error_reason, last_error_at,
    after_json, payload_json, metadata, followup_json, progress_json, result_json, history_json
FROM unified_queue;

-- Function jobs with the columns and words of a task queue. New ones can be inserted, see below.
CREATE VIEW task_queue AS
SELECT
    queue_id                                 AS task_id,
    payload_json::json ->> 'entity_type'     AS entity_type,
    payload_json::json ->> 'entity_id'       AS entity_id,
    payload_json::json ->> 'function_name'   AS function_name,
    payload_json::json -> 'payload'          AS payload,
    CASE status
        WHEN 'pending' THEN 'PENDING'
        WHEN 'in_progress' THEN 'IN_PROGRESS'
        WHEN 'done' THEN 'COMPLETED'
        ELSE 'FAILED'
    END                                      AS status,
    error_message,
    retry_count,
    max_retries,
    created_at,
    updated_at
FROM unified_queue
WHERE item_type = 'function';

-- A task that is inserted becomes a job, as by a call without options: at the end of the queue, in the default tenant
-- and collection. What a registered function asks for (limits, hooks, required fields) is not known here.
CREATE FUNCTION task_queue_insert() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    id   text        := coalesce(NEW.task_id, replace(gen_random_uuid()::text, '-', ''));
    at   timestamptz := coalesce(NEW.created_at, now());
    asked jsonb      := jsonb_build_object('function_name', NEW.function_name, 'payload', NEW.payload);
    turn  integer;
BEGIN
    IF NEW.function_name IS NULL OR length(NEW.function_name) NOT BETWEEN 1 AND 255 THEN
        RAISE check_violation USING MESSAGE = 'task_queue: function_name must be text of 1 to 255 characters';
    ELSIF (NEW.entity_type IS NULL) <> (NEW.entity_id IS NULL) OR length(NEW.entity_type) NOT BETWEEN 1 AND 255
          OR length(NEW.entity_id) NOT BETWEEN 1 AND 255 THEN
        RAISE check_violation USING
            MESSAGE = 'task_queue: entity_type and entity_id: expected both or neither, of 1 to 255 characters';
    ELSIF strpos(NEW.entity_type, ':') > 0 THEN
        RAISE check_violation USING MESSAGE = 'task_queue: entity_type must not contain a colon';
    ELSIF NEW.payload IS NOT NULL AND json_typeof(NEW.payload) NOT IN ('object', 'null') THEN
        RAISE check_violation USING MESSAGE = 'task_queue: payload must be a JSON object';
    ELSIF coalesce(NEW.status, 'PENDING') <> 'PENDING' OR coalesce(NEW.retry_count, 0) <> 0
          OR NEW.error_message IS NOT NULL THEN
        RAISE check_violation USING
            MESSAGE = 'task_queue: a new task is PENDING, without an error and without retries';
    ELSIF id !~ '^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$' THEN
        RAISE check_violation USING MESSAGE = 'task_queue: task_id must be 1 to 128 letters, digits and . _ : -';
    END IF;
    IF NEW.entity_type IS NOT NULL THEN
        asked := asked || jsonb_build_object('entity_type', NEW.entity_type, 'entity_id', NEW.entity_id);
    END IF;
    turn := greatest(
        (SELECT q.turn FROM unified_queue q WHERE coalesce(q.held, q.status) = 'pending' AND q.priority = 5
         AND q.turn >= 0 ORDER BY q.priority DESC, q.turn LIMIT 1),
        (SELECT q.turn + 1 FROM unified_queue q WHERE q.status = 'pending' AND q.tenant_id = 'default'
         AND q.priority = 5 ORDER BY q.turn DESC LIMIT 1),
        0);
    INSERT INTO unified_queue (
        queue_id, item_type, op, tenant_id, collection, created_at, updated_at, idempotency_key, dedupe, max_retries,
        turn, lock_key, root_id, payload_json)
    VALUES (
        id, 'function', 'run', 'default', 'default', at, at, 'function:default:' || right(id, 16), false,
        coalesce(NEW.max_retries, 3), turn, 'entity:' || NEW.entity_type || ':' || NEW.entity_id, id, asked::text);
    PERFORM pg_notify('penstock_' || md5(current_schema()), '');
    NEW.task_id := id;
    NEW.status := 'PENDING';
    NEW.retry_count := 0;
    NEW.max_retries := coalesce(NEW.max_retries, 3);
    NEW.created_at := at;
    NEW.updated_at := at;
    RETURN NEW;
END;
$$;
CREATE TRIGGER task_queue_insert INSTEAD OF INSERT ON task_queue FOR EACH ROW EXECUTE FUNCTION task_queue_insert();
