-- name: forget_building
UPDATE sources SET building_id = NULL, updated_at = $1
WHERE key = (SELECT source_key FROM documents WHERE {id} = $2) AND building_id = $2

-- name: source_of
SELECT source_key, job_id FROM documents WHERE {id} = $1

-- name: save_part
UPDATE documents SET page_count = $1, unwritten = $2 WHERE {id} = $3

-- name: grow_page
UPDATE task_queue_page SET chunk_count = chunk_count + $1 WHERE {id} = $2

-- name: space_name
SELECT name FROM catalog_space WHERE id = $1
