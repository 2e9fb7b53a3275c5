-- Locks rows to be changed, in the order that every transaction uses.
-- name: lock_rows
SELECT {job} FROM unified_queue WHERE queue_id = ANY(:ids::text[]) ORDER BY queue_id FOR UPDATE

-- One index probe per key: a join was planned by statistics that a new queue does not have, and read every live row of
-- a tenant for each key.
-- name: live
SELECT {job} FROM unified_queue
WHERE queue_id = ANY(ARRAY(
    SELECT (SELECT l.queue_id FROM unified_queue l
            WHERE l.finished_at IS NULL AND l.parent_id IS NULL AND l.dedupe AND l.tenant_id = k.tenant_id
              AND l.branch = k.branch AND l.idempotency_key = k.idempotency_key LIMIT 1)
    FROM unnest(:tenants::text[], :branches::text[], :keys::text[])
        AS k(tenant_id, branch, idempotency_key)))
  AND finished_at IS NULL
ORDER BY queue_id FOR UPDATE

-- All columns but those that identify a row. The ids are a range of one value, as in finish.
-- name: update
UPDATE unified_queue AS q SET {changing}
FROM unnest(:queue_id::text[], {changing_arrays}) AS s(queue_id, {changing_names})
WHERE q.queue_id >= s.queue_id AND q.queue_id <= s.queue_id

-- The ids are a range of one value, and the last condition is hidden from the planner, as in finish.
-- name: renew
UPDATE unified_queue AS q
SET lease_until = coalesce(s.lease_until, q.lease_until),
    progress_json = coalesce(s.progress_json, q.progress_json),
    updated_at = CASE WHEN s.progress_json IS NULL THEN q.updated_at ELSE :now END
FROM unnest(:ids::text[], :numbers::int[], :leases::timestamptz[], :progress::text[])
    AS s(queue_id, claim_number, lease_until, progress_json)
WHERE q.queue_id >= s.queue_id AND q.queue_id <= s.queue_id AND q.claim_number = s.claim_number
  AND (q.lease_until IS NOT NULL) = (SELECT true)
RETURNING q.queue_id, q.claim_number, q.cancel_requested
