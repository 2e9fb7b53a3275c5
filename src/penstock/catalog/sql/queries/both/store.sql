-- The last column: a store outside holds a copy of each vector.
-- name: space
SELECT id, dimension, EXISTS (SELECT 1 FROM catalog_outside_store WHERE store = 'vector')
FROM catalog_space WHERE name = $1

-- name: free_space
SELECT coalesce(min(a.id) + 1, 1) FROM (SELECT 0 AS id UNION ALL SELECT id FROM catalog_space) a
WHERE NOT EXISTS (SELECT 1 FROM catalog_space b WHERE b.id = a.id + 1)

-- name: add_space
INSERT INTO catalog_space (id, name, dimension) VALUES ($1, $2, $3)

-- name: set_dimension
UPDATE catalog_space SET dimension = $1 WHERE id = $2

-- name: any_tombstone
SELECT 1 FROM catalog_tombstone INDEXED BY idx_catalog_tombstone_asked WHERE tenant_id = $1 AND asked_at >= $2 LIMIT 1

-- name: source_at
SELECT {SourceRow; source_id = id} FROM sources
WHERE tenant_id = $1 AND collection = $2 AND branch = $3 AND path = $4

-- Published sources of families.
-- name: family_members
SELECT {FamilyMember; source_id = id} FROM sources WHERE family_key IN numbers($1) AND published_id IS NOT NULL

-- name: related_families
SELECT id, family_key FROM sources WHERE tenant_id = $1 AND id IN texts($2)

-- name: family_places
SELECT family_key, tenant_id, collection, branch FROM sources WHERE family_key IN numbers($1)

-- name: add_bare_source (NewSource)
INSERT INTO sources ({NewSource}, updated_at) VALUES ({NewSource values}, $created_at)

-- name: set_building
UPDATE sources SET building_id = $1, updated_at = $2 WHERE key = $3

-- name: known_documents
SELECT {id}, space_id, [[later phase,| {phase}_fingerprint]] FROM documents WHERE {id} IN numbers($1)

-- name: cached_vectors
SELECT text_hash, vector FROM catalog_vector_cache
WHERE tenant_id = $1 AND space_id = $2 AND text_hash IN texts($3)

-- name: any_leftover
SELECT 1 FROM catalog_outbox INDEXED BY idx_catalog_outbox_leftover
WHERE kind = 'leftover' AND source_key = $1 LIMIT 1

-- name: other_leftover
SELECT 1 FROM catalog_outbox INDEXED BY idx_catalog_outbox_leftover
WHERE kind = 'leftover' AND source_key = $1 AND id <> $2 LIMIT 1

-- name: add_job_entry
INSERT INTO catalog_outbox (id, kind, {document_id}, source_key, job_id, created_at) VALUES ($1, 'job', $2, $3, $4, $5)

-- name: any_ledger
SELECT 1 FROM catalog_ledger LIMIT 1
