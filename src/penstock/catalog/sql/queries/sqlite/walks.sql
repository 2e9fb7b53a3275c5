-- name: announce
INSERT INTO catalog_walk (tenant_id, collection, branch, root, rules, asked_at) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (tenant_id, collection, branch, root, rules) DO UPDATE SET asked_at = excluded.asked_at
WHERE excluded.asked_at > asked_at

-- name: walks_at
SELECT {Walk w.} FROM json_each($4) j CROSS JOIN catalog_walk w
WHERE w.tenant_id = $1 AND w.collection = $2 AND w.branch = $3 AND w.root = j.value

-- name: old_walks
DELETE FROM catalog_walk AS w WHERE w.asked_at < $1 AND NOT EXISTS (
    SELECT 1 FROM sources s INDEXED BY idx_sources_path
    WHERE s.tenant_id = w.tenant_id AND s.collection = w.collection AND s.branch = w.branch
      AND s.path >= rtrim(w.root, '/') || '/' AND s.path < rtrim(w.root, '/') || '0')
