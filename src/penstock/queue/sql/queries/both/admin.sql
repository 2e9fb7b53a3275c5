-- name: expired
SELECT {job} FROM unified_queue {index[lease_expiry]}
WHERE lease_until IS NOT NULL AND lease_until < :now
ORDER BY lease_until, queue_id LIMIT :limit

-- Two statements, so that each is a range of the index: the rest of a priority, and all priorities below.
-- name: paused_from
SELECT {job} FROM unified_queue {index[paused]}
WHERE held = 'pause' AND priority = :priority
  AND (turn, created_at, queue_id) > (:turn, :created_at, :queue_id)
ORDER BY turn, created_at, queue_id LIMIT :limit
{for_update}

-- name: paused_below
SELECT {job} FROM unified_queue {index[paused]}
WHERE held = 'pause' AND priority < :priority
ORDER BY priority DESC, turn, created_at, queue_id LIMIT :limit
{for_update}

-- name: claimable_from
SELECT queue_id, tenant_id, collection, priority, turn, created_at FROM unified_queue {index[dequeue]}
WHERE {claimable} AND priority = :priority
  AND (turn, created_at, queue_id) > (:turn, :created_at, :queue_id)
ORDER BY turn, created_at, queue_id LIMIT :limit

-- name: claimable_below
SELECT queue_id, tenant_id, collection, priority, turn, created_at FROM unified_queue {index[dequeue]}
WHERE {claimable} AND priority < :priority
ORDER BY priority DESC, turn, created_at, queue_id LIMIT :limit

-- name: pauses
SELECT tenant_id, collection, phase, at_priority, at_turn, at_created, at_id FROM queue_pause

-- name: set_pause
INSERT INTO queue_pause (tenant_id, collection, phase, at_priority, at_turn, at_created, at_id)
VALUES (:tenant_id, :collection, :phase, :priority, :turn, :created_at, :queue_id)
ON CONFLICT (tenant_id, collection) DO UPDATE SET phase = excluded.phase, at_priority = excluded.at_priority,
    at_turn = excluded.at_turn, at_created = excluded.at_created, at_id = excluded.at_id

-- name: drop_pause
DELETE FROM queue_pause WHERE tenant_id = :tenant_id AND collection = :collection

-- name: tally_all
SELECT status, held, item_type, count(*) FROM unified_queue GROUP BY status, held, item_type

-- Each class of rows with an index, counted up to a bound.
-- name: tally_bounded
SELECT 'pending', NULL, item_type, count(*)
FROM (SELECT item_type FROM unified_queue {index[dequeue]} WHERE {claimable} LIMIT :cap) AS counted GROUP BY item_type
UNION ALL
SELECT 'pending', 'time', item_type, count(*)
FROM (SELECT item_type FROM unified_queue {index[scheduled]} WHERE held = 'time' LIMIT :cap) AS counted GROUP BY item_type
UNION ALL
SELECT 'pending', 'lock', item_type, count(*)
FROM (SELECT item_type FROM unified_queue {index[parked]} WHERE held = 'lock' LIMIT :cap) AS counted GROUP BY item_type
UNION ALL
SELECT 'pending', 'pause', item_type, count(*)
FROM (SELECT item_type FROM unified_queue {index[paused]} WHERE held = 'pause' LIMIT :cap) AS counted GROUP BY item_type
UNION ALL
SELECT 'pending', 'after', item_type, count(*)
FROM (SELECT (SELECT q.item_type FROM unified_queue q WHERE q.queue_id = d.queue_id) AS item_type
      FROM (SELECT DISTINCT queue_id FROM queue_dependency LIMIT :cap) AS d) AS counted
WHERE item_type IS NOT NULL GROUP BY item_type
UNION ALL
SELECT 'pending', 'limit', item_type, count(*)
FROM (SELECT item_type FROM unified_queue {index[limit]} WHERE held = 'limit' LIMIT :cap) AS counted GROUP BY item_type
UNION ALL
SELECT 'in_progress', NULL, item_type, count(*)
FROM (SELECT item_type FROM unified_queue {index[worker]} WHERE status = 'in_progress' LIMIT :cap) AS counted GROUP BY item_type
UNION ALL
SELECT 'failed', NULL, item_type, count(*)
FROM (SELECT item_type FROM unified_queue {index[failed]} WHERE status = 'failed' LIMIT :cap) AS counted GROUP BY item_type

-- Rows that others are held for, existing or not.
-- name: awaited_rows
SELECT DISTINCT after_id FROM queue_dependency WHERE after_id > :after ORDER BY after_id LIMIT :limit

-- name: due_results
SELECT queue_id FROM queue_result WHERE expires_at <= :now ORDER BY expires_at, queue_id LIMIT :limit

-- name: report
INSERT INTO queue_worker (worker_id, host, pid, started_at, seen_at, info_json)
VALUES (:worker_id, :host, :pid, :started_at, :seen_at, :info_json)
ON CONFLICT (worker_id) DO UPDATE SET host = excluded.host, pid = excluded.pid,
    started_at = excluded.started_at, seen_at = excluded.seen_at, info_json = excluded.info_json

-- name: forget_worker
DELETE FROM queue_worker WHERE worker_id = :worker_id AND seen_at = :seen_at RETURNING worker_id

-- name: workers
SELECT worker_id, host, pid, started_at, seen_at, info_json FROM queue_worker ORDER BY worker_id
