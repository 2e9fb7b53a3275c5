-- name: expect
INSERT INTO catalog_arrival (tenant_id, collection, branch, path, read_from, created_at)
SELECT DISTINCT ON (v.tenant_id, v.collection, v.branch, v.path) v.*
FROM rows(tenant_id text, collection text, branch text, path text, read_from text, created_at timestamptz)
ORDER BY v.tenant_id, v.collection, v.branch, v.path
ON CONFLICT (tenant_id, collection, branch, path) DO UPDATE
SET read_from = excluded.read_from, created_at = excluded.created_at

-- name: expected
SELECT read_from FROM catalog_arrival WHERE tenant_id = $1 AND collection = $2 AND branch = $3 AND path = $4

-- name: unexpect
DELETE FROM catalog_arrival
WHERE tenant_id = $1 AND ($2::text = '' OR collection = $2) AND ($3::text = '' OR branch = $3)
  AND ($4::text = '' OR path = $4 OR (path >= $5 AND path < $6)) AND created_at <= $7

-- name: old_arrivals
DELETE FROM catalog_arrival WHERE created_at < $1
