-- name: insert_job
INSERT INTO unified_queue ({inserted}) VALUES ({inserted_values})
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
