-- name: expired
SELECT {job} FROM unified_queue INDEXED BY idx_unified_queue_lease_expiry
WHERE lease_until IS NOT NULL AND lease_until < ?
ORDER BY lease_until, queue_id LIMIT ?

-- name: paused_rows
SELECT {job} FROM unified_queue INDEXED BY idx_unified_queue_paused
WHERE held = 'pause'
  AND (?1 IS NULL OR (-priority, turn, created_at, queue_id) > (?1, ?2, ?3, ?4))
ORDER BY priority DESC, turn, created_at, queue_id LIMIT ?5

-- In claim order; rows whose lock another holds are left out.
-- name: upcoming
SELECT queue_id, lock_key, tenant_id, collection
FROM unified_queue q INDEXED BY idx_unified_queue_dequeue
WHERE status = 'pending' AND held IS NULL AND (?1 IS NULL OR item_type = ?1)
  AND (lock_key IS NULL OR lock_held IS NOT NULL
       OR NOT EXISTS (SELECT 1 FROM unified_queue h INDEXED BY idx_unified_queue_lock WHERE h.lock_held = q.lock_key))
ORDER BY priority DESC, turn, created_at, queue_id LIMIT ?2 OFFSET ?3

-- What the next claim takes up.
-- name: upcoming_due
SELECT queue_id, lock_key, tenant_id, collection
FROM unified_queue q INDEXED BY idx_unified_queue_scheduled
WHERE held = 'time' AND run_at <= ?1 AND (?2 IS NULL OR item_type = ?2)
  AND (lock_key IS NULL OR lock_held IS NOT NULL
       OR NOT EXISTS (SELECT 1 FROM unified_queue h INDEXED BY idx_unified_queue_lock WHERE h.lock_held = q.lock_key))
ORDER BY run_at LIMIT ?3

-- name: jobs_of
SELECT {job} FROM unified_queue WHERE queue_id IN (SELECT value FROM json_each(?))

-- name: pauses
SELECT tenant_id, collection FROM queue_pause

-- name: pause
INSERT INTO queue_pause (tenant_id, collection) VALUES (?, ?) ON CONFLICT DO NOTHING

-- name: resume
DELETE FROM queue_pause WHERE tenant_id = ? AND collection = ?

-- name: ahead
SELECT count(*) FROM (
    SELECT 1 FROM unified_queue INDEXED BY idx_unified_queue_dequeue
    WHERE status = 'pending' AND held IS NULL
      AND (priority > ?1 OR (priority = ?1 AND (turn, created_at, queue_id) < (?2, ?3, ?4)))
    LIMIT ?5
)

-- name: pending
SELECT count(*) FROM (
    SELECT 1 FROM unified_queue INDEXED BY idx_unified_queue_collection_tenant
    WHERE status = 'pending' LIMIT ?
)

-- name: ended_trees
SELECT {job} FROM unified_queue r INDEXED BY idx_unified_queue_finished
WHERE r.finished_at IS NOT NULL AND r.parent_id IS NULL
  AND ((r.status = 'done' AND r.finished_at < ?1)
    OR (r.status = 'failed' AND r.finished_at < ?2)
    OR (r.status = 'cancelled' AND r.finished_at < ?3))
  AND (?4 IS NULL OR r.item_type = ?4)
  AND NOT EXISTS (SELECT 1 FROM unified_queue c INDEXED BY idx_unified_queue_tree
                  WHERE c.parent_id IS NOT NULL AND c.root_id = r.queue_id AND c.finished_at IS NULL)
ORDER BY r.finished_at, r.queue_id LIMIT ?5

-- name: descendants
SELECT queue_id FROM unified_queue INDEXED BY idx_unified_queue_tree
WHERE parent_id IS NOT NULL AND root_id = ? ORDER BY queue_id LIMIT ?

-- name: delete
DELETE FROM unified_queue WHERE queue_id = ?

-- name: delete_payload
DELETE FROM unified_queue_payload WHERE queue_id = ?

-- name: report
INSERT INTO queue_worker (worker_id, host, pid, started_at, seen_at, info_json) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (worker_id) DO UPDATE SET host = excluded.host, pid = excluded.pid,
    started_at = excluded.started_at, seen_at = excluded.seen_at, info_json = excluded.info_json

-- name: workers
SELECT worker_id, host, pid, started_at, seen_at, info_json FROM queue_worker ORDER BY worker_id
