-- Claims for the plain path: no follow-up, no children, no limit, no result with a time to live, and no job waits for
-- them. All others are decided row by row; so are all while any row is parked, as each end has to pass on its lock.
-- name: plain_claims
SELECT rowid, queue_id, claim_number, parent_id, parent_run FROM unified_queue
WHERE queue_id IN (SELECT value FROM json_each(:ids)) AND status = 'in_progress'
  AND followup_json IS NULL AND children_open = 0 AND awaited = 0 AND limit_key IS NULL AND result_ttl_s IS NULL
  AND NOT EXISTS (SELECT 1 FROM unified_queue INDEXED BY idx_unified_queue_parked WHERE held = 'lock')

-- For one id: decoding a list of one costs more than the rest of the statement.
-- name: plain_claim
SELECT rowid, queue_id, claim_number, parent_id, parent_run FROM unified_queue
WHERE queue_id = :queue_id AND status = 'in_progress' AND followup_json IS NULL AND children_open = 0
  AND awaited = 0 AND limit_key IS NULL AND result_ttl_s IS NULL
  AND NOT EXISTS (SELECT 1 FROM unified_queue INDEXED BY idx_unified_queue_parked WHERE held = 'lock')

-- name: finish
UPDATE unified_queue
SET status = 'done', lease_until = NULL, lock_held = NULL, error_code = NULL, error_message = NULL,
    result_json = :result_json, finished_at = :finished_at, updated_at = :updated_at
WHERE rowid = :row

-- OR FAIL, here and below: without a copy of each page for the undo of the statement alone. An error undoes the
-- whole transaction.
-- name: finish_all
UPDATE OR FAIL unified_queue
SET status = 'done', lease_until = NULL, lock_held = NULL, error_code = NULL, error_message = NULL,
    result_json = NULL, finished_at = :finished_at, updated_at = :updated_at
WHERE rowid IN (SELECT value FROM json_each(:rows))

-- Results by row.
-- name: finish_each
UPDATE OR FAIL unified_queue
SET status = 'done', lease_until = NULL, lock_held = NULL, error_code = NULL, error_message = NULL,
    finished_at = :finished_at, updated_at = :updated_at, result_json = ended.value
FROM json_each(:results) AS ended
WHERE unified_queue.rowid = ended.key

-- name: first_parked
SELECT {job} FROM unified_queue INDEXED BY idx_unified_queue_parked
WHERE held = 'lock' AND lock_key = :lock_key
ORDER BY priority DESC, turn, created_at, queue_id LIMIT 1

-- name: parked_rows
SELECT {job} FROM unified_queue INDEXED BY idx_unified_queue_parked
WHERE held = 'lock' AND ?1 IN ('*', tenant_id) AND ?2 IN ('*', collection)
ORDER BY lock_key, priority DESC, turn, created_at, queue_id LIMIT ?3

-- name: in_front
SELECT 1 FROM unified_queue INDEXED BY idx_unified_queue_front
WHERE lock_key = :lock_key AND turn < 0 AND finished_at IS NULL AND status = 'pending' AND held IS NULL
  AND (priority > :priority OR (priority = :priority AND (turn, created_at, queue_id) < (:turn, :created_at, :queue_id))) LIMIT 1

-- name: idle_locks
SELECT DISTINCT p.lock_key FROM unified_queue p INDEXED BY idx_unified_queue_parked
WHERE p.held = 'lock'
  AND NOT EXISTS (SELECT 1 FROM unified_queue h WHERE h.lock_held = p.lock_key)
  AND NOT EXISTS (SELECT 1 FROM unified_queue c INDEXED BY idx_unified_queue_dequeue
                  WHERE c.status = 'pending' AND c.held IS NULL AND c.lock_key = p.lock_key)
ORDER BY p.lock_key LIMIT :limit

-- name: add_due_result
INSERT INTO queue_result (expires_at, queue_id) VALUES (:expires_at, :queue_id) ON CONFLICT DO NOTHING

-- name: drop_due_results
DELETE FROM queue_result WHERE expires_at <= :now AND queue_id IN (SELECT value FROM json_each(:ids))

-- name: dependents
SELECT {job} FROM unified_queue
WHERE queue_id IN (SELECT d.queue_id FROM queue_dependency d
                   WHERE d.after_id = :queue_id AND d.queue_id > :after ORDER BY d.queue_id LIMIT :limit)
ORDER BY queue_id

-- name: statuses
SELECT queue_id, status FROM unified_queue WHERE queue_id IN (SELECT value FROM json_each(:ids))

-- name: add_dependency
INSERT INTO queue_dependency (after_id, queue_id) VALUES (:after_id, :queue_id) ON CONFLICT DO NOTHING

-- name: drop_dependencies
DELETE FROM queue_dependency WHERE queue_id = :queue_id

-- name: children
SELECT {job} FROM unified_queue INDEXED BY idx_unified_queue_children
WHERE parent_id = :parent_id AND parent_run = :parent_run AND status IN (SELECT value FROM json_each(:statuses))
  AND NOT (status = 'in_progress' AND cancel_requested = 1)
ORDER BY queue_id LIMIT :limit

-- name: has_child
SELECT 1 FROM unified_queue INDEXED BY idx_unified_queue_children
WHERE parent_id = :parent_id AND parent_run = :parent_run AND idempotency_key = :key

-- name: child_count
SELECT count(*), coalesce(sum(finished_at IS NULL), 0), coalesce(sum(status = 'failed'), 0)
FROM unified_queue INDEXED BY idx_unified_queue_children
WHERE parent_id = :parent_id AND parent_run = :parent_run

-- name: doubtful_parents
SELECT {job} FROM unified_queue p INDEXED BY idx_unified_queue_waiting
WHERE p.waiting_for = 'children' AND p.finished_at IS NULL AND p.lease_until IS NULL
  AND p.status = 'in_progress'
  AND (p.cancel_requested = 1
       OR p.children_open = 0
       OR p.children_open <> (
            SELECT count(*) FROM unified_queue c INDEXED BY idx_unified_queue_children
            WHERE c.parent_id = p.queue_id AND c.parent_run = p.run AND c.finished_at IS NULL)
       OR p.children_failed <> (
            SELECT count(*) FROM unified_queue c INDEXED BY idx_unified_queue_children
            WHERE c.parent_id = p.queue_id AND c.parent_run = p.run AND c.status = 'failed'))
ORDER BY p.queue_id LIMIT :limit
