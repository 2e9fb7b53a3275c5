-- name: expired
SELECT {job} FROM unified_queue
WHERE lease_until IS NOT NULL AND lease_until < %(now)s
ORDER BY lease_until, queue_id LIMIT %(limit)s

-- In two statements, so that each is a range of the index: what is left of a priority, and all below it.
-- name: paused_from
SELECT {job} FROM unified_queue
WHERE held = 'pause' AND priority = %(priority)s
  AND (turn, created_at, queue_id) > (%(turn)s, %(created_at)s, %(queue_id)s)
ORDER BY turn, created_at, queue_id LIMIT %(limit)s
FOR UPDATE

-- name: paused_below
SELECT {job} FROM unified_queue
WHERE held = 'pause' AND priority < %(priority)s
ORDER BY priority DESC, turn, created_at, queue_id LIMIT %(limit)s
FOR UPDATE

-- name: claimable_from
SELECT queue_id, tenant_id, collection, priority, turn, created_at FROM unified_queue
WHERE coalesce(held, status) = 'pending' AND priority = %(priority)s
  AND (turn, created_at, queue_id) > (%(turn)s, %(created_at)s, %(queue_id)s)
ORDER BY turn, created_at, queue_id LIMIT %(limit)s

-- name: claimable_below
SELECT queue_id, tenant_id, collection, priority, turn, created_at FROM unified_queue
WHERE coalesce(held, status) = 'pending' AND priority < %(priority)s
ORDER BY priority DESC, turn, created_at, queue_id LIMIT %(limit)s

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
SELECT tenant_id, collection, phase, at_priority, at_turn, at_created, at_id FROM queue_pause

-- Whoever adds a row has to know of a resume until it is committed: a row that is not held back must not be
-- overlooked by it.
-- name: keep_pauses
SELECT tenant_id, collection, phase, at_priority, at_turn, at_created, at_id FROM queue_pause
ORDER BY tenant_id, collection FOR SHARE

-- One process at a time moves the rows of a resume; the others do not wait for it.
-- name: resume_alone
SELECT pg_try_advisory_xact_lock('queue_pause'::regclass::oid::bigint)

-- name: hold_pauses
SELECT tenant_id, collection, phase, at_priority, at_turn, at_created, at_id FROM queue_pause
ORDER BY tenant_id, collection FOR UPDATE

-- name: set_pause
INSERT INTO queue_pause (tenant_id, collection, phase, at_priority, at_turn, at_created, at_id)
VALUES (%(tenant_id)s, %(collection)s, %(phase)s, %(priority)s, %(turn)s, %(created_at)s, %(queue_id)s)
ON CONFLICT (tenant_id, collection) DO UPDATE SET phase = excluded.phase, at_priority = excluded.at_priority,
    at_turn = excluded.at_turn, at_created = excluded.at_created, at_id = excluded.at_id

-- name: drop_pause
DELETE FROM queue_pause WHERE tenant_id = %(tenant_id)s AND collection = %(collection)s

-- Each of the two is a range of the index: one condition for both would be asked of every row.
-- name: ahead_above
SELECT count(*) FROM (
    SELECT 1 FROM unified_queue
    WHERE coalesce(held, status) = 'pending' AND priority > %(priority)s LIMIT %(cap)s
) AS counted

-- name: ahead_within
SELECT count(*) FROM (
    SELECT 1 FROM unified_queue
    WHERE coalesce(held, status) = 'pending' AND priority = %(priority)s
      AND (turn, created_at, queue_id) < (%(turn)s, %(created_at)s, %(queue_id)s)
    LIMIT %(cap)s
) AS counted

-- name: pending
SELECT count(*) FROM (SELECT 1 FROM unified_queue WHERE status = 'pending' LIMIT %(cap)s) AS counted

-- name: table_pages
SELECT pg_relation_size('unified_queue') / current_setting('block_size')::bigint

