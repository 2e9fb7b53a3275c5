-- An update of no row still opens every index; this check costs a quarter. Together with the check for a pause: most
-- of the price of a short statement is its start.
-- name: before_claim
SELECT EXISTS (SELECT 1 FROM queue_pause),
       EXISTS (SELECT 1 FROM unified_queue INDEXED BY idx_unified_queue_scheduled WHERE held = 'time' AND run_at <= :now)

-- name: any_due
SELECT 1 FROM unified_queue INDEXED BY idx_unified_queue_scheduled WHERE held = 'time' AND run_at <= :now LIMIT 1

-- A row whose limit has not given it a start waits for one.
-- name: promote
UPDATE unified_queue
SET held = CASE WHEN limit_key IS NOT NULL AND limit_at IS NULL THEN 'limit' END, run_at = NULL, updated_at = :now
WHERE rowid IN (
    SELECT rowid FROM unified_queue INDEXED BY idx_unified_queue_scheduled
    WHERE held = 'time' AND run_at <= :now ORDER BY run_at LIMIT :limit)

-- With whether any row holds the lock: as a statement of its own, that costs a single claim a third more.
-- name: candidates
SELECT rowid, turn, lock_key, lock_held IS NOT NULL,
    EXISTS (SELECT 1 FROM unified_queue h INDEXED BY idx_unified_queue_lock WHERE h.lock_held = unified_queue.lock_key),
    {claim}
FROM unified_queue INDEXED BY idx_unified_queue_dequeue
WHERE status = 'pending' AND held IS NULL
ORDER BY priority DESC, turn, created_at, queue_id LIMIT :limit

-- name: priority_head
SELECT rowid, turn, lock_key, lock_held IS NOT NULL,
    EXISTS (SELECT 1 FROM unified_queue h INDEXED BY idx_unified_queue_lock WHERE h.lock_held = unified_queue.lock_key),
    {claim}
FROM unified_queue INDEXED BY idx_unified_queue_dequeue
WHERE status = 'pending' AND held IS NULL AND priority = :priority
ORDER BY turn, created_at, queue_id LIMIT 1

-- name: parked_before
SELECT 1 FROM unified_queue INDEXED BY idx_unified_queue_parked
WHERE held = 'lock' AND lock_key = :lock_key AND priority = :priority AND (turn, created_at, queue_id) < (:turn, :created_at, :queue_id) LIMIT 1

-- name: take
UPDATE unified_queue
SET status = 'in_progress', worker_id = :worker_id, lease_until = :lease_until, claim_number = claim_number + 1,
    lock_held = lock_key, started_at = :started_at, updated_at = :updated_at
WHERE rowid = :row

-- name: take_all
UPDATE OR FAIL unified_queue
SET status = 'in_progress', worker_id = :worker_id, lease_until = :lease_until, claim_number = claim_number + 1,
    lock_held = lock_key, started_at = :started_at, updated_at = :updated_at
WHERE rowid IN (SELECT value FROM json_each(:rows))

-- name: hold_for_lock
UPDATE unified_queue SET held = 'lock', updated_at = :now WHERE rowid = :row

-- name: hold_for_pause
UPDATE unified_queue
SET held = 'pause', limit_at = NULL, updated_at = :now,
    turn = CASE WHEN turn = -1 AND lock_key IS NOT NULL AND lock_held IS NULL THEN 0 ELSE min(turn, 0) END
WHERE rowid = :row
