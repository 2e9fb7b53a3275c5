-- name: schedules
SELECT body FROM queue_schedule WHERE (CAST(:tenant_id AS text) IS NULL OR tenant_id = :tenant_id)

-- name: due_schedules
SELECT body FROM queue_schedule WHERE next_at <= :now ORDER BY next_at, tenant_id, name LIMIT :limit

-- name: insert_schedule
INSERT INTO queue_schedule (tenant_id, name, version, next_at, body)
VALUES (:tenant_id, :called, :version, :next_at, :body)
ON CONFLICT (tenant_id, name) DO NOTHING RETURNING version

-- name: replace_schedule
UPDATE queue_schedule SET version = :version, next_at = :next_at, body = :body
WHERE tenant_id = :tenant_id AND name = :called AND version = :replaces
RETURNING version

-- name: drop_schedule
DELETE FROM queue_schedule WHERE tenant_id = :tenant_id AND name = :called RETURNING version