-- name: tally_all
SELECT status, held, item_type, count(*) FROM unified_queue GROUP BY status, held, item_type

-- Each kind that has an index of its own, counted up to a bound.
-- name: tally_bounded
SELECT 'pending', NULL, item_type, count(*)
FROM (SELECT item_type FROM unified_queue WHERE coalesce(held, status) = 'pending' LIMIT %(cap)s) AS counted GROUP BY item_type
UNION ALL
SELECT 'pending', 'time', item_type, count(*)
FROM (SELECT item_type FROM unified_queue WHERE held = 'time' LIMIT %(cap)s) AS counted GROUP BY item_type
UNION ALL
SELECT 'pending', 'lock', item_type, count(*)
FROM (SELECT item_type FROM unified_queue WHERE held = 'lock' LIMIT %(cap)s) AS counted GROUP BY item_type
UNION ALL
SELECT 'pending', 'pause', item_type, count(*)
FROM (SELECT item_type FROM unified_queue WHERE held = 'pause' LIMIT %(cap)s) AS counted GROUP BY item_type
UNION ALL
SELECT 'in_progress', NULL, item_type, count(*)
FROM (SELECT item_type FROM unified_queue WHERE status = 'in_progress' LIMIT %(cap)s) AS counted GROUP BY item_type
UNION ALL
SELECT 'failed', NULL, item_type, count(*)
FROM (SELECT item_type FROM unified_queue WHERE status = 'failed' LIMIT %(cap)s) AS counted GROUP BY item_type

-- Some pages by chance: a count there, times the share that was left out, is what to expect of the whole.
-- name: tally_sample
SELECT status, held, item_type, count(*) FROM unified_queue TABLESAMPLE SYSTEM (%(percent)s)
GROUP BY status, held, item_type

-- name: oldest
SELECT min(created_at) FROM (
    SELECT (SELECT created_at FROM unified_queue
            WHERE coalesce(held, status) = 'pending' AND priority = p.priority
            ORDER BY turn, created_at, queue_id LIMIT 1) AS created_at
    FROM unnest('{{0,1,2,3,4,5,6,7,8,9,10}}'::int[]) AS p(priority)
    UNION ALL
    SELECT (SELECT created_at FROM unified_queue
            WHERE held = 'pause' AND priority = p.priority ORDER BY turn, created_at, queue_id LIMIT 1)
    FROM unnest('{{0,1,2,3,4,5,6,7,8,9,10}}'::int[]) AS p(priority)
    UNION ALL
    SELECT (SELECT created_at FROM unified_queue WHERE held = 'lock' LIMIT 1)
    UNION ALL
    SELECT (SELECT created_at FROM unified_queue WHERE held = 'time' ORDER BY run_at LIMIT 1)
) AS next_in_line

-- name: any_leased
SELECT EXISTS (SELECT 1 FROM unified_queue WHERE lease_until IS NOT NULL)

-- name: any_waiting
SELECT EXISTS (SELECT 1 FROM unified_queue
               WHERE waiting_for IS NOT NULL AND finished_at IS NULL AND waiting_for <> 'children'
                 AND status = 'in_progress')

-- name: any_returning
SELECT EXISTS (SELECT 1 FROM unified_queue
               WHERE status = (SELECT 'pending') AND retry_count > 0 AND run_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM unified_queue WHERE held = 'time' AND run_at <= %(now)s)

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
   AND NOT EXISTS (SELECT 1 FROM queue_pause WHERE tenant_id = '*' AND collection = '*')

-- name: durability
SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes')

-- Of sessions of other users nothing is shown to who may not see them.
-- name: open_transactions
SELECT pid, extract(epoch FROM clock_timestamp() - xact_start)::int FROM pg_stat_activity
WHERE datname = current_database() AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
  AND xact_start < clock_timestamp() - %(seconds)s * interval '1 second'
ORDER BY xact_start LIMIT 1
