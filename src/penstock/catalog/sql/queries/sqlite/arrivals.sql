-- name: expect
INSERT OR REPLACE INTO catalog_arrival (tenant_id, collection, branch, path, read_from, created_at)
VALUES (?, ?, ?, ?, ?, ?)

-- name: expected
SELECT read_from FROM catalog_arrival WHERE tenant_id = ? AND collection = ? AND branch = ? AND path = ?

-- name: unexpect
DELETE FROM catalog_arrival
WHERE tenant_id = ?1 AND (?2 = '' OR collection = ?2) AND (?3 = '' OR branch = ?3)
  AND (?4 = '' OR path = ?4 OR (path >= ?5 AND path < ?6)) AND created_at <= ?7

-- name: old_arrivals
DELETE FROM catalog_arrival WHERE created_at < ?
