-- The plain path in one statement: no follow-up, no children, no limit (nor has the row that gets its lock), no result
-- with a time to live, awaited by no job; the caller counts the parents. All others are decided row by row. The status is
-- hidden in a subquery: without statistics the planner would read all running rows and compare each with each, instead
-- of looking up the ids. The ids are a range of one value: for an equality the planner also considers to read the whole
-- primary key and compare each row with each id, and does so in a table that was last counted as empty. A range leaves
-- it the lookup alone. The result is one row of arrays, which costs half of a row per job.
-- name: finish
WITH ended AS (
    UPDATE unified_queue AS q
    SET status = 'done', lease_until = NULL, lock_held = NULL, error_code = NULL, error_message = NULL,
        result_json = s.result_json, finished_at = :now, updated_at = :now
    FROM unnest(:ids::text[], :numbers::int[], :results::text[]) AS s(queue_id, claim_number, result_json)
    WHERE q.queue_id >= s.queue_id AND q.queue_id <= s.queue_id AND q.claim_number = s.claim_number
      AND q.status = (SELECT 'in_progress')
      AND q.followup_json IS NULL AND q.children_open = 0 AND NOT q.awaited AND q.limit_key IS NULL
      AND q.result_ttl_s IS NULL
      AND (q.lock_key IS NULL
           OR (SELECT p.limit_key FROM unified_queue p WHERE p.held = 'lock' AND p.lock_key = q.lock_key
               ORDER BY p.priority DESC, p.turn, p.created_at, p.queue_id LIMIT 1) IS NULL)
    RETURNING q.queue_id, q.lock_key, q.parent_id, q.parent_run
)
SELECT 0, array_agg(queue_id), array_agg(lock_key), array_agg(parent_id), array_agg(parent_run) FROM ended

-- The same for an exchange whose commit is sent before its result is read: also without lock and parent, as nothing
-- else can be done in the transaction. The result is the ids.
-- name: finish_unread
WITH ended AS (
    UPDATE unified_queue AS q
    SET status = 'done', lease_until = NULL, error_code = NULL, error_message = NULL,
        result_json = s.result_json, finished_at = :now, updated_at = :now
    FROM unnest(:ids::text[], :numbers::int[], :results::text[]) AS s(queue_id, claim_number, result_json)
    WHERE q.queue_id >= s.queue_id AND q.queue_id <= s.queue_id AND q.claim_number = s.claim_number
      AND q.status = (SELECT 'in_progress')
      AND q.followup_json IS NULL AND q.children_open = 0 AND NOT q.awaited AND q.limit_key IS NULL
      AND q.result_ttl_s IS NULL AND q.lock_key IS NULL AND q.parent_id IS NULL
    RETURNING q.queue_id
)
SELECT array_agg(queue_id) FROM ended

