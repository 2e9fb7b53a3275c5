-- name: vector_ids
SELECT v.id / 256 FROM catalog_vector v WHERE v.id % 256 = (SELECT x.id FROM catalog_space x WHERE x.name = $1)

-- name: copied_vectors
SELECT t.id, s.tenant_id, t.source_key, v.vector
FROM catalog_space x CROSS JOIN json_each($2) j JOIN catalog_vector v ON v.id = j.value * 256 + x.id
JOIN catalog_content t ON t.id = j.value JOIN sources s ON s.key = t.source_key
WHERE x.name = $1
