-- name: announce
INSERT INTO catalog_walk (tenant_id, collection, branch, root, rules, asked_at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant_id, collection, branch, root, rules) DO UPDATE SET asked_at = excluded.asked_at
WHERE excluded.asked_at > asked_at

-- name: walks_since
SELECT {Walk} FROM catalog_walk INDEXED BY idx_catalog_walk_asked
WHERE tenant_id = ?1 AND asked_at > ?2 AND (?3 = '' OR collection = ?3) AND (?4 = '' OR branch = ?4)

-- name: walks_at
SELECT {Walk w.} FROM json_each(?4) j CROSS JOIN catalog_walk w
WHERE w.tenant_id = ?1 AND w.collection = ?2 AND w.branch = ?3 AND w.root = j.value

-- name: whereabouts
SELECT tenant_id, collection, branch, path FROM sources WHERE id = ?

-- name: retract
DELETE FROM catalog_walk
WHERE tenant_id = ?1 AND (?2 = '' OR collection = ?2) AND (?3 = '' OR branch = ?3)
  AND (?4 = '' OR root = ?4 OR (root >= ?5 AND root < ?6)) AND asked_at <= ?7

-- name: old_walks
DELETE FROM catalog_walk AS w WHERE w.asked_at < ? AND NOT EXISTS (
    SELECT 1 FROM sources s INDEXED BY idx_sources_path
    WHERE s.tenant_id = w.tenant_id AND s.collection = w.collection AND s.branch = w.branch
      AND s.path >= rtrim(w.root, '/') || '/' AND s.path < rtrim(w.root, '/') || '0')

-- name: live_sources
SELECT id FROM sources WHERE id IN (SELECT value FROM json_each(?)) AND published_id IS NOT NULL
