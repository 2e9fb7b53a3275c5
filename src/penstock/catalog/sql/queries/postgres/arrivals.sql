-- name: expect
INSERT INTO catalog_arrival (tenant_id, collection, branch, path, read_from, created_at)
SELECT DISTINCT ON (v.tenant_id, v.collection, v.branch, v.path) v.*
FROM rows(tenant_id text, collection text, branch text, path text, read_from text, created_at timestamptz)
ORDER BY v.tenant_id, v.collection, v.branch, v.path
ON CONFLICT (tenant_id, collection, branch, path) DO UPDATE
SET read_from = excluded.read_from, created_at = excluded.created_at
