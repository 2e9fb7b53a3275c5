-- name: get
SELECT {job} FROM unified_queue WHERE queue_id = %(queue_id)s

-- Rows that are about to be changed, in the order in which everybody takes them.
-- name: hold
SELECT {job} FROM unified_queue WHERE queue_id = ANY(%(ids)s::text[]) ORDER BY queue_id FOR UPDATE

-- name: live
SELECT {job} FROM unified_queue
WHERE finished_at IS NULL AND parent_id IS NULL AND dedupe
  AND (tenant_id, branch, idempotency_key) IN (
    SELECT * FROM unnest(%(tenants)s::text[], %(branches)s::text[], %(keys)s::text[]))
ORDER BY queue_id FOR UPDATE

-- Who a row is never changes; everything else may.
-- name: update
UPDATE unified_queue AS q SET {changing}
FROM unnest(%(queue_id)s::text[], {changing_arrays}) AS s(queue_id, {changing_names})
WHERE q.queue_id = s.queue_id

-- name: renew
UPDATE unified_queue AS q
SET lease_until = coalesce(s.lease_until, q.lease_until),
    progress_json = coalesce(s.progress_json, q.progress_json),
    updated_at = CASE WHEN s.progress_json IS NULL THEN q.updated_at ELSE %(now)s END
FROM unnest(%(ids)s::text[], %(numbers)s::int[], %(leases)s::timestamptz[], %(progress)s::text[])
    AS s(queue_id, claim_number, lease_until, progress_json)
WHERE q.queue_id = s.queue_id AND q.claim_number = s.claim_number AND q.lease_until IS NOT NULL
RETURNING q.queue_id, q.claim_number, q.cancel_requested
