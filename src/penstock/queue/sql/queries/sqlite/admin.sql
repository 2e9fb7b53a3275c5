-- In claim order, without rows whose lock is held.
-- name: upcoming
SELECT queue_id, lock_key, tenant_id, collection
FROM unified_queue q INDEXED BY idx_unified_queue_dequeue
WHERE status = 'pending' AND held IS NULL AND (:item_type IS NULL OR item_type = :item_type)
  AND (lock_key IS NULL OR lock_held IS NOT NULL
       OR NOT EXISTS (SELECT 1 FROM unified_queue h INDEXED BY idx_unified_queue_lock WHERE h.lock_held = q.lock_key))
ORDER BY priority DESC, turn, created_at, queue_id LIMIT :limit OFFSET :start

-- Due rows, which the next claim promotes.
-- name: upcoming_due
SELECT queue_id, lock_key, tenant_id, collection
FROM unified_queue q INDEXED BY idx_unified_queue_scheduled
WHERE held = 'time' AND run_at <= :now AND (:item_type IS NULL OR item_type = :item_type)
  AND (lock_key IS NULL OR lock_held IS NOT NULL
       OR NOT EXISTS (SELECT 1 FROM unified_queue h INDEXED BY idx_unified_queue_lock WHERE h.lock_held = q.lock_key))
ORDER BY run_at LIMIT :limit

-- name: jobs_of
SELECT {job} FROM unified_queue WHERE queue_id IN (SELECT value FROM json_each(:ids))

-- name: oldest
SELECT min(created_at) FROM (
    SELECT (SELECT created_at FROM unified_queue INDEXED BY idx_unified_queue_dequeue
            WHERE status = 'pending' AND held IS NULL AND priority = p.value
            ORDER BY turn, created_at, queue_id LIMIT 1) AS created_at
    FROM json_each('[0,1,2,3,4,5,6,7,8,9,10]') AS p
    UNION ALL
    SELECT (SELECT created_at FROM unified_queue INDEXED BY idx_unified_queue_paused
            WHERE held = 'pause' AND priority = p.value ORDER BY turn, created_at, queue_id LIMIT 1)
    FROM json_each('[0,1,2,3,4,5,6,7,8,9,10]') AS p
    UNION ALL
    SELECT (SELECT created_at FROM unified_queue INDEXED BY idx_unified_queue_parked
            WHERE held = 'lock' ORDER BY lock_key, priority DESC, turn, created_at, queue_id LIMIT 1)
    UNION ALL
    SELECT (SELECT created_at FROM unified_queue INDEXED BY idx_unified_queue_scheduled
            WHERE held = 'time' ORDER BY run_at LIMIT 1)
)

-- name: any_claimable
SELECT 1 FROM unified_queue INDEXED BY idx_unified_queue_dequeue WHERE status = 'pending' AND held IS NULL LIMIT 1

-- name: any_leased
SELECT 1 FROM unified_queue INDEXED BY idx_unified_queue_lease_expiry WHERE lease_until IS NOT NULL LIMIT 1

-- name: any_waiting
SELECT 1 FROM unified_queue INDEXED BY idx_unified_queue_waiting
WHERE waiting_for IS NOT NULL AND finished_at IS NULL AND waiting_for <> 'children' AND status = 'in_progress' LIMIT 1

-- name: any_backing_off
SELECT 1 FROM unified_queue INDEXED BY idx_unified_queue_backoff WHERE held = 'time' AND retry_count > 0 LIMIT 1

-- Two subqueries: each reads one end of the table.
-- name: last_row
SELECT max(rowid) FROM unified_queue

-- name: pending_place
SELECT parent_id IS NULL AND item_type <> 'function', priority, turn, created_at, queue_id
FROM unified_queue WHERE queue_id = :queue_id AND status = 'pending'

-- name: pending
SELECT count(*) FROM (
    SELECT 1 FROM unified_queue INDEXED BY idx_unified_queue_collection_tenant WHERE status = 'pending' LIMIT :cap)

-- One row if more requests than this number are pending: a third of the price of a count.
-- name: more_requests
SELECT 1 FROM unified_queue INDEXED BY idx_unified_queue_backlog
WHERE status = 'pending' AND parent_id IS NULL AND (item_type <> 'function' OR backlog_key IS NOT NULL)
  AND backlog_key IS NULL LIMIT 1 OFFSET :number

-- Each part is a range of the index: a combined condition would be checked on every row.
-- name: jobs_ahead
SELECT (SELECT count(*) FROM (
            SELECT 1 FROM unified_queue INDEXED BY idx_unified_queue_dequeue
            WHERE status = 'pending' AND held IS NULL AND priority > :priority LIMIT :cap))
     + (SELECT count(*) FROM (
            SELECT 1 FROM unified_queue INDEXED BY idx_unified_queue_dequeue
            WHERE status = 'pending' AND held IS NULL AND priority = :priority
              AND (turn, created_at, queue_id) < (:turn, :created_at, :queue_id)
            LIMIT :cap))

-- name: requests_ahead
SELECT count(*) FROM (
    SELECT held, priority, turn, created_at, queue_id FROM unified_queue INDEXED BY idx_unified_queue_backlog
    WHERE status = 'pending' AND parent_id IS NULL AND (item_type <> 'function' OR backlog_key IS NOT NULL)
      AND backlog_key IS NULL LIMIT :cap
) WHERE held IS NULL AND (priority > :priority
    OR priority = :priority AND (turn, created_at, queue_id) < (:turn, :created_at, :queue_id))

-- The place with so many claimable rows before it.
-- name: claimable_place
SELECT priority, turn, created_at, queue_id FROM unified_queue INDEXED BY idx_unified_queue_dequeue
WHERE status = 'pending' AND held IS NULL
ORDER BY priority DESC, turn, created_at, queue_id LIMIT 1 OFFSET :number

-- name: row_range
SELECT (SELECT min(rowid) FROM unified_queue), (SELECT max(rowid) FROM unified_queue)

-- Rows at equal distances: their count, times the distance, estimates the whole.
-- name: tally_sample
SELECT status, held, item_type, count(*) FROM unified_queue
WHERE rowid IN (SELECT value FROM json_each(:row_numbers)) GROUP BY status, held, item_type

-- name: ended_trees
SELECT {job} FROM unified_queue r INDEXED BY idx_unified_queue_finished
WHERE r.finished_at IS NOT NULL AND r.parent_id IS NULL
  AND ((r.status = 'done' AND r.finished_at < :done)
    OR (r.status = 'failed' AND r.finished_at < :failed)
    OR (r.status = 'cancelled' AND r.finished_at < :cancelled))
  AND (CAST(:item_type AS text) IS NULL OR r.item_type = :item_type)
  AND NOT EXISTS (SELECT 1 FROM unified_queue c INDEXED BY idx_unified_queue_tree
                  WHERE c.parent_id IS NOT NULL AND c.root_id = r.queue_id AND c.finished_at IS NULL)
ORDER BY r.finished_at, r.queue_id LIMIT :limit

-- name: descendants
SELECT queue_id FROM unified_queue INDEXED BY idx_unified_queue_tree
WHERE parent_id IS NOT NULL AND root_id = :root_id ORDER BY queue_id LIMIT :limit

-- name: delete
DELETE FROM unified_queue WHERE queue_id = :queue_id

-- name: delete_payload
DELETE FROM unified_queue_payload WHERE queue_id = :queue_id
