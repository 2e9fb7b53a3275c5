-- In claim order, without rows whose lock is held. One index probe per row: NOT EXISTS was planned as a join with the
-- whole table. The item type is hidden from the planner, which would sort all rows of the type;
-- the predicate is that of the claim's index.
-- name: upcoming
SELECT queue_id, lock_key, tenant_id, collection
FROM unified_queue q
WHERE coalesce(held, status) = 'pending'
  AND coalesce(item_type = :item_type::text, true) = (SELECT true)
  AND (lock_key IS NULL OR lock_held IS NOT NULL
       OR (SELECT h.queue_id FROM unified_queue h WHERE h.lock_held = q.lock_key LIMIT 1) IS NULL)
ORDER BY priority DESC, turn, created_at, queue_id LIMIT :limit OFFSET :start

-- Due rows, which the next claim promotes.
-- name: upcoming_due
SELECT queue_id, lock_key, tenant_id, collection
FROM unified_queue q
WHERE held = 'time' AND run_at <= :now AND (:item_type::text IS NULL OR item_type = :item_type::text)
  AND (lock_key IS NULL OR lock_held IS NOT NULL
       OR (SELECT h.queue_id FROM unified_queue h WHERE h.lock_held = q.lock_key LIMIT 1) IS NULL)
ORDER BY run_at LIMIT :limit

-- name: jobs_of
SELECT {job} FROM unified_queue WHERE queue_id = ANY(:ids::text[])

-- Until the commit of a new row no resume moves rows: it must not overlook a row that is not held back. An advisory
-- lock, because the server grants it in the order of requests: row locks FOR SHARE pass a waiting resume for ever. FOR
-- SHARE returns the newest version of a pause that was changed while this statement waited.
-- name: keep_pauses
SELECT tenant_id, collection, phase, at_priority, at_turn, at_created, at_id FROM queue_pause
WHERE (SELECT pg_advisory_xact_lock_shared('unified_queue'::regclass::oid::bigint) IS NOT NULL)
ORDER BY tenant_id, collection FOR SHARE

-- One process at a time moves the rows of a resume; the others do not wait.
-- name: resume_alone
SELECT pg_try_advisory_xact_lock('queue_pause'::regclass::oid::bigint)

-- The lock of keep_pauses, for a transaction that moves rows. A statement of its own: the next one sees all rows
-- committed before.
-- name: exclude_additions
SELECT pg_advisory_xact_lock('unified_queue'::regclass::oid::bigint)

-- name: hold_pauses
SELECT tenant_id, collection, phase, at_priority, at_turn, at_created, at_id FROM queue_pause
ORDER BY tenant_id, collection FOR UPDATE

-- name: table_pages
SELECT pg_relation_size('unified_queue') / current_setting('block_size')::bigint

-- Random pages: their count, divided by their share, estimates the whole.
-- name: tally_sample
SELECT status, held, item_type, count(*) FROM unified_queue TABLESAMPLE SYSTEM (:percent)
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
                 AND status = (SELECT 'in_progress'))

-- name: any_returning
SELECT EXISTS (SELECT 1 FROM unified_queue
               WHERE status = (SELECT 'pending') AND retry_count > 0 AND run_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM unified_queue WHERE held = 'time' AND run_at <= :now)

-- A lookup per tree: NOT EXISTS would be planned as a join.
-- name: ended_trees
SELECT {job} FROM unified_queue r
WHERE r.finished_at IS NOT NULL AND r.parent_id IS NULL
  AND ((r.status = 'done' AND r.finished_at < :done)
    OR (r.status = 'failed' AND r.finished_at < :failed)
    OR (r.status = 'cancelled' AND r.finished_at < :cancelled))
  AND (CAST(:item_type AS text) IS NULL OR r.item_type = :item_type)
  AND (SELECT c.queue_id FROM unified_queue c
       WHERE c.root_id <> c.queue_id AND c.root_id = r.queue_id AND c.finished_at IS NULL LIMIT 1) IS NULL
ORDER BY r.finished_at, r.queue_id LIMIT :limit
FOR UPDATE SKIP LOCKED

-- Locked before the check: a child requeued meanwhile is live.
-- name: descendants
SELECT queue_id, finished_at IS NULL FROM unified_queue
WHERE root_id <> queue_id AND root_id = :root_id ORDER BY queue_id LIMIT :limit
FOR UPDATE

-- name: delete
DELETE FROM unified_queue WHERE queue_id = ANY(:ids::text[])

-- name: any_claimable
SELECT EXISTS (SELECT 1 FROM unified_queue WHERE coalesce(held, status) = 'pending')
   AND NOT EXISTS (SELECT 1 FROM queue_pause WHERE tenant_id = '*' AND collection = '*')

-- name: durability
SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes')

-- On a replica, and where a transaction begins without the right to write.
-- name: read_only
SELECT current_setting('transaction_read_only') = 'on'

-- Sessions of other users are visible only with the right to see them.
-- name: open_transactions
SELECT pid, extract(epoch FROM clock_timestamp() - xact_start)::int FROM pg_stat_activity
WHERE datname = current_database() AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
  AND xact_start < clock_timestamp() - :seconds * interval '1 second'
ORDER BY xact_start LIMIT 1

-- Two statements, each a range of the index: a combined condition would be checked on every row.
-- name: ahead_above
SELECT count(*) FROM (
    SELECT 1 FROM unified_queue
    WHERE {claimable} AND priority > :priority LIMIT :cap
) AS counted

-- name: ahead_within
SELECT count(*) FROM (
    SELECT 1 FROM unified_queue
    WHERE {claimable} AND priority = :priority
      AND (turn, created_at, queue_id) < (:turn, :created_at, :queue_id)
    LIMIT :cap
) AS counted

-- Pending rows, and requests among them, both up to a bound. The former in the order of the index, so that no other
-- one is taken, which has the failed rows as well; the latter as in backlog_indexing.
-- name: lengths
SELECT (SELECT count(*) FROM (
            SELECT 1 FROM unified_queue WHERE status = 'pending' ORDER BY tenant_id, priority, turn LIMIT :cap
        ) AS counted),
       (SELECT count(*) FROM (
            SELECT 1 FROM unnest(ARRAY[{indexing_types}]) AS t(item_type) CROSS JOIN LATERAL (
                SELECT 1 FROM unified_queue q
                WHERE q.item_type = t.item_type AND q.status IN ('pending', 'failed') AND q.status = (SELECT 'pending')
                  AND q.parent_id IS NULL LIMIT :cap
            ) AS found
            LIMIT :cap
        ) AS counted)

-- name: requests_ahead
SELECT count(*) FROM unnest(ARRAY[{indexing_types}]) AS t(item_type) CROSS JOIN LATERAL (
    SELECT held, priority, turn, created_at, queue_id FROM unified_queue q
    WHERE q.item_type = t.item_type AND q.status IN ('pending', 'failed') AND q.status = (SELECT 'pending')
      AND q.parent_id IS NULL LIMIT :cap
) AS found
WHERE held IS NULL AND (priority > :priority
    OR priority = :priority AND (turn, created_at, queue_id) < (:turn, :created_at, :queue_id))
