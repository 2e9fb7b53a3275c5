-- Whether a row is due, and all pauses: at least one row. Promoting no row would cost twice as much.
-- name: before_claim
SELECT due.found, p.tenant_id, p.collection, p.phase, p.at_priority, p.at_turn, p.at_created, p.at_id
FROM (SELECT EXISTS (SELECT 1 FROM unified_queue WHERE held = 'time' AND run_at <= :now) AS found) AS due
LEFT JOIN queue_pause p ON true

-- Rows locked by another transaction are promoted there. Bounded: a statement over a million due rows would exceed the
-- timeout in every claim.
-- A row whose limit has not given it a start waits for one.
-- name: promote
WITH promoted AS (
    UPDATE unified_queue
    SET held = CASE WHEN limit_key IS NOT NULL AND limit_at IS NULL THEN 'limit' END, run_at = NULL, updated_at = :now
    WHERE queue_id = ANY(ARRAY(
        SELECT queue_id FROM unified_queue WHERE held = 'time' AND run_at <= :now
        ORDER BY run_at LIMIT :limit FOR UPDATE SKIP LOCKED))
    RETURNING 1
)
SELECT count(*) FROM promoted

-- The predicate is that of the index (see the migration), with literals: a parameter would lose the index. Materialized,
-- so that advisory locks are tried only for locked rows. A later statement checks whether a key is held; it sees the
-- commit of the last owner of the advisory lock. The server's lock table has a fixed size, so a transaction tries only
-- its share; the rest returns NULL. The oid of the table separates the queues of one database.
-- name: candidates
WITH found AS MATERIALIZED (
    SELECT turn, lock_held, lock_key IS NOT NULL AND lock_held IS NULL AS wants, {claim_columns}
    FROM unified_queue
    WHERE coalesce(held, status) = 'pending'
    ORDER BY priority DESC, turn, created_at, queue_id LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
SELECT turn, lock_held IS NOT NULL,
       CASE WHEN NOT wants THEN true
            WHEN count(*) FILTER (WHERE wants) OVER (ROWS UNBOUNDED PRECEDING) <= :locks
            THEN pg_try_advisory_xact_lock(hashtextextended(lock_key, 'unified_queue'::regclass::oid::bigint)) END,
       {claim}
FROM found

-- The plain case in one statement: no due row, no pause, and no candidate that lost its worker or wants a lock. Otherwise
-- nothing is taken, and there is no row; without a candidate there is one row of nulls.
-- A limit of bytes is for a result that is read later: while the server waits for room to send rows, the transaction is
-- open.
-- The rows are taken by an array of ids, which is one pass over the primary key whatever the planner expects.
-- name: take_plain
WITH found AS MATERIALIZED (
    SELECT turn = -2 OR (lock_key IS NOT NULL AND lock_held IS NULL) AS special, {claim_columns}
    FROM unified_queue
    WHERE coalesce(held, status) = 'pending'
    ORDER BY priority DESC, turn, created_at, queue_id LIMIT :limit
    FOR UPDATE SKIP LOCKED
), plain AS MATERIALIZED (
    SELECT NOT EXISTS (SELECT 1 FROM queue_pause)
       AND NOT EXISTS (SELECT 1 FROM unified_queue WHERE held = 'time' AND run_at <= :now)
       AND NOT EXISTS (SELECT 1 FROM found WHERE special)
       AND (:most_bytes::bigint IS NULL OR :most_bytes >= (
           SELECT coalesce(sum(octet_length(payload_json) + octet_length(metadata)
                               + coalesce(octet_length(progress_json), 0)), 0) FROM found)) AS so
), taken AS (
    UPDATE unified_queue AS q
    SET status = 'in_progress', worker_id = :worker_id, lease_until = :until,
        claim_number = q.claim_number + 1, lock_held = q.lock_key, started_at = :now, updated_at = :now
    WHERE q.queue_id = ANY(ARRAY(SELECT queue_id FROM found)) AND (SELECT so FROM plain)
    RETURNING q.queue_id
)
SELECT queue_id IN (SELECT queue_id FROM taken), {claim} FROM plain LEFT JOIN found ON true WHERE so

-- The oldest row of all, unless a row of its lock and priority is parked before it. It is looked up by its id.
-- name: priority_head
WITH oldest AS MATERIALIZED (
    SELECT head.queue_id
    FROM unnest('{{0,1,2,3,4,5,6,7,8,9,10}}'::int[]) AS p(priority)
    CROSS JOIN LATERAL (
        SELECT queue_id, created_at FROM unified_queue
        WHERE coalesce(held, status) = 'pending' AND priority = p.priority
        ORDER BY turn, created_at, queue_id LIMIT 1
    ) AS head
    ORDER BY head.created_at, head.queue_id LIMIT 1
), found AS MATERIALIZED (
    SELECT turn, lock_held, lock_key IS NOT NULL AND lock_held IS NULL AS wants, {claim_columns}
    FROM unified_queue q
    WHERE queue_id = (SELECT queue_id FROM oldest) AND coalesce(held, status) = (SELECT 'pending')
      AND NOT (lock_key IS NOT NULL AND lock_held IS NULL AND EXISTS (
        SELECT 1 FROM unified_queue p
        WHERE p.held = 'lock' AND p.lock_key = q.lock_key AND p.priority = q.priority
          AND (p.turn, p.created_at, p.queue_id) < (q.turn, q.created_at, q.queue_id)))
    FOR UPDATE SKIP LOCKED
)
SELECT turn, lock_held IS NOT NULL,
       CASE WHEN NOT wants THEN true ELSE pg_try_advisory_xact_lock(hashtextextended(lock_key, 'unified_queue'::regclass::oid::bigint)) END,
       {claim}
FROM found

-- name: held_locks
SELECT lock_held FROM unified_queue WHERE lock_held = ANY(:keys::text[])

-- A row that wants a lock is taken only if it is the first of its key: the key is free, and no claimable or parked row of
-- the key comes first. The candidate query skipped rows locked by other transactions, so only this statement, with its
-- own snapshot and the advisory lock of the key, can decide. The oldest row of all may pass higher priorities, but not
-- earlier rows of its own. A row is not taken if a pause came after the candidate query: an older row of its key may have
-- been held back. Refused rows are parked at once, so that no locked row is left as it was.
-- Three conditions instead of one: the first needs no column of q, and inside a larger one it would be evaluated twice
-- per row. The result is the refused rows, usually none; if all were taken, nothing is compared. One lease for all rows
-- is sent once, with an empty array: unnest fills the shorter arrays with NULL. The ids are a range of one value, as in
-- finish.
-- name: take
WITH requested AS MATERIALIZED (
    SELECT * FROM unnest(:ids::text[], :leases::timestamptz[], :keys::text[])
        AS s(queue_id, lease_until, key)
), taken AS (
    UPDATE unified_queue AS q
    SET status = 'in_progress', worker_id = :worker_id, lease_until = coalesce(s.lease_until, :until),
        claim_number = claim_number + 1, lock_held = lock_key, started_at = :now, updated_at = :now
    FROM requested AS s
    WHERE q.queue_id >= s.queue_id AND q.queue_id <= s.queue_id
      AND (s.key IS NULL OR (SELECT h.queue_id FROM unified_queue h WHERE h.lock_held = s.key LIMIT 1) IS NULL)
      AND (s.key IS NULL
           OR (SELECT f.queue_id FROM unified_queue f
               WHERE f.lock_key = s.key AND coalesce(f.held, f.status) IN ('pending', 'lock')
                 AND f.priority <= CASE WHEN q.queue_id = :oldest::text THEN q.priority ELSE 10 END
               ORDER BY f.priority DESC, f.turn, f.created_at, f.queue_id LIMIT 1) = q.queue_id)
      AND (s.key IS NULL OR NOT (SELECT EXISTS (SELECT 1 FROM queue_pause))
           OR (SELECT p.phase FROM queue_pause p
               WHERE p.phase <> 'releasing' AND p.tenant_id IN ('*', q.tenant_id)
                 AND p.collection IN ('*', q.collection) LIMIT 1) IS NULL)
    RETURNING q.queue_id
), refused AS MATERIALIZED (
    SELECT queue_id FROM requested WHERE (SELECT count(*) FROM taken) < cardinality(:ids::text[])
    EXCEPT SELECT queue_id FROM taken WHERE (SELECT count(*) FROM taken) < cardinality(:ids::text[])
), parked AS (
    UPDATE unified_queue SET held = 'lock', updated_at = :now
    WHERE queue_id = ANY(ARRAY(SELECT queue_id FROM refused))
)
SELECT queue_id FROM refused

-- The first rows without locks: other claims would have to skip rows that are not taken.
-- name: ahead_rows
SELECT queue_id, turn, lock_key, lock_held IS NOT NULL, tenant_id, collection
FROM unified_queue
WHERE coalesce(held, status) = 'pending'
ORDER BY priority DESC, turn, created_at, queue_id LIMIT :limit

-- Rows by id: here and below the predicate of the claim index is hidden, or the index would be read to its end.
-- name: hold_for_lock
UPDATE unified_queue SET held = 'lock', updated_at = :now
WHERE queue_id = ANY(ARRAY(
    SELECT queue_id FROM unified_queue
    WHERE queue_id = ANY(:ids::text[]) AND coalesce(held, status) = (SELECT 'pending')
    FOR UPDATE SKIP LOCKED))

-- The pause may have ended since the claim read it, and its resume would not see rows held back now: so only rows of
-- pauses that no transaction is changing are held back. A transaction that moves rows of a resume has the lock of
-- keep_pauses and may wait for rows of this claim, so this statement does not wait for it.
-- name: hold_for_pause
WITH active_pauses AS MATERIALIZED (
    SELECT tenant_id, collection FROM queue_pause
    WHERE phase <> 'releasing' AND (tenant_id <> '*' OR collection <> '*')
      AND (SELECT pg_try_advisory_xact_lock_shared('unified_queue'::regclass::oid::bigint))
    FOR SHARE SKIP LOCKED
)
UPDATE unified_queue
SET held = 'pause', limit_at = NULL, updated_at = :now,
    turn = CASE WHEN turn = -1 AND lock_key IS NOT NULL AND lock_held IS NULL THEN 0 ELSE least(turn, 0) END
WHERE queue_id = ANY(ARRAY(
    SELECT q.queue_id FROM unified_queue q
    WHERE q.queue_id = ANY(:ids::text[]) AND coalesce(q.held, q.status) = (SELECT 'pending')
      AND (SELECT count(*) FROM active_pauses p
           WHERE p.tenant_id IN ('*', q.tenant_id) AND p.collection IN ('*', q.collection)) > 0
    FOR UPDATE OF q SKIP LOCKED))
RETURNING queue_id
