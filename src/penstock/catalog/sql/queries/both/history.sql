-- name: trim_events
DELETE FROM catalog_history
WHERE source_id = (SELECT id FROM sources WHERE key = $1)
  AND id <= (SELECT h.id FROM catalog_history h INDEXED BY idx_catalog_history_source
             WHERE h.source_id = (SELECT id FROM sources WHERE key = $1) ORDER BY h.id DESC LIMIT 1 OFFSET $2)

-- name: events
SELECT {DocumentEvent} FROM catalog_history INDEXED BY idx_catalog_history_source
WHERE source_id = $1 AND tenant_id = $2 ORDER BY id
