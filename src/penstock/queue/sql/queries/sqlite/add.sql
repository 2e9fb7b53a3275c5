-- name: insert_job
INSERT INTO unified_queue ({inserted}) VALUES ({inserted_values})
ON CONFLICT (tenant_id, branch, idempotency_key) WHERE finished_at IS NULL AND parent_id IS NULL AND dedupe = 1
DO NOTHING

-- name: insert_jobs
INSERT INTO unified_queue ({inserted}) VALUES {inserted_rows}
ON CONFLICT (tenant_id, branch, idempotency_key) WHERE finished_at IS NULL AND parent_id IS NULL AND dedupe = 1
DO NOTHING

-- One plain row with its turn, that of transitions.next_turn. With a pause the turn is NULL, which fails. As VALUES:
-- a SELECT from the table that it writes to is first copied to a temporary table, which costs what this saves.
-- name: add_plain
INSERT INTO unified_queue (
    queue_id, root_id, item_type, op, tenant_id, collection, branch, priority, created_at, updated_at,
    idempotency_key, dedupe, max_retries, timeout_s, submitted_by, lock_key, payload_json, metadata, turn)
VALUES (
    :queue_id, :queue_id, :item_type, :op, :tenant_id, :collection, :branch, :priority, :created_at, :created_at,
    :idempotency_key, :dedupe, :max_retries, :timeout_s, :submitted_by, :lock_key, :payload_json, :metadata,
    CASE WHEN NOT EXISTS (SELECT 1 FROM queue_pause) THEN max(
        ifnull((SELECT turn FROM unified_queue INDEXED BY idx_unified_queue_dequeue
                WHERE status = 'pending' AND held IS NULL AND priority = :priority AND turn >= 0
                ORDER BY turn LIMIT 1), 0),
        ifnull((SELECT turn + 1 FROM unified_queue INDEXED BY idx_unified_queue_collection_tenant
                WHERE status = 'pending' AND tenant_id = :tenant_id AND priority = :priority
                ORDER BY turn DESC LIMIT 1), 0)) END)
ON CONFLICT (tenant_id, branch, idempotency_key) WHERE finished_at IS NULL AND parent_id IS NULL AND dedupe = 1
DO NOTHING

-- name: insert_child
INSERT INTO unified_queue ({inserted}) VALUES ({inserted_values})
ON CONFLICT (parent_id, parent_run, idempotency_key) WHERE parent_id IS NOT NULL
DO NOTHING

-- A whole row of another store.
-- name: insert_row
INSERT INTO unified_queue ({job}) VALUES ({job_values})

-- Runs for every new row, so it also returns whether there is a pause.
-- name: head_turn
SELECT (SELECT turn FROM unified_queue INDEXED BY idx_unified_queue_dequeue
        WHERE status = 'pending' AND held IS NULL AND priority = :priority AND turn >= 0
        ORDER BY turn LIMIT 1),
       EXISTS (SELECT 1 FROM queue_pause)

-- name: last_turn
SELECT turn FROM unified_queue INDEXED BY idx_unified_queue_collection_tenant
WHERE status = 'pending' AND tenant_id = :tenant_id AND priority = :priority
ORDER BY turn DESC LIMIT 1

-- name: backlog_indexing
SELECT count(*) FROM (
    SELECT 1 FROM unified_queue INDEXED BY idx_unified_queue_backlog
    WHERE status = 'pending' AND parent_id IS NULL AND (item_type <> 'function' OR backlog_key IS NOT NULL)
      AND backlog_key IS NULL LIMIT :cap
)

-- name: keyed_backlog
SELECT count(*) FROM (
    SELECT 1 FROM unified_queue INDEXED BY idx_unified_queue_backlog
    WHERE status = 'pending' AND parent_id IS NULL AND (item_type <> 'function' OR backlog_key IS NOT NULL)
      AND backlog_key = :key LIMIT :cap
)

-- name: save_payload
INSERT INTO unified_queue_payload (queue_id, payload_json) VALUES (:queue_id, :payload_json)
ON CONFLICT (queue_id) DO UPDATE SET payload_json = excluded.payload_json

-- name: load_payload
SELECT payload_json FROM unified_queue_payload WHERE queue_id = :queue_id

-- Over pending rows only: by item type, the ended calls would be read as well.
-- name: backlog_functions
SELECT count(*) FROM (
    SELECT 1 FROM unified_queue INDEXED BY idx_unified_queue_collection_tenant
    WHERE status = 'pending' AND parent_id IS NULL AND item_type = 'function' LIMIT :cap
) AS counted
