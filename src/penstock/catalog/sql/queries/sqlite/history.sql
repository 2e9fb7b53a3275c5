-- An event without a note keeps the time of the first indexing: the row of the source may be deleted soon.
-- name: add_event
INSERT INTO catalog_history (id, tenant_id, collection, branch, source_id, path, what, note, job_id, at)
SELECT $1, tenant_id, collection, branch, id, path, $2, coalesce($3, created_at), $4, $5 FROM sources WHERE key = $6

-- name: formerly
SELECT source_id FROM catalog_history INDEXED BY idx_catalog_history_path
WHERE tenant_id = $1 AND collection = $2 AND branch = $3 AND path = $4 ORDER BY id DESC LIMIT 1

-- name: old_events
DELETE FROM catalog_history WHERE source_id IN (
    SELECT h.source_id FROM catalog_history h INDEXED BY idx_catalog_history_removed
    WHERE h.what = 'removed' AND h.at < $1 AND NOT EXISTS (SELECT 1 FROM sources s WHERE s.id = h.source_id)
    ORDER BY h.at LIMIT $2)
