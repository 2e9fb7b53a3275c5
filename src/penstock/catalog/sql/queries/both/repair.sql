-- name: idle_sources
SELECT s.key FROM sources s WHERE NOT EXISTS (SELECT 1 FROM documents d WHERE d.source_key = s.key) LIMIT $1
