-- name: limit_body
SELECT body FROM queue_limit WHERE limit_key = :limit_key {for_update}

-- name: all_limits
SELECT body FROM queue_limit

-- name: set_limit
INSERT INTO queue_limit (limit_key, body) VALUES (:limit_key, :body)
ON CONFLICT (limit_key) DO UPDATE SET body = excluded.body

-- name: drop_limit
DELETE FROM queue_limit WHERE limit_key = :limit_key RETURNING limit_key

-- Each a range of the index. Rows that wait for the limit are in none of them. Status and reason are hidden in subqueries
-- here and below: as literals they would match indexes of PostgreSQL over all pending or scheduled rows.
-- name: slots
SELECT
    (SELECT count(*) FROM (
        SELECT 1 FROM unified_queue {index[limit]}
        WHERE limit_at IS NOT NULL AND limit_key = :limit_key AND held IS NULL LIMIT :most) AS started),
    (SELECT count(*) FROM (
        SELECT 1 FROM unified_queue {index[limit]}
        WHERE limit_at IS NOT NULL AND limit_key = :limit_key AND held = (SELECT 'time') LIMIT :most) AS reserved),
    (SELECT count(*) FROM (
        SELECT 1 FROM unified_queue {index[limit]}
        WHERE limit_at IS NOT NULL AND limit_key = :limit_key AND held IS NULL AND status = (SELECT 'pending')
          AND limit_at <= :until LIMIT :most_unclaimed) AS unclaimed),
    (SELECT count(*) FROM (
        SELECT 1 FROM unified_queue {index[limit]}
        WHERE limit_at IS NOT NULL AND limit_key = :limit_key AND held = (SELECT 'time')
          AND limit_at <= :until LIMIT :most_unclaimed) AS ahead)

-- name: limited_rows
SELECT {job} FROM unified_queue {index[limit]}
WHERE held = 'limit' AND limit_key = :limit_key
ORDER BY priority DESC, turn, created_at, queue_id LIMIT :number
{for_update_skip_locked}

-- name: unclaimed_rows
SELECT {job} FROM unified_queue {index[limit]}
WHERE limit_at IS NOT NULL AND limit_key = :limit_key AND held IS NULL AND status = (SELECT 'pending')
LIMIT :number
{for_update_skip_locked}

-- name: reserved_rows
SELECT {job} FROM unified_queue {index[limit]}
WHERE limit_at IS NOT NULL AND limit_key = :limit_key AND held = (SELECT 'time')
LIMIT :number
{for_update_skip_locked}

-- One probe of the index for each key: there may be a million rows of one key.
-- name: next_limited_key
SELECT limit_key FROM unified_queue {index[limit]}
WHERE held = 'limit' AND limit_key > :after ORDER BY limit_key LIMIT 1

-- name: any_limited
SELECT EXISTS (SELECT 1 FROM unified_queue {index[limit]} WHERE held = 'limit')

-- Rows that wait for the start that their limit gave them. Two probes of the index for each key: there may be a million
-- rows of one key that wait for the limit, and a million scheduled rows without one. A subquery with LIMIT in place of
-- EXISTS: PostgreSQL would join, and read either all rows of the keys or all scheduled rows.
-- name: any_reserved
WITH RECURSIVE known (limit_key) AS (
    SELECT (SELECT limit_key FROM unified_queue {index[limit]}
            WHERE held = 'limit' OR limit_at IS NOT NULL ORDER BY limit_key LIMIT 1)
    UNION ALL
    SELECT (SELECT q.limit_key FROM unified_queue q {index[limit]}
            WHERE (held = 'limit' OR limit_at IS NOT NULL) AND q.limit_key > known.limit_key
            ORDER BY q.limit_key LIMIT 1)
    FROM known WHERE known.limit_key IS NOT NULL
)
SELECT EXISTS (SELECT 1 FROM known WHERE 1 = (
    SELECT 1 FROM unified_queue q {index[limit]}
    WHERE limit_at IS NOT NULL AND q.limit_key = known.limit_key AND held = (SELECT 'time') LIMIT 1))
