-- name: twins
SELECT {KnownSource s.; source_id = s.id; failed_size = NULL; failed_mtime_ns = NULL; failed_with = NULL}
FROM json_array_elements($4::json) AS j(pair) JOIN sources s
    ON s.tenant_id = $1 AND s.size = (j.pair ->> 0)::bigint AND s.mtime_ns = (j.pair ->> 1)::bigint
WHERE s.collection = $2 AND s.branch = $3 AND s.published_id IS NOT NULL LIMIT $5

-- name: twins_of_size
SELECT {KnownSource s.; source_id = s.id; failed_size = NULL; failed_mtime_ns = NULL; failed_with = NULL}
FROM unnest(numbers($4)) AS j(size) JOIN sources s ON s.tenant_id = $1 AND s.size = j.size
WHERE s.collection = $2 AND s.branch = $3 AND s.published_id IS NOT NULL LIMIT $5

-- name: source_columns
SELECT {Source s.; source_id = s.id;
               failure_size = CASE WHEN s.building_id IS NULL THEN s.size
                              ELSE (SELECT f.size FROM documents f WHERE f.{id} = s.building_id) END;
               failure_mtime_ns = CASE WHEN s.building_id IS NULL THEN s.mtime_ns
                                  ELSE (SELECT f.mtime_ns FROM documents f WHERE f.{id} = s.building_id) END;
               failure_content_hash = (SELECT f.content_hash FROM documents f
                                       WHERE f.{id} = {failed_id} AND {failed_for_good});
               failure_read_with = (SELECT f.read_with FROM documents f
                                    WHERE f.{id} = {failed_id} AND {failed_for_good});
               failure_error = (SELECT coalesce(f.ocr_error, f.vector_error, f.note) FROM documents f
                                WHERE f.{id} = {failed_id} AND {failed_for_good});
               failure_at = (SELECT f.updated_at FROM documents f
                             WHERE f.{id} = {failed_id} AND {failed_for_good});
               failure_job_id = (SELECT f.job_id FROM documents f
                                 WHERE f.{id} = {failed_id} AND {failed_for_good});
               sweeping = (SELECT o.id FROM catalog_outbox o
                           WHERE o.kind = 'leftover' AND o.source_key = s.key LIMIT 1) IS NOT NULL}
FROM sources s

-- name: find_all_where
WHERE s.tenant_id = $1 AND s.collection = $2 AND s.branch = $3 AND s.path = ANY(texts($4))

-- The glob of a path arrives as a regular expression.
-- name: filters
s.tenant_id = $1
AND ($2::text IS NULL OR s.collection = $2) AND ($3::text IS NULL OR s.branch = $3)
AND ($4::text IS NULL OR s.path ~ $4) AND ($5::text IS NULL OR s.file_type = $5)
AND ($6::text IS NULL OR EXISTS (SELECT 1 FROM json_array_elements_text(s.tags::json) AS g(tag)
                                 WHERE g.tag = $6 OR starts_with(g.tag, $6 || '/')))
AND ($7::text IS NULL OR strpos(s.properties::json ->> 'author_folded', $7) > 0)
AND ($8::text IS NULL OR strpos(s.properties::json ->> 'title_folded', $8) > 0)
AND ($9::text IS NULL OR s.properties::json ->> 'language_folded' = $9
     OR starts_with(s.properties::json ->> 'language_folded', $9 || '-'))
AND ($10::text IS NULL OR (s.properties::json ->> 'created_at') COLLATE "C" >= $10)
AND ($11::text IS NULL OR (s.properties::json ->> 'created_at') COLLATE "C" < $11)

-- name: document_columns
SELECT {Document d.; document_id = d.key; source_id = s.id; place, path: s.;
                 current = s.published_id IS NOT DISTINCT FROM d.key;
                 space = (SELECT x.name FROM catalog_space x WHERE x.id = d.space_id);
                 partial = d.failed_count > 0 AND d.state = 'published'; outage = d.outage_count > 0}
FROM documents d JOIN sources s ON s.key = d.source_key