-- Like finish, and if all were plain the locks are passed on at once, so that the claim in the same round trip finds the
-- rows. Like first_parked it does not wait. The holders are the rows of this statement.
-- The first parked row stays while an earlier row of its tenant and priority is claimable: that row was locked by another
-- transaction when this one was parked, and a woken row would pass it. It also stays while an earlier row with a turn
-- below zero is claimable, which takes the lock next. The checks are scalar subqueries: NOT EXISTS would be planned as a
-- join, by statistics that a new queue does not have. The first rows are looked up by id, with a hidden reason: as a
-- literal it would match the index of parked rows, which would be read to its end.
-- name: finish_and_wake
WITH ended AS (
    UPDATE unified_queue AS q
    SET status = 'done', lease_until = NULL, lock_held = NULL, error_code = NULL, error_message = NULL,
        result_json = s.result_json, finished_at = :now, updated_at = :now
    FROM unnest(:ids::text[], :numbers::int[], :results::text[])
        AS s(queue_id, claim_number, result_json)
    WHERE q.queue_id >= s.queue_id AND q.queue_id <= s.queue_id AND q.claim_number = s.claim_number
      AND q.status = (SELECT 'in_progress')
      AND q.followup_json IS NULL AND q.children_open = 0 AND NOT q.awaited AND q.limit_key IS NULL
      AND q.result_ttl_s IS NULL
      AND (q.lock_key IS NULL
           OR (SELECT p.limit_key FROM unified_queue p WHERE p.held = 'lock' AND p.lock_key = q.lock_key
               ORDER BY p.priority DESC, p.turn, p.created_at, p.queue_id LIMIT 1) IS NULL)
    RETURNING q.queue_id, q.lock_key, q.parent_id, q.parent_run
), parked AS MATERIALIZED (
    SELECT p.queue_id FROM unified_queue p
    WHERE p.held = (SELECT 'lock') AND p.queue_id = ANY(ARRAY(
        SELECT f.queue_id FROM ended e CROSS JOIN LATERAL (
            SELECT * FROM unified_queue WHERE held = 'lock' AND lock_key = e.lock_key
            ORDER BY priority DESC, turn, created_at, queue_id LIMIT 1
        ) AS f
        WHERE e.lock_key IS NOT NULL AND EXISTS (SELECT 1 FROM unified_queue WHERE held = 'lock')
          AND (SELECT count(*) FROM ended) = cardinality(:ids::text[])
          AND (SELECT c.queue_id FROM unified_queue c
               WHERE c.lock_key = f.lock_key AND coalesce(c.held, c.status) IN ('pending', 'lock')
                 AND c.priority = f.priority AND c.turn BETWEEN 0 AND f.turn
                 AND (c.turn, c.created_at, c.queue_id) < (f.turn, f.created_at, f.queue_id)
                 AND c.held IS NULL AND c.tenant_id = f.tenant_id LIMIT 1) IS NULL
          AND (SELECT c.queue_id FROM unified_queue c
               WHERE c.lock_key = f.lock_key AND coalesce(c.held, c.status) IN ('pending', 'lock')
                 AND c.priority IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10) AND c.turn < 0 AND c.held IS NULL
                 AND (-c.priority, c.turn, c.created_at, c.queue_id)
                     < (-f.priority, f.turn, f.created_at, f.queue_id) LIMIT 1) IS NULL))
    FOR UPDATE SKIP LOCKED
), woken AS (
    UPDATE unified_queue AS q
    SET held = CASE WHEN q.limit_key IS NOT NULL THEN 'limit' END, turn = CASE WHEN q.turn = -2 THEN -2 ELSE -1 END, updated_at = :now
    WHERE q.queue_id = ANY(ARRAY(SELECT queue_id FROM parked))
    RETURNING 1
)
SELECT (SELECT count(*) FROM woken), array_agg(queue_id), array_agg(lock_key), array_agg(parent_id), array_agg(parent_run)
FROM ended

-- In the transaction that freed the locks, so that its own claim finds the row. It must not wait for others: wake checks
-- rows locked by them once more, after the commit. It skips the same rows as finish_and_wake.
-- name: first_parked
SELECT {job} FROM unified_queue WHERE held = (SELECT 'lock') AND queue_id = ANY(ARRAY(
    SELECT f.queue_id FROM unnest(:keys::text[]) AS k(lock_key) CROSS JOIN LATERAL (
        SELECT * FROM unified_queue WHERE held = 'lock' AND lock_key = k.lock_key
        ORDER BY priority DESC, turn, created_at, queue_id LIMIT 1
    ) AS f
    WHERE (SELECT h.queue_id FROM unified_queue h WHERE h.lock_held = f.lock_key LIMIT 1) IS NULL
      AND (SELECT c.queue_id FROM unified_queue c
           WHERE c.lock_key = f.lock_key AND coalesce(c.held, c.status) IN ('pending', 'lock')
             AND c.priority = f.priority AND c.turn BETWEEN 0 AND f.turn
             AND (c.turn, c.created_at, c.queue_id) < (f.turn, f.created_at, f.queue_id)
             AND c.held IS NULL AND c.tenant_id = f.tenant_id LIMIT 1) IS NULL
      AND (SELECT c.queue_id FROM unified_queue c
           WHERE c.lock_key = f.lock_key AND coalesce(c.held, c.status) IN ('pending', 'lock')
             AND c.priority IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10) AND c.turn < 0 AND c.held IS NULL
             AND (-c.priority, c.turn, c.created_at, c.queue_id)
                 < (-f.priority, f.turn, f.created_at, f.queue_id) LIMIT 1) IS NULL))
