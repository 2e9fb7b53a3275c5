-- name: live
SELECT {job} FROM unified_queue INDEXED BY idx_unified_queue_idempotency
WHERE finished_at IS NULL AND parent_id IS NULL AND dedupe = 1
  AND tenant_id = :tenant_id AND branch = :branch AND idempotency_key = :idempotency_key

-- All columns but those that identify a row.
-- name: update
UPDATE unified_queue SET {changing} WHERE queue_id = :queue_id

-- name: renew_lease
UPDATE unified_queue SET lease_until = :lease_until
WHERE queue_id = :queue_id AND claim_number = :claim_number AND lease_until IS NOT NULL

-- name: renew_progress
UPDATE unified_queue SET progress_json = :progress_json, updated_at = :updated_at
WHERE queue_id = :queue_id AND claim_number = :claim_number AND lease_until IS NOT NULL

-- name: claim_state
SELECT cancel_requested FROM unified_queue
WHERE queue_id = :queue_id AND claim_number = :claim_number AND lease_until IS NOT NULL
