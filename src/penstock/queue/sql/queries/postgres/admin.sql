-- name: expired
SELECT {job} FROM unified_queue
WHERE lease_until IS NOT NULL AND lease_until < %(now)s
ORDER BY lease_until, queue_id LIMIT %(limit)s

-- name: paused_rows
SELECT {job} FROM unified_queue
WHERE held = 'pause'
  AND (%(priority)s::int IS NULL
       OR (-priority, turn, created_at, queue_id)
          > (%(priority)s::int, %(turn)s::int, %(created_at)s::timestamptz, %(queue_id)s::text))
ORDER BY priority DESC, turn, created_at, queue_id LIMIT %(limit)s
FOR UPDATE

-- In claim order; rows whose lock another holds are left out. By one probe a row: as NOT EXISTS it was planned as a
-- join with the whole table. The item type is hidden from the planner, which would sort all rows of the type;
-- the predicate is that of the claim's index.
-- name: upcoming
SELECT queue_id, lock_key, tenant_id, collection
FROM unified_queue q
WHERE coalesce(held, status) = 'pending'
  AND coalesce(item_type = %(item_type)s::text, true) = (SELECT true)
  AND (lock_key IS NULL OR lock_held IS NOT NULL
       OR (SELECT h.queue_id FROM unified_queue h WHERE h.lock_held = q.lock_key LIMIT 1) IS NULL)
ORDER BY priority DESC, turn, created_at, queue_id LIMIT %(limit)s OFFSET %(start)s

-- What the next claim takes up.
-- name: upcoming_due
SELECT queue_id, lock_key, tenant_id, collection
FROM unified_queue q
WHERE held = 'time' AND run_at <= %(now)s AND (%(item_type)s::text IS NULL OR item_type = %(item_type)s::text)
  AND (lock_key IS NULL OR lock_held IS NOT NULL
       OR (SELECT h.queue_id FROM unified_queue h WHERE h.lock_held = q.lock_key LIMIT 1) IS NULL)
ORDER BY run_at LIMIT %(limit)s

-- name: jobs_of
SELECT {job} FROM unified_queue WHERE queue_id = ANY(%(ids)s::text[])

-- name: lock_holder
SELECT queue_id FROM unified_queue WHERE lock_held = %(lock_key)s

-- name: pauses
SELECT tenant_id, collection FROM queue_pause

-- name: pause
INSERT INTO queue_pause (tenant_id, collection) VALUES (%(tenant_id)s, %(collection)s) ON CONFLICT DO NOTHING

-- name: resume
DELETE FROM queue_pause WHERE tenant_id = %(tenant_id)s AND collection = %(collection)s

-- name: ahead
SELECT count(*) FROM (
    SELECT 1 FROM unified_queue
    WHERE coalesce(held, status) = 'pending'
      AND (priority > %(priority)s
           OR (priority = %(priority)s
               AND (turn, created_at, queue_id) < (%(turn)s, %(created_at)s, %(queue_id)s)))
    LIMIT %(cap)s
) AS counted

-- name: pending
SELECT count(*) FROM (SELECT 1 FROM unified_queue WHERE status = 'pending' LIMIT %(cap)s) AS counted

-- name: ended_trees
SELECT {job} FROM unified_queue r
WHERE r.finished_at IS NOT NULL AND r.parent_id IS NULL
  AND ((r.status = 'done' AND r.finished_at < %(done)s)
    OR (r.status = 'failed' AND r.finished_at < %(failed)s)
    OR (r.status = 'cancelled' AND r.finished_at < %(cancelled)s))
  AND (%(item_type)s::text IS NULL OR r.item_type = %(item_type)s)
  AND NOT EXISTS (SELECT 1 FROM unified_queue c
                  WHERE c.parent_id IS NOT NULL AND c.root_id = r.queue_id AND c.finished_at IS NULL)
ORDER BY r.finished_at, r.queue_id LIMIT %(limit)s
FOR UPDATE SKIP LOCKED

-- Locked before it is looked at: a child that is put back meanwhile shows that it lives again.
-- name: descendants
SELECT queue_id, finished_at IS NULL FROM unified_queue
WHERE parent_id IS NOT NULL AND root_id = %(root_id)s ORDER BY queue_id LIMIT %(limit)s
FOR UPDATE

-- name: delete
DELETE FROM unified_queue WHERE queue_id = ANY(%(ids)s::text[])

-- name: report
INSERT INTO queue_worker (worker_id, host, pid, started_at, seen_at, info_json)
VALUES (%(worker_id)s, %(host)s, %(pid)s, %(started_at)s, %(seen_at)s, %(info_json)s)
ON CONFLICT (worker_id) DO UPDATE SET host = excluded.host, pid = excluded.pid,
    started_at = excluded.started_at, seen_at = excluded.seen_at, info_json = excluded.info_json

-- name: workers
SELECT worker_id, host, pid, started_at, seen_at, info_json FROM queue_worker ORDER BY worker_id

-- name: any_claimable
SELECT EXISTS (SELECT 1 FROM unified_queue WHERE coalesce(held, status) = 'pending')

-- name: durability
SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes')

-- Of sessions of other users nothing is shown to who may not see them.
-- name: open_transactions
SELECT pid, extract(epoch FROM clock_timestamp() - xact_start)::int FROM pg_stat_activity
WHERE datname = current_database() AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
  AND xact_start < clock_timestamp() - %(seconds)s * interval '1 second'
ORDER BY xact_start LIMIT 1
