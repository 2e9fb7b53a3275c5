-- name: asked_at_of
SELECT asked_at FROM documents WHERE {id} = $1

-- name: unnote_below
DELETE FROM catalog_ledger
WHERE tenant_id = $1 AND ($2 = '' OR collection = $2) AND ($3 = '' OR branch = $3)
  AND ($4 = '' OR path = $4 OR (path >= $5 AND path < $6)) AND at <= $7

-- name: move_note
UPDATE catalog_ledger SET path = $1 WHERE tenant_id = $2 AND collection = $3 AND branch = $4 AND path = $5

-- name: set_path
UPDATE sources SET path = $1 WHERE key = $2

-- name: entry
SELECT o.kind, o.{document_id}, o.source_key, d.space_id FROM catalog_outbox o
LEFT JOIN documents d ON d.{id} = o.{document_id} WHERE o.id = $1

-- name: delete_entry
DELETE FROM catalog_outbox WHERE id = $1

-- Other generations of the source and its family with parts: live ones, and leftovers not cleared yet.
-- name: siblings
SELECT d.{id}, d.space_id FROM sources own JOIN sources s ON s.family_key = own.family_key
JOIN documents d ON d.source_key = s.key WHERE own.key = $1 AND d.{id} <> $2

-- name: delete_document
DELETE FROM documents WHERE {id} = $1

-- name: tenant_of
SELECT tenant_id FROM sources WHERE key = $1

-- name: gone_source
SELECT tenant_id, change_seq, family_key FROM sources s WHERE key = $1 AND published_id IS NULL AND building_id IS NULL
  AND NOT EXISTS (SELECT 1 FROM documents d WHERE d.source_key = s.key)

-- name: add_gone
INSERT INTO catalog_gone (change_seq, tenant_id, family_key, gone_at) VALUES ($1, $2, $3, $4)

-- name: delete_source
DELETE FROM sources WHERE key = $1

-- name: old_tombstones
DELETE FROM catalog_tombstone WHERE created_at < $1

-- name: old_gone
SELECT max(change_seq) FROM catalog_gone WHERE gone_at < $1

-- name: delete_gone
DELETE FROM catalog_gone WHERE change_seq <= $1