-- name: pages
SELECT {PageState p.; page_id = p.key; number = p.page_number; file_path = p.page_file_path;
                  engine = coalesce(x.engine, ''); confidence = x.confidence; warnings = coalesce(x.warnings, '[]')}
FROM task_queue_page p LEFT JOIN catalog_page_text x ON x.page_key = p.key
WHERE p.document_id = (SELECT id FROM documents WHERE key = $1) AND p.page_number > $2 ORDER BY p.page_number LIMIT $3

-- name: chunks
SELECT {ChunkState; text_hash = chunk_content_hash; held = vector_held; entities = entities_extracted;
                   relationships = relationships_extracted}
FROM task_queue_chunk WHERE page_id = (SELECT id FROM task_queue_page WHERE key = $1) ORDER BY chunk_index

-- name: parts_of
SELECT {ContentRow c.; page_id = p.key; number = p.page_number; file_path = p.page_file_path; page_text = x.text;
                   engine = coalesce(x.engine, ''); confidence = x.confidence; warnings = coalesce(x.warnings, '[]');
                   text = t.text; text_hash = c.chunk_content_hash; start = c.start_char; end = c.end_char}
FROM task_queue_page p LEFT JOIN catalog_page_text x ON x.page_key = p.key
LEFT JOIN task_queue_chunk c ON c.page_id = p.id
LEFT JOIN catalog_content t ON t.id = c.content_id
WHERE p.document_id = (SELECT id FROM documents WHERE key = $1) AND ($2::int IS NULL OR p.page_number = $2)
ORDER BY p.page_number, c.chunk_index

-- name: missing
SELECT 'ocr', page_number, NULL::int AS chunk_index, coalesce(ocr_error, '')
FROM task_queue_page
WHERE ocr_status = 'failed' AND document_id = (SELECT id FROM documents WHERE key = $1) AND ocr_retry_at IS NULL
UNION ALL
SELECT 'vector', (SELECT p.page_number FROM task_queue_page p WHERE p.id = c.page_id), c.chunk_index,
       coalesce(c.vector_error, '')
FROM task_queue_chunk c
WHERE c.vector_status = 'failed' AND c.document_id = (SELECT id FROM documents WHERE key = $1)
  AND c.vector_retry_at IS NULL
LIMIT $2

-- name: postponed
SELECT ocr_error FROM task_queue_page
WHERE ocr_status = 'failed' AND document_id = (SELECT id FROM documents WHERE key = $1) AND ocr_retry_at IS NOT NULL
UNION ALL
SELECT vector_error FROM task_queue_chunk
WHERE vector_status = 'failed' AND document_id = (SELECT id FROM documents WHERE key = $1) AND vector_retry_at IS NOT NULL
LIMIT 1

-- A chunk written with its vector was never claimed; its page was, unless the job wrote the page.
-- name: made
SELECT count(*) FILTER (WHERE c.vector_claim_number > 0 OR p.ocr_claim_number > 0),
       coalesce(sum(c.end_char - c.start_char), 0)
FROM task_queue_chunk c JOIN task_queue_page p ON p.id = c.page_id
WHERE c.document_id = (SELECT id FROM documents WHERE key = $1)

-- name: count_open per phase
SELECT (SELECT count(*) FROM {table} WHERE {phase}_status = 'processing'),
       (SELECT count(*) FROM {table} WHERE {phase}_status = 'failed')

-- Chunks still waiting for the phase before have no index of their own.
-- name: count_pending per later phase
SELECT (SELECT count(*) FROM task_queue_chunk WHERE {free})
     + (SELECT coalesce(sum((
            SELECT count(*) FROM task_queue_chunk c
            WHERE c.document_id = d.id AND c.{phase}_status = 'pending'
              AND (c.{after}_status <> 'completed' OR c.{phase}_held IS NOT NULL))), 0)::bigint
        FROM documents d WHERE d.{phase}_waiting > 0)

-- name: open_tasks per phase
SELECT count(*) FROM (
    (SELECT 1 FROM {table} WHERE {free} LIMIT 10000)
    UNION ALL
    (SELECT 1 FROM {table} WHERE {phase}_status = 'processing' LIMIT 10000)
    UNION ALL
    (SELECT 1 FROM {table} WHERE {phase}_retry_at IS NOT NULL LIMIT 10000)
    LIMIT 10000) AS open

