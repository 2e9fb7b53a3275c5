-- name: expired
SELECT {job} FROM unified_queue INDEXED BY idx_unified_queue_lease_expiry
WHERE lease_until IS NOT NULL AND lease_until < ?
ORDER BY lease_until, queue_id LIMIT ?

-- In two statements, so that each is a range of the index: what is left of a priority, and all below it.
-- name: paused_from
SELECT {job} FROM unified_queue INDEXED BY idx_unified_queue_paused
WHERE held = 'pause' AND priority = ? AND (turn, created_at, queue_id) > (?, ?, ?)
ORDER BY turn, created_at, queue_id LIMIT ?

-- name: paused_below
SELECT {job} FROM unified_queue INDEXED BY idx_unified_queue_paused
WHERE held = 'pause' AND priority < ?
ORDER BY priority DESC, turn, created_at, queue_id LIMIT ?

-- name: claimable_from
SELECT queue_id, tenant_id, collection, priority, turn, created_at
FROM unified_queue INDEXED BY idx_unified_queue_dequeue
WHERE status = 'pending' AND held IS NULL AND priority = ? AND (turn, created_at, queue_id) > (?, ?, ?)
ORDER BY turn, created_at, queue_id LIMIT ?

-- name: claimable_below
SELECT queue_id, tenant_id, collection, priority, turn, created_at
FROM unified_queue INDEXED BY idx_unified_queue_dequeue
WHERE status = 'pending' AND held IS NULL AND priority < ?
ORDER BY priority DESC, turn, created_at, queue_id LIMIT ?

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
SELECT tenant_id, collection, phase, at_priority, at_turn, at_created, at_id FROM queue_pause

-- name: set_pause
INSERT INTO queue_pause (tenant_id, collection, phase, at_priority, at_turn, at_created, at_id)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant_id, collection) DO UPDATE SET phase = excluded.phase, at_priority = excluded.at_priority,
    at_turn = excluded.at_turn, at_created = excluded.at_created, at_id = excluded.at_id

-- name: drop_pause
DELETE FROM queue_pause WHERE tenant_id = ? AND collection = ?

-- Each of the two is a range of the index: one condition for both would be asked of every row.
-- name: ahead_above
SELECT count(*) FROM (
    SELECT 1 FROM unified_queue INDEXED BY idx_unified_queue_dequeue
    WHERE status = 'pending' AND held IS NULL AND priority > ? LIMIT ?
)

-- name: ahead_within
SELECT count(*) FROM (
    SELECT 1 FROM unified_queue INDEXED BY idx_unified_queue_dequeue
    WHERE status = 'pending' AND held IS NULL AND priority = ? AND (turn, created_at, queue_id) < (?, ?, ?)
    LIMIT ?
)

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

-- name: pending
SELECT count(*) FROM (
    SELECT 1 FROM unified_queue INDEXED BY idx_unified_queue_collection_tenant
    WHERE status = 'pending' LIMIT ?
)

-- In two subqueries: each is one look at an end of the table.
-- name: row_range
SELECT (SELECT min(rowid) FROM unified_queue), (SELECT max(rowid) FROM unified_queue)

-- name: tally_all
SELECT status, held, item_type, count(*) FROM unified_queue GROUP BY status, held, item_type

-- Each kind that has an index of its own, counted up to a bound.
-- name: tally_bounded
SELECT 'pending', NULL, item_type, count(*)
FROM (SELECT item_type FROM unified_queue INDEXED BY idx_unified_queue_dequeue WHERE status = 'pending' AND held IS NULL LIMIT ?1) GROUP BY item_type
UNION ALL
SELECT 'pending', 'time', item_type, count(*)
FROM (SELECT item_type FROM unified_queue INDEXED BY idx_unified_queue_scheduled WHERE held = 'time' LIMIT ?1) GROUP BY item_type
UNION ALL
SELECT 'pending', 'lock', item_type, count(*)
FROM (SELECT item_type FROM unified_queue INDEXED BY idx_unified_queue_parked WHERE held = 'lock' LIMIT ?1) GROUP BY item_type
UNION ALL
SELECT 'pending', 'pause', item_type, count(*)
FROM (SELECT item_type FROM unified_queue INDEXED BY idx_unified_queue_paused WHERE held = 'pause' LIMIT ?1) GROUP BY item_type
UNION ALL
SELECT 'in_progress', NULL, item_type, count(*)
FROM (SELECT item_type FROM unified_queue INDEXED BY idx_unified_queue_worker WHERE status = 'in_progress' LIMIT ?1) GROUP BY item_type
UNION ALL
SELECT 'failed', NULL, item_type, count(*)
FROM (SELECT item_type FROM unified_queue INDEXED BY idx_unified_queue_failed WHERE status = 'failed' LIMIT ?1) GROUP BY item_type

-- Rows at equal distances: what there is of a kind among them, times the distance, is what to expect of the whole.
-- name: tally_sample
SELECT status, held, item_type, count(*) FROM unified_queue
WHERE rowid IN (SELECT value FROM json_each(?)) GROUP BY status, held, item_type

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
