-- An event without a note keeps the time of the first indexing: the row of the source may be deleted soon.
-- name: add_event
INSERT INTO catalog_history (id, tenant_id, collection, branch, source_id, path, what, note, job_id, at)
SELECT $1::bigint, tenant_id, collection, branch, id, path, $2,
       coalesce($3, to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')), $4, $5::timestamptz
FROM sources WHERE key = $6

-- name: formerly
SELECT source_id FROM catalog_history
WHERE tenant_id = $1 AND collection = $2 AND branch = $3 AND path = $4
ORDER BY tenant_id DESC, collection DESC, branch DESC, path DESC, id DESC LIMIT 1

-- name: old_events
DELETE FROM catalog_history WHERE source_id = ANY(ARRAY(
    SELECT h.source_id FROM catalog_history h
    WHERE h.what = 'removed' AND h.at < $1 AND NOT EXISTS (SELECT 1 FROM sources s WHERE s.id = h.source_id)
    ORDER BY h.at LIMIT $2))
