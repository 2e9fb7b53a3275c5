-- A later request for the same scope replaces the earlier one.
-- name: add_tombstone
INSERT INTO catalog_tombstone AS t
    (tenant_id, collection, branch, path, source_id, asked_at, reason, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (tenant_id, collection, branch, path, source_id) DO UPDATE
SET asked_at = excluded.asked_at, reason = excluded.reason, created_at = excluded.created_at
WHERE excluded.asked_at > t.asked_at

-- Sources are chosen, then locked in the order of their numbers and read again. A source that no longer matches counts
-- as done.
-- Visible generations and those being built, of requests not later than the delete. An empty text means any.
-- name: doomed_by_path
WITH held AS MATERIALIZED (
    SELECT s.* FROM sources s WHERE s.key = ANY(ARRAY(
        SELECT s.key FROM sources s
        WHERE s.tenant_id = $1 AND s.collection = $2 AND s.branch = $3 AND s.path >= $4 AND s.path < $6
          AND (s.path = $4 OR s.path >= $5)
          AND ((s.published_id IS NOT NULL AND s.asked_at <= $7)
               OR (SELECT d.asked_at FROM documents d WHERE d.key = s.building_id) <= $7)
          AND $9::text = ''
        ORDER BY s.tenant_id, s.collection, s.branch, s.path LIMIT $8))
    ORDER BY s.key FOR NO KEY UPDATE)
SELECT s.key, s.published_id, s.building_id, s.asked_at FROM held s
ORDER BY s.tenant_id, s.collection, s.branch, s.path

-- name: doomed
WITH held AS MATERIALIZED (
    SELECT s.* FROM sources s WHERE s.key = ANY(ARRAY(
        SELECT s.key FROM sources s
        WHERE s.tenant_id = $1 AND ($2 = '' OR s.collection = $2) AND ($3 = '' OR s.branch = $3)
          AND ($4 = '' OR s.path = $4 OR (s.path >= $5 AND s.path < $6)) AND ($9 = '' OR s.id = $9)
          AND ((s.published_id IS NOT NULL AND s.asked_at <= $7)
               OR (SELECT d.asked_at FROM documents d WHERE d.key = s.building_id) <= $7)
        ORDER BY s.tenant_id, s.collection, s.branch, s.path LIMIT $8))
    ORDER BY s.key FOR NO KEY UPDATE)
SELECT s.key, s.published_id, s.building_id, s.asked_at FROM held s
ORDER BY s.tenant_id, s.collection, s.branch, s.path

-- name: doomed_source
WITH held AS MATERIALIZED (
    SELECT s.* FROM sources s WHERE s.key = ANY(ARRAY(
        SELECT s.key FROM sources s
        WHERE s.id = $9 AND s.tenant_id = $1 AND ($2 = '' OR s.collection = $2) AND ($3 = '' OR s.branch = $3)
          AND ($4 = '' OR s.path = $4 OR (s.path >= $5 AND s.path < $6))
          AND ((s.published_id IS NOT NULL AND s.asked_at <= $7)
               OR (SELECT d.asked_at FROM documents d WHERE d.key = s.building_id) <= $7)
        ORDER BY s.key LIMIT $8))
    ORDER BY s.key FOR NO KEY UPDATE)
SELECT s.key, s.published_id, s.building_id, s.asked_at FROM held s
ORDER BY s.key

-- name: hide
WITH drawn AS (
    UPDATE catalog_sequence SET value = value + 1 + $1::bigint WHERE name = 'change' RETURNING value)
UPDATE sources
SET published_id = NULL, space_id = NULL, partial = false, page_count = 0, chunk_count = 0, content_hash = '',
    change_seq = drawn.value, updated_at = $2
FROM drawn WHERE key = $3

-- A source moved by this rename gets the time of the rename as its request, and is not found again.
-- name: sources_below
WITH held AS MATERIALIZED (
    SELECT s.* FROM sources s WHERE s.key = ANY(ARRAY(
        SELECT s.key FROM sources s
        WHERE s.tenant_id = $1 AND s.collection = $2 AND s.branch = $3 AND s.path >= $4 AND s.path < $6
          AND (s.path = $4 OR ($7::int = 1 AND s.path >= $5)) AND (s.asked_at IS NULL OR s.asked_at < $9)
        ORDER BY s.path LIMIT $8))
    ORDER BY s.key FOR NO KEY UPDATE)
SELECT s.key, s.path, s.published_id, s.building_id FROM held s
ORDER BY s.path

-- The same, shortest path first: when a folder replaces its parent, the sources in the way move first.
-- name: sources_below_shortest
WITH held AS MATERIALIZED (
    SELECT s.* FROM sources s WHERE s.key = ANY(ARRAY(
        SELECT s.key FROM sources s
        WHERE s.tenant_id = $1 AND s.collection = $2 AND s.branch = $3 AND s.path >= $4 AND s.path < $6
          AND (s.path = $4 OR ($7::int = 1 AND s.path >= $5)) AND (s.asked_at IS NULL OR s.asked_at < $9)
        ORDER BY length(s.path), s.path LIMIT $8))
    ORDER BY s.key FOR NO KEY UPDATE)
SELECT s.key, s.path, s.published_id, s.building_id FROM held s
WHERE s.tenant_id = $1 AND s.collection = $2 AND s.branch = $3 AND s.path >= $4 AND s.path < $6
          AND (s.path = $4 OR ($7::int = 1 AND s.path >= $5)) AND (s.asked_at IS NULL OR s.asked_at < $9)
ORDER BY length(s.path), s.path

-- name: move_source
UPDATE sources SET path = $1, asked_at = greatest(asked_at, $2), updated_at = $3 WHERE key = $4

-- name: move_document
UPDATE documents SET asked_at = greatest(asked_at, $1), filename = $2 WHERE key = $3

-- name: touch
UPDATE sources AS s SET size = v.size, mtime_ns = v.mtime_ns, asked_at = greatest(s.asked_at, v.asked_at)
FROM rows(size bigint, mtime_ns bigint, id text, asked_at timestamptz)
WHERE s.id = v.id

-- name: outbox
SELECT {OutboxEntry o.; entry_id = o.id; document_id = o.document_key; source_id = coalesce(s.id, '');
                    tenant_id = coalesce(s.tenant_id, ''); collection = coalesce(s.collection, '');
                    branch = coalesce(s.branch, ''); space = x.name}
FROM catalog_outbox o LEFT JOIN sources s ON s.key = o.source_key
LEFT JOIN documents d ON d.key = o.document_key LEFT JOIN catalog_space x ON x.id = d.space_id
WHERE o.id > $1 AND ($2 = '' OR o.kind = $2) ORDER BY o.id LIMIT $3

-- name: parts
SELECT {LeftoverChunk c.; chunk_key = c.key; text_hash = c.chunk_content_hash;
    claimed = [[chunk phase OR| c.{phase}_status = 'processing']];
    shared = (SELECT o.key FROM task_queue_chunk o
              WHERE o.document_id = ANY(ARRAY(SELECT d.id FROM documents d WHERE d.key = ANY(numbers($2))))
                AND o.text_key = c.text_key AND o.content_id = c.content_id LIMIT 1) IS NOT NULL}
FROM task_queue_chunk c WHERE c.document_id = (SELECT id FROM documents WHERE key = $1) LIMIT $3

-- name: delete_chunk
DELETE FROM task_queue_chunk t USING rows(key bigint) WHERE t.key = v.key

-- The text is not needed to delete a keyword entry.
-- name: text_of
SELECT id, NULL FROM catalog_content WHERE id = ANY(numbers($1))

-- name: delete_keyword
DELETE FROM catalog_keyword t USING rows(id bigint, text text) WHERE t.content_id = v.id

-- name: delete_content
DELETE FROM catalog_content t USING rows(id bigint) WHERE t.id = v.id

-- name: vectors_of
SELECT content_id, vector FROM catalog_vector WHERE space_id = $1 AND content_id = ANY(numbers($2))

-- name: delete_vectors
DELETE FROM catalog_vector t USING rows(id bigint) WHERE t.content_id = v.id

-- name: delete_vector
DELETE FROM catalog_vector t USING rows(id bigint, space_id smallint)
WHERE t.content_id = v.id AND t.space_id = v.space_id

-- name: delete_pages
DELETE FROM task_queue_page WHERE key = ANY(ARRAY(
    SELECT key FROM task_queue_page WHERE document_id = (SELECT id FROM documents WHERE key = $1) LIMIT $2))

-- name: note (LedgerRow)
INSERT INTO catalog_ledger ({LedgerRow})
SELECT * FROM (
    SELECT DISTINCT ON (tenant_id, collection, branch, path) * FROM rows()
    ORDER BY tenant_id, collection, branch, path, at DESC) AS n
ON CONFLICT (tenant_id, collection, branch, path) DO UPDATE
SET kind = excluded.kind, rule = excluded.rule, cause = excluded.cause, remedy = excluded.remedy,
    job_id = excluded.job_id, at = excluded.at

-- name: old_cached
DELETE FROM catalog_vector_cache WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM catalog_vector_cache WHERE used_at < $1 ORDER BY used_at LIMIT $2 FOR UPDATE SKIP LOCKED))

-- name: idle_spaces
DELETE FROM catalog_space
WHERE (SELECT d.key FROM documents d WHERE d.space_id = catalog_space.id LIMIT 1) IS NULL
  AND (SELECT v.space_id FROM catalog_vector_cache v WHERE v.space_id = catalog_space.id LIMIT 1) IS NULL

-- name: forget_up_to
UPDATE catalog_sequence SET value = greatest(value, $1) WHERE name = 'forgotten'
