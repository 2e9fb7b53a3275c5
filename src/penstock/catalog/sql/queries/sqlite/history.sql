-- Without a note of its own an event says when the source was first indexed: its row may be gone soon.
-- name: add_event
INSERT INTO catalog_history (id, tenant_id, collection, branch, source_id, path, what, note, job_id, at)
SELECT ?1, tenant_id, collection, branch, id, path, ?2, coalesce(?3, created_at), ?4, ?5 FROM sources WHERE key = ?6

-- name: trim_events
DELETE FROM catalog_history
WHERE source_id = (SELECT id FROM sources WHERE key = ?1)
  AND id <= (SELECT h.id FROM catalog_history h INDEXED BY idx_catalog_history_source
             WHERE h.source_id = (SELECT id FROM sources WHERE key = ?1) ORDER BY h.id DESC LIMIT 1 OFFSET ?2)

-- name: events
SELECT {DocumentEvent} FROM catalog_history INDEXED BY idx_catalog_history_source
WHERE source_id = ? ORDER BY id

-- name: formerly
SELECT source_id FROM catalog_history INDEXED BY idx_catalog_history_path
WHERE tenant_id = ? AND collection = ? AND branch = ? AND path = ? ORDER BY id DESC LIMIT 1

-- name: old_events
DELETE FROM catalog_history WHERE source_id IN (
    SELECT h.source_id FROM catalog_history h INDEXED BY idx_catalog_history_removed
    WHERE h.what = 'removed' AND h.at < ?1 AND NOT EXISTS (SELECT 1 FROM sources s WHERE s.id = h.source_id)
    ORDER BY h.at LIMIT ?2)