-- name: tenants
SELECT {TenantCount; sources = count(published_id); partial = count(1) FILTER (WHERE partial);
                    failed = count(failed); pages = sum(page_count); chunks = sum(chunk_count)}
FROM (SELECT s.*, CASE WHEN s.building_id IS NOT NULL THEN (
                 SELECT 1 FROM documents f WHERE f.{id} = s.building_id AND {failed_for_good}) END AS failed
      FROM sources s
      WHERE (s.published_id IS NOT NULL OR s.building_id IS NOT NULL)
        AND ($1::text IS NULL OR s.tenant_id = $1)) AS s
GROUP BY tenant_id, collection, branch HAVING count(published_id) + count(failed) > 0
ORDER BY tenant_id, collection, branch

-- name: own_vectors
SELECT c.chunk_content_hash, v.vector
FROM sources own JOIN sources s ON s.family_key = own.family_key
JOIN documents d ON d.source_key = s.key AND d.state <> 'dropped'
JOIN task_queue_chunk c ON c.document_id = d.id AND c.text_key = ANY(numbers($3))
JOIN catalog_vector v ON v.content_id = c.content_id AND v.space_id = $2
WHERE own.id = $1

-- A time as text depends on the session's time zone; as a number it does not.
-- name: witnesses
SELECT family_key, change_seq, coalesce(published_id, 0) || ' ' || coalesce(extract(epoch FROM published_at)::text, '')
FROM sources WHERE tenant_id = $1 AND change_seq <= $2 ORDER BY change_seq DESC, key DESC LIMIT $3

-- Sources are counted before the join with spaces: a plain join could read them once for each space.
-- name: spaces
SELECT x.name, coalesce(x.dimension, 0), s.chunks
FROM (SELECT space_id, sum(chunk_count) AS chunks FROM sources WHERE tenant_id = $1 AND published_id IS NOT NULL
      GROUP BY space_id) AS s
CROSS JOIN LATERAL (SELECT * FROM catalog_space x WHERE x.id = s.space_id OFFSET 0) AS x ORDER BY 3 DESC, x.name

-- name: all_spaces
SELECT x.name, coalesce(x.dimension, 0), s.chunks
FROM (SELECT space_id, sum(chunk_count) AS chunks FROM sources WHERE published_id IS NOT NULL
      GROUP BY space_id) AS s
CROSS JOIN LATERAL (SELECT * FROM catalog_space x WHERE x.id = s.space_id OFFSET 0) AS x ORDER BY 3 DESC, x.name

-- A text that several sources of a family have is read once, with the first of them. Usually no source is before.
-- name: first_of_family_where
(SELECT min(o.key) FROM sources o
 WHERE o.family_key = s.family_key AND o.key < s.key AND o.space_id = s.space_id
   AND (SELECT oc.key FROM task_queue_chunk oc
        WHERE oc.document_id = (SELECT od.id FROM documents od WHERE od.key = o.published_id)
          AND oc.text_key = c.text_key AND oc.content_id = c.content_id LIMIT 1) IS NOT NULL) IS NULL

-- name: load_vectors
SELECT c.content_id, s.family_key, v.vector
FROM sources s JOIN documents d ON d.key = s.published_id JOIN task_queue_chunk c ON c.document_id = d.id
JOIN catalog_vector v ON v.content_id = c.content_id AND v.space_id = $2
WHERE s.tenant_id = $1 AND s.space_id = $2 AND {first_of_family_where}

-- name: load_some_vectors
SELECT c.content_id, s.family_key, v.vector
FROM (SELECT * FROM sources WHERE family_key = ANY(numbers($3)) OFFSET 0) AS s
JOIN documents d ON d.key = s.published_id JOIN task_queue_chunk c ON c.document_id = d.id
JOIN catalog_vector v ON v.content_id = c.content_id AND v.space_id = $2
WHERE s.tenant_id = $1 AND s.space_id = $2 AND {first_of_family_where}