ORDER BY lock_key FOR UPDATE SKIP LOCKED

-- Rows of a scope that are parked, for a resume; nothing but NULL for one that another transaction has locked, perhaps to
-- wake it: it is not waited for, as that transaction may wait for the pauses.
-- name: parked_rows
WITH seen AS MATERIALIZED (
    SELECT queue_id FROM unified_queue
    WHERE held = 'lock' AND %(tenant_id)s::text IN ('*', tenant_id) AND %(collection)s::text IN ('*', collection)
    ORDER BY lock_key, priority DESC, turn, created_at, queue_id LIMIT %(limit)s
), locked AS MATERIALIZED (
    SELECT {job} FROM unified_queue WHERE held = (SELECT 'lock') AND queue_id = ANY(ARRAY(SELECT queue_id FROM seen))
    FOR UPDATE SKIP LOCKED
)
SELECT locked.* FROM seen LEFT JOIN locked ON locked.queue_id = seen.queue_id

-- After the commit of a transaction that freed a lock or parked a row for it. Both check after their own commit, so the
-- second sees the effect of the first: a parked row that is the first of a free lock. It does not wait, and returns the
-- keys whose first row another transaction has locked. A row lock is kept when the row has changed meanwhile, so waiting
-- for the second of several rows could close a circle of transactions.
-- name: wake
WITH heads AS MATERIALIZED (
    SELECT k.lock_key, (
        SELECT f.queue_id FROM unified_queue f
        WHERE f.lock_key = k.lock_key AND coalesce(f.held, f.status) IN ('pending', 'lock')
        ORDER BY f.priority DESC, f.turn, f.created_at, f.queue_id LIMIT 1) AS queue_id
    FROM unnest(:keys::text[]) AS k(lock_key)
    WHERE EXISTS (SELECT 1 FROM unified_queue WHERE held = 'lock')
      AND (SELECT h.queue_id FROM unified_queue h WHERE h.lock_held = k.lock_key LIMIT 1) IS NULL
), parked AS MATERIALIZED (
    SELECT h.lock_key, h.queue_id FROM heads h
    WHERE (SELECT p.held FROM unified_queue p WHERE p.queue_id = h.queue_id) = 'lock'
), first AS MATERIALIZED (
    SELECT p.queue_id FROM unified_queue p
    WHERE p.queue_id = ANY(ARRAY(SELECT queue_id FROM parked)) AND p.held = (SELECT 'lock')
    FOR UPDATE SKIP LOCKED
), woken AS (
    UPDATE unified_queue q
    SET held = CASE WHEN q.limit_key IS NOT NULL THEN 'limit' END, turn = CASE WHEN q.turn = -2 THEN -2 ELSE -1 END, updated_at = clock_timestamp()
    WHERE q.queue_id = ANY(ARRAY(SELECT queue_id FROM first))
    RETURNING 1
), notified AS MATERIALIZED (
    SELECT pg_notify(:channel, '') FROM (SELECT count(*) AS number FROM woken) AS counted WHERE number > 0
)
SELECT lock_key FROM parked
WHERE (SELECT count(*) FROM notified) >= 0 AND queue_id <> ALL(ARRAY(SELECT queue_id FROM first))

-- One of those keys, in its own transaction: it waits for the row and holds no lock meanwhile. Otherwise a claim that is
-- about to release its candidates would hide the row from the only transaction that wakes it.
-- name: wake_one
WITH first AS MATERIALIZED (
    SELECT p.queue_id FROM unified_queue p
    WHERE p.held = (SELECT 'lock')
      AND p.queue_id = (
        SELECT f.queue_id FROM unified_queue f
        WHERE f.lock_key = :key::text AND coalesce(f.held, f.status) IN ('pending', 'lock')
        ORDER BY f.priority DESC, f.turn, f.created_at, f.queue_id LIMIT 1)
      AND NOT EXISTS (SELECT 1 FROM unified_queue h WHERE h.lock_held = :key::text)
    FOR UPDATE
), woken AS (
    UPDATE unified_queue q
    SET held = CASE WHEN q.limit_key IS NOT NULL THEN 'limit' END, turn = CASE WHEN q.turn = -2 THEN -2 ELSE -1 END, updated_at = clock_timestamp()
    WHERE q.queue_id = ANY(ARRAY(SELECT queue_id FROM first))
    RETURNING 1
)
SELECT pg_notify(:channel, '') FROM (SELECT count(*) AS number FROM woken) AS counted WHERE number > 0

