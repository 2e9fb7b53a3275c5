-- name: vector_ids
SELECT v.content_id FROM catalog_vector v WHERE v.space_id = (SELECT x.id FROM catalog_space x WHERE x.name = $1)

-- name: copied_vectors
SELECT t.id, s.tenant_id, t.family_key, v.vector
FROM catalog_vector v JOIN catalog_content t ON t.id = v.content_id
JOIN sources s ON s.key = (SELECT min(o.key) FROM sources o WHERE o.family_key = t.family_key)
WHERE v.space_id = (SELECT x.id FROM catalog_space x WHERE x.name = $1) AND v.content_id = ANY(numbers($2))

-- All vectors of the next texts, in every space.
-- name: vectors_after
SELECT x.name, t.id, s.tenant_id, t.family_key, v.vector
FROM catalog_vector v JOIN catalog_space x ON x.id = v.space_id
JOIN catalog_content t ON t.id = v.content_id
JOIN sources s ON s.key = (SELECT min(o.key) FROM sources o WHERE o.family_key = t.family_key)
WHERE v.content_id > $1
  AND v.content_id <= (SELECT max(n.content_id) FROM (SELECT content_id FROM catalog_vector
                       WHERE content_id > $1 ORDER BY content_id LIMIT $2) n)
ORDER BY v.content_id

-- name: last_vector_text
SELECT max(content_id) FROM catalog_vector

-- The name by a lookup: as a join, its plan could read both ends of the index again for each space.
-- name: outer_vectors
SELECT (SELECT x.name FROM catalog_space x WHERE x.id = v.space_id), v.content_id
FROM (SELECT * FROM (SELECT content_id, space_id FROM catalog_vector ORDER BY content_id LIMIT $1) a
      UNION
      SELECT * FROM (SELECT content_id, space_id FROM catalog_vector ORDER BY content_id DESC LIMIT $1) b) v