-- OFFSET 0 fixes the join order, from text to source, chunk and page. A free planner would start at all chunks of a
-- document, or all sources of a tenant, while the tables are small, and look at all pages for each text, in tables that
-- the server counted as empty.
-- name: hydrate_columns
SELECT {ChunkView c.; content_id = t.id; source_id = s.id; family_key = s.family_key; place: s.; path: s.; title: s.;
                  file_type: s.; tags: s.; properties: s.; page_number = p.page_number; page_count = s.page_count;
                  start = c.start_char; end = c.end_char; text = t.text}
FROM catalog_content t
CROSS JOIN LATERAL (SELECT * FROM sources WHERE family_key = t.family_key OFFSET 0) AS s
CROSS JOIN LATERAL (
    SELECT * FROM task_queue_chunk c
    WHERE c.document_id = (SELECT d.id FROM documents d WHERE d.key = s.published_id)
      AND c.text_key = t.text_key AND c.content_id = t.id OFFSET 0) AS c
CROSS JOIN LATERAL (SELECT page_number FROM task_queue_page WHERE id = c.page_id OFFSET 0) AS p

-- name: hydrate_where
WHERE t.id = ANY(numbers($12)) AND {filtered} ORDER BY s.key

-- name: hydrate_all_where
WHERE t.id = ANY(numbers($1)) ORDER BY s.key

-- name: locate
SELECT c.chunk_id, c.content_id
FROM sources s JOIN documents d ON d.key = s.published_id JOIN task_queue_chunk c ON c.document_id = d.id
WHERE s.id = $1 AND c.chunk_id = ANY(texts($2))

-- BM25 over the matching texts. PostgreSQL does not give the frequency of a word, but ts_rank does indirectly: the sum
-- of 1/i² for i up to the frequency, over the limit 1.645. The frequency is 1/(limit - sum) - 1/2, to a few hundredths.
-- A phrase counts once. How many texts have a term is counted in all texts, not only in those with the quoted phrases.
-- The number of texts and their mean size are exact below 2,000 texts. From there on the mean is that of a sample, and
-- the number is the server's last count, which can be old: never for few texts, whose scores it would change most.
-- Formula and constants are those of SQLite's FTS5.
-- name: ranked
WITH term AS MATERIALIZED (
    SELECT query, row_number() OVER () AS term, count(*) AS weight, numnode(query) = 1 AS single
    FROM (SELECT to_tsquery('catalog_english', term) AS query FROM json_array_elements_text($1::json -> 'any') AS j(term)) q
    WHERE numnode(query) > 0 GROUP BY query),
hit AS MATERIALIZED (
    SELECT k.content_id, k.size, t.term, t.weight,
           CASE WHEN t.single THEN
               1 / greatest(1.64493406685 * (1 - ts_rank('{1,1,1,1}', k.words, t.query)::float8), 0.001) - 0.5
           ELSE 1 END AS times
    FROM term t JOIN catalog_keyword k ON k.words @@ t.query
    WHERE $1::json ->> 'all' = '' OR k.words @@ to_tsquery('catalog_english', $1::json ->> 'all')),
found AS MATERIALIZED (
    SELECT term, count(*) AS texts FROM hit WHERE $1::json ->> 'all' = '' GROUP BY term
    UNION ALL
    SELECT t.term, (SELECT count(*) FROM catalog_keyword k WHERE k.words @@ t.query)
    FROM term t WHERE $1::json ->> 'all' <> ''),
sample AS (SELECT count(*) AS texts, avg(size) AS size FROM (SELECT size FROM catalog_keyword LIMIT 2000) AS t),
every AS (
    SELECT (CASE WHEN texts < 2000 THEN texts ELSE
               greatest((SELECT count(DISTINCT content_id) FROM hit), (SELECT max(f.texts) FROM found f), texts,
                        (SELECT reltuples FROM pg_class WHERE oid = 'catalog_keyword'::regclass)) END)::float8 AS texts,
           greatest(size, 1)::float8 AS size FROM sample)