-- name: any_parked
SELECT EXISTS (SELECT 1 FROM unified_queue WHERE held = 'lock')

-- One lookup for each key and each check: joined, every parked row was compared with every claimable one.
-- name: idle_locks
WITH RECURSIVE keys(lock_key) AS (
    (SELECT lock_key FROM unified_queue WHERE held = 'lock' ORDER BY lock_key LIMIT 1)
    UNION ALL
    SELECT n.lock_key FROM keys k CROSS JOIN LATERAL (
        SELECT lock_key FROM unified_queue WHERE held = 'lock' AND lock_key > k.lock_key ORDER BY lock_key LIMIT 1
    ) AS n
)
SELECT k.lock_key FROM keys k
WHERE (SELECT h.queue_id FROM unified_queue h WHERE h.lock_held = k.lock_key LIMIT 1) IS NULL
  AND (SELECT c.queue_id FROM unified_queue c
       WHERE c.lock_key = k.lock_key AND coalesce(c.held, c.status) IN ('pending', 'lock') AND c.held IS NULL LIMIT 1) IS NULL
LIMIT :limit

-- name: add_due_results
INSERT INTO queue_result (expires_at, queue_id)
SELECT * FROM unnest(:times::timestamptz[], :ids::text[]) ON CONFLICT DO NOTHING

-- name: drop_due_results
DELETE FROM queue_result WHERE expires_at <= :now AND queue_id = ANY(:ids::text[])

-- A range of the primary key that no other index has in order.
-- name: dependents
SELECT queue_id FROM queue_dependency
WHERE (after_id, queue_id) > (:queue_id, :after) AND after_id <= :queue_id
ORDER BY after_id, queue_id LIMIT :limit

-- name: statuses
SELECT queue_id, status FROM unified_queue WHERE queue_id = ANY(:ids::text[])

-- name: add_dependencies
INSERT INTO queue_dependency (after_id, queue_id)
SELECT * FROM unnest(:after_ids::text[], :ids::text[]) ON CONFLICT DO NOTHING

-- Ranges in the order of one index: by the row alone, the primary key might be read to its end. Entries never change, so
-- they are deleted by their place.
-- name: drop_dependencies
DELETE FROM queue_dependency WHERE ctid = ANY(ARRAY(
    SELECT d.place FROM unnest(:ids::text[]) AS i(queue_id) CROSS JOIN LATERAL (
        SELECT ctid AS place FROM queue_dependency
        WHERE (queue_id, after_id) >= (i.queue_id, '') AND queue_id <= i.queue_id
        ORDER BY queue_id, after_id OFFSET 0
    ) AS d))

-- name: children
SELECT {job} FROM unified_queue
WHERE parent_id = :parent_id AND parent_run = :parent_run AND status = ANY(:statuses::text[])
  AND NOT (status = 'in_progress' AND cancel_requested)
ORDER BY queue_id LIMIT :limit

-- name: child_count
SELECT count(*), count(*) FILTER (WHERE finished_at IS NULL), count(*) FILTER (WHERE status = 'failed')
FROM unified_queue
WHERE parent_id = :parent_id AND parent_run = :parent_run

-- name: doubtful_parents
SELECT queue_id FROM unified_queue p
WHERE p.waiting_for = 'children' AND p.finished_at IS NULL AND p.lease_until IS NULL
  AND p.status = (SELECT 'in_progress')
  AND (p.cancel_requested
       OR p.children_open = 0
       OR p.children_open <> (
            SELECT count(*) FROM unified_queue c
            WHERE c.parent_id = p.queue_id AND c.parent_run = p.run AND c.finished_at IS NULL)
       OR p.children_failed <> (
            SELECT count(*) FROM unified_queue c
            WHERE c.parent_id = p.queue_id AND c.parent_run = p.run AND c.status = (SELECT 'failed')))
ORDER BY p.queue_id LIMIT :limit
