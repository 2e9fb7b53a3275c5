-- name: walks_since
SELECT {Walk} FROM catalog_walk INDEXED BY idx_catalog_walk_asked
WHERE tenant_id = $1 AND asked_at > $2 AND ($3::text = '' OR collection = $3) AND ($4::text = '' OR branch = $4)

-- name: whereabouts
SELECT tenant_id, collection, branch, path FROM sources WHERE id = $1

-- name: retract
DELETE FROM catalog_walk
WHERE tenant_id = $1 AND ($2::text = '' OR collection = $2) AND ($3::text = '' OR branch = $3)
  AND ($4::text = '' OR root = $4 OR (root >= $5 AND root < $6)) AND asked_at <= $7

-- name: live_sources
SELECT id FROM sources WHERE id IN texts($1) AND published_id IS NOT NULL
