-- name: vector_ids
SELECT v.id / 256 FROM catalog_vector v WHERE v.id % 256 = (SELECT x.id FROM catalog_space x WHERE x.name = $1)

-- name: copied_vectors
SELECT t.id, s.tenant_id, t.family_key, v.vector
FROM catalog_space x CROSS JOIN json_each($2) j JOIN catalog_vector v ON v.id = j.value * 256 + x.id
JOIN catalog_content t ON t.id = j.value
JOIN sources s ON s.key = (SELECT min(o.key) FROM sources o WHERE o.family_key = t.family_key)
WHERE x.name = $1

-- All vectors of the next texts, in every space.
-- name: vectors_after
SELECT x.name, t.id, s.tenant_id, t.family_key, v.vector
FROM catalog_vector v JOIN catalog_space x ON x.id = v.id % 256
JOIN catalog_content t ON t.id = v.id / 256
JOIN sources s ON s.key = (SELECT min(o.key) FROM sources o WHERE o.family_key = t.family_key)
WHERE v.id > $1 * 256 + 255
  AND v.id <= (SELECT max(n.id) FROM (SELECT id FROM catalog_vector WHERE id > $1 * 256 + 255
                                      ORDER BY id LIMIT $2) n) | 255
ORDER BY v.id

-- name: last_vector_text
SELECT max(id) / 256 FROM catalog_vector

-- name: outer_vectors
SELECT x.name, v.id / 256
FROM (SELECT * FROM (SELECT id FROM catalog_vector ORDER BY id LIMIT $1)
      UNION SELECT * FROM (SELECT id FROM catalog_vector ORDER BY id DESC LIMIT $1)) v
JOIN catalog_space x ON x.id = v.id % 256
