-- name: vector_ids
SELECT v.content_id FROM catalog_vector v WHERE v.space_id = (SELECT x.id FROM catalog_space x WHERE x.name = $1)

-- name: copied_vectors
SELECT t.id, s.tenant_id, t.source_key, v.vector
FROM catalog_vector v JOIN catalog_content t ON t.id = v.content_id JOIN sources s ON s.key = t.source_key
WHERE v.space_id = (SELECT x.id FROM catalog_space x WHERE x.name = $1) AND v.content_id = ANY(numbers($2))
