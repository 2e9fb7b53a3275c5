-- name: outside_stores
SELECT store FROM catalog_outside_store

-- name: attached_store
SELECT o.address, o.filled, n.value
FROM catalog_outside_store o JOIN catalog_sequence n ON n.name = 'catalog' WHERE o.store = $1

-- name: set_catalog_id
INSERT INTO catalog_sequence (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: attach_store
INSERT INTO catalog_outside_store (store, address, filled) VALUES ($1, $2, $3)

-- name: detach_store
DELETE FROM catalog_outside_store WHERE store = $1

-- name: set_filled
UPDATE catalog_outside_store SET filled = $1 WHERE store = $2 AND address = $3

-- name: graph_not_filled
UPDATE catalog_outside_store SET filled = false WHERE store = 'graph' AND filled

-- name: any_vector_copied
SELECT 1 FROM catalog_vector LIMIT 1

-- name: any_graph_copied
SELECT 1 FROM catalog_mention LIMIT 1

-- name: space_names
SELECT name FROM catalog_space

-- name: add_removal (id bigint, store text, tenant_id text, content_id bigint, space text, due_at timestamptz)
INSERT INTO catalog_removal (id, store, tenant_id, content_id, space, due_at)
SELECT $id, $store, $tenant_id, $content_id, $space, $due_at FROM rows() WHERE true

-- name: pending_removals
SELECT id, tenant_id, content_id, space FROM catalog_removal INDEXED BY idx_catalog_removal_due
WHERE store = $1 AND due_at <= $2 ORDER BY due_at, id LIMIT $3

-- name: forget_removals
DELETE FROM catalog_removal WHERE store = $1 AND id IN numbers($2)

-- name: forget_all_removals
DELETE FROM catalog_removal WHERE store = $1

-- A text that is still to be removed is not written again before: the removal would take the new copy.
-- name: awaiting_removal
SELECT content_id FROM catalog_removal INDEXED BY idx_catalog_removal_text
WHERE store = $1 AND content_id IN numbers($2)

-- Texts with a chunk in this space that has a vector or is to get one.
-- name: wanted_vectors
SELECT DISTINCT t.id
FROM catalog_content t JOIN documents d ON d.source_key = t.source_key AND d.state <> 'dropped'
JOIN catalog_space x ON x.id = d.space_id AND x.name = $1
JOIN task_queue_chunk c ON c.document_id = d.id AND c.text_key = t.text_key AND c.content_id = t.id
WHERE t.id IN numbers($2)
  AND (c.vector_status IN ('pending', 'processing', 'completed') OR c.vector_retry_at IS NOT NULL)
