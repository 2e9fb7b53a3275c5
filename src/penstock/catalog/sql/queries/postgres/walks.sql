-- name: announce
INSERT INTO catalog_walk AS w (tenant_id, collection, branch, root, rules, asked_at)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (tenant_id, collection, branch, root, rules_key) DO UPDATE SET asked_at = excluded.asked_at
WHERE excluded.asked_at > w.asked_at

-- name: walks_at
SELECT {Walk} FROM catalog_walk
WHERE tenant_id = $1 AND collection = $2 AND branch = $3 AND root = ANY(texts($4))

-- name: old_walks
DELETE FROM catalog_walk w WHERE w.asked_at < $1 AND NOT EXISTS (
    SELECT 1 FROM sources s
    WHERE s.tenant_id = w.tenant_id AND s.collection = w.collection AND s.branch = w.branch
      AND s.path >= rtrim(w.root, '/') || '/' AND s.path < rtrim(w.root, '/') || '0')
