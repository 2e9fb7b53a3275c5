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
UPDATE catalog_outside_store
SET filled = $1, copied_to = 0, copied = 0, fill_number = fill_number + 1, fill_until = NULL
WHERE store = $2 AND address = $3

-- Texts from a number on were written by a worker that does not copy them to the store in use.
-- name: not_copied
UPDATE catalog_outside_store
SET copied_to = CASE WHEN filled OR copied_to >= $1 THEN $1 - 1 ELSE copied_to END,
    copied = CASE WHEN filled THEN 0 ELSE copied END,
    filled = false, fill_number = fill_number + 1, fill_until = NULL
WHERE store = $2 AND address <> $3

-- name: begin_fill
UPDATE catalog_outside_store SET fill_number = fill_number + 1, fill_until = $1
WHERE store = $2 AND address = $3 AND NOT filled AND (fill_until IS NULL OR fill_until <= $4)
RETURNING fill_number, copied_to

-- name: advance_fill
UPDATE catalog_outside_store SET copied_to = $1, copied = copied + $2, fill_until = NULL
WHERE store = $3 AND fill_number = $4

-- name: end_fill
UPDATE catalog_outside_store SET filled = true, fill_until = NULL
WHERE store = $1 AND fill_number = $2 RETURNING 1

-- name: leave_fill
UPDATE catalog_outside_store SET fill_until = NULL WHERE store = $1 AND fill_number = $2

-- name: fill_progress
SELECT address, filled, copied, copied_to FROM catalog_outside_store WHERE store = $1

-- name: last_graph_text
SELECT max(content_id) FROM catalog_mention

-- Those that a store has if it is filled: a task writes to the catalog first, then to the store.
-- name: copied_texts per later phase
SELECT DISTINCT t.id
FROM catalog_content t JOIN sources s ON s.family_key = t.family_key
JOIN documents d ON d.source_key = s.key AND d.state <> 'dropped'
JOIN task_queue_chunk c ON c.document_id = d.id AND c.text_key = t.text_key AND c.content_id = t.id
WHERE t.id IN numbers($1) AND c.{phase}_status = 'completed'

-- name: outer_graph_texts
SELECT * FROM (SELECT DISTINCT content_id FROM catalog_mention ORDER BY content_id LIMIT $1) a
UNION SELECT * FROM (SELECT DISTINCT content_id FROM catalog_mention ORDER BY content_id DESC LIMIT $1) b

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
FROM catalog_content t JOIN sources s ON s.family_key = t.family_key
JOIN documents d ON d.source_key = s.key AND d.state <> 'dropped'
JOIN catalog_space x ON x.id = d.space_id AND x.name = $1
JOIN task_queue_chunk c ON c.document_id = d.id AND c.text_key = t.text_key AND c.content_id = t.id
WHERE t.id IN numbers($2)
  AND (c.vector_status IN ('pending', 'processing', 'completed') OR c.vector_retry_at IS NOT NULL)