SELECT h.content_id,
       -sum(h.weight * greatest(ln((e.texts - f.texts + 0.5) / (f.texts + 0.5)), 0.000001)
            * h.times * 2.6 / (h.times + 1.6 * (0.25 + 0.75 * h.size / e.size))) AS rank
FROM every e CROSS JOIN found f JOIN hit h ON h.term = f.term
GROUP BY h.content_id ORDER BY rank, h.content_id LIMIT $2

-- name: visible
SELECT t.id FROM catalog_content t
WHERE t.id = ANY(numbers($12)) AND (
    SELECT max((SELECT c.key FROM task_queue_chunk c
                WHERE c.document_id = (SELECT d.id FROM documents d WHERE d.key = s.published_id)
                  AND c.text_key = t.text_key AND c.content_id = t.id LIMIT 1))
    FROM (SELECT * FROM sources WHERE family_key = t.family_key OFFSET 0) AS s WHERE {filtered}) IS NOT NULL

-- name: snippets
SELECT id, ts_headline('catalog_english', text,
    to_tsquery('catalog_english', (SELECT string_agg('(' || term || ')', ' | ')
                                   FROM json_array_elements_text($1::json -> 'any') AS j(term))), $2), text
FROM catalog_content WHERE id = ANY(numbers($3))

-- name: holding
SELECT w.number - 1, k.ids::text
FROM (SELECT number, to_tsquery('catalog_english', term) AS query
      FROM json_array_elements_text($1::json) WITH ORDINALITY AS j(term, number) OFFSET 0) AS w
CROSS JOIN LATERAL (SELECT json_agg(content_id ORDER BY content_id) AS ids
                    FROM (SELECT content_id FROM catalog_keyword WHERE words @@ w.query LIMIT $2) AS t) AS k
WHERE k.ids IS NOT NULL

-- The texts first: the list of a frequent word in the index is longer.
-- name: words_in
SELECT w.number - 1, k.content_id
FROM (SELECT content_id, words FROM catalog_keyword WHERE content_id = ANY(numbers($2)) OFFSET 0) AS k
JOIN (SELECT number, to_tsquery('catalog_english', term) AS query
      FROM json_array_elements_text($1::json) WITH ORDINALITY AS j(term, number) OFFSET 0) AS w ON k.words @@ w.query

-- For each name, entity or text: the first rows only. A name such as __init__ has as many as there are classes.
-- name: entities_called
SELECT e.id, e.name, e.kind, e.short_key
FROM json_array_elements_text($2::json) AS j(name)
CROSS JOIN LATERAL (SELECT id, name, kind, short_key FROM catalog_entity
                    WHERE tenant_id = $1 AND short_key = j.name ORDER BY id LIMIT $3) AS e

-- name: relations_at
SELECT j.id::bigint, r.found::text
FROM json_array_elements_text($1::json) AS j(id)
CROSS JOIN LATERAL (SELECT json_agg(json_build_array(content_id, source_id, target_id, kind)) AS found FROM (
    (SELECT content_id, source_id, target_id, kind FROM catalog_relation
     WHERE source_id = j.id::bigint ORDER BY content_id, target_id, kind COLLATE "C" LIMIT $2)
    UNION ALL
    (SELECT content_id, source_id, target_id, kind FROM catalog_relation
     WHERE target_id = j.id::bigint ORDER BY content_id, source_id, kind COLLATE "C" LIMIT $2)) AS t) AS r
WHERE r.found IS NOT NULL

-- name: chunks_of
SELECT j.id::bigint, r.found::text
FROM json_array_elements_text($1::json) AS j(id)
CROSS JOIN LATERAL (SELECT json_agg(content_id) AS found FROM (
    SELECT content_id FROM (SELECT content_id, occurrences FROM catalog_mention
                            WHERE entity_id = j.id::bigint ORDER BY content_id LIMIT $3) AS m
    WHERE occurrences > 0 LIMIT $2) AS t) AS r
WHERE r.found IS NOT NULL

-- name: of_document_id_where
WHERE s.key = (SELECT source_key FROM documents WHERE id = CAST($1 AS uuid))
