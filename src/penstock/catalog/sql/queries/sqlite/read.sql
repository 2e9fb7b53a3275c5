-- name: twins
SELECT {KnownSource s.; source_id = s.id; failed_size = NULL; failed_mtime_ns = NULL; failed_with = NULL}
FROM json_each($4) j CROSS JOIN sources s INDEXED BY idx_sources_size
    ON s.tenant_id = $1 AND s.size = json_extract(j.value, '$[0]') AND s.mtime_ns = json_extract(j.value, '$[1]')
WHERE s.collection = $2 AND s.branch = $3 AND s.published_id IS NOT NULL LIMIT $5

-- name: twins_of_size
SELECT {KnownSource s.; source_id = s.id; failed_size = NULL; failed_mtime_ns = NULL; failed_with = NULL}
FROM json_each($4) j CROSS JOIN sources s INDEXED BY idx_sources_size ON s.tenant_id = $1 AND s.size = j.value
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
               sweeping = EXISTS (SELECT 1 FROM catalog_outbox o INDEXED BY idx_catalog_outbox_leftover
                                  WHERE o.kind = 'leftover' AND o.source_key = s.key)}
FROM sources s

-- name: find_all_where
INDEXED BY idx_sources_path
WHERE s.tenant_id = $1 AND s.collection = $2 AND s.branch = $3
  AND s.path IN (SELECT value FROM json_each($4))

-- GLOB calls catalog/path_glob.py: SQLite's own matcher backtracks for every star. The call costs more than all other
-- conditions, so the letters before the first sign of the glob are compared first. A star behind them is all the rest.
-- A subquery without columns is evaluated once.
-- name: filters
s.tenant_id = $1
AND ($2 IS NULL OR s.collection = $2) AND ($3 IS NULL OR s.branch = $3) AND ($4 IS NULL OR (
    substr(s.path, 1, (SELECT min(instr($4 || '*', '*'), instr($4 || '?', '?'), instr($4 || '[', '[')) - 1))
        = (SELECT substr($4, 1, min(instr($4 || '*', '*'), instr($4 || '?', '?'), instr($4 || '[', '[')) - 1))
    AND ((SELECT substr($4, min(instr($4 || '*', '*'), instr($4 || '?', '?'), instr($4 || '[', '['))) = '*')
         OR s.path GLOB $4)))
AND ($5 IS NULL OR s.file_type = $5)
AND ($6 IS NULL OR EXISTS (SELECT 1 FROM json_each(s.tags) g
                           WHERE g.value = $6 OR substr(g.value, 1, length($6) + 1) = $6 || '/'))
AND ($7 IS NULL OR instr(json_extract(s.properties, '$.author_folded'), $7) > 0)
AND ($8 IS NULL OR instr(json_extract(s.properties, '$.title_folded'), $8) > 0)
AND ($9 IS NULL OR json_extract(s.properties, '$.language_folded') = $9
     OR substr(json_extract(s.properties, '$.language_folded'), 1, length($9) + 1) = $9 || '-')
AND ($10 IS NULL OR json_extract(s.properties, '$.created_at') >= $10)
AND ($11 IS NULL OR json_extract(s.properties, '$.created_at') < $11)

-- name: document_columns
SELECT {Document d.; document_id = d.id; source_id = s.id; place, path: s.; current = s.published_id IS d.id;
                 space = x.name; partial = d.failed_count > 0 AND d.state = 'published'; outage = d.outage_count > 0}
FROM documents d JOIN sources s ON s.key = d.source_key LEFT JOIN catalog_space x ON x.id = d.space_id

-- name: pages
SELECT {PageState p.; page_id = p.id; number = p.page_number; file_path = p.page_file_path;
                  engine = coalesce(x.engine, ''); confidence = x.confidence; warnings = coalesce(x.warnings, '[]')}
FROM task_queue_page p LEFT JOIN catalog_page_text x ON x.page_id = p.id
WHERE p.document_id = $1 AND p.page_number > $2 ORDER BY p.page_number LIMIT $3

-- name: chunks
SELECT {ChunkState; text_hash = chunk_content_hash; held = vector_held; entities = entities_extracted;
                   relationships = relationships_extracted}
FROM task_queue_chunk WHERE page_id = $1 ORDER BY chunk_index

-- name: parts_of
SELECT {ContentRow c.; page_id = p.id; number = p.page_number; file_path = p.page_file_path; page_text = x.text;
                   engine = coalesce(x.engine, ''); confidence = x.confidence; warnings = coalesce(x.warnings, '[]');
                   text = t.text; text_hash = c.chunk_content_hash; start = c.start_char; end = c.end_char}
FROM task_queue_page p LEFT JOIN catalog_page_text x ON x.page_id = p.id
LEFT JOIN task_queue_chunk c INDEXED BY idx_tqc_page ON c.page_id = p.id
LEFT JOIN catalog_content t ON t.id = c.content_id
WHERE p.document_id = $1 AND ($2 IS NULL OR p.page_number = $2)
ORDER BY p.page_number, c.chunk_index

-- name: missing
SELECT 'ocr', page_number, NULL, coalesce(ocr_error, '')
FROM task_queue_page INDEXED BY idx_tqp_ocr_failed
WHERE ocr_status = 'failed' AND document_id = $1 AND ocr_retry_at IS NULL
UNION ALL
SELECT 'vector', p.page_number, c.chunk_index, coalesce(c.vector_error, '')
FROM task_queue_chunk c INDEXED BY idx_tqc_vector_failed JOIN task_queue_page p ON p.id = c.page_id
WHERE c.vector_status = 'failed' AND c.document_id = $1 AND c.vector_retry_at IS NULL
LIMIT $2

-- name: postponed
SELECT ocr_error FROM task_queue_page INDEXED BY idx_tqp_ocr_failed
WHERE ocr_status = 'failed' AND document_id = $1 AND ocr_retry_at IS NOT NULL
UNION ALL
SELECT vector_error FROM task_queue_chunk INDEXED BY idx_tqc_vector_failed
WHERE vector_status = 'failed' AND document_id = $1 AND vector_retry_at IS NOT NULL
LIMIT 1

-- A chunk written with its vector was never claimed; its page was, unless the job wrote the page.
-- name: made
SELECT coalesce(sum(c.vector_claim_number > 0 OR p.ocr_claim_number > 0), 0),
       coalesce(sum(c.end_char - c.start_char), 0)
FROM task_queue_chunk c JOIN task_queue_page p ON p.id = c.page_id WHERE c.document_id = $1

-- name: count_open per phase
SELECT (SELECT count(*) FROM {table} INDEXED BY {index}_{phase}_heartbeat WHERE {phase}_status = 'processing'),
       (SELECT count(*) FROM {table} WHERE {phase}_status = 'failed')

-- Chunks still waiting for the phase before have no index of their own.
-- name: count_pending per later phase
SELECT (SELECT count(*) FROM task_queue_chunk INDEXED BY idx_tqc_{phase}_status WHERE {free})
     + (SELECT count(*) FROM documents d CROSS JOIN task_queue_chunk c INDEXED BY idx_tqc_document
            ON c.document_id = d.id
        WHERE d.{phase}_waiting > 0 AND c.{phase}_status = 'pending'
          AND (c.{after}_status <> 'completed' OR c.{phase}_held IS NOT NULL))

-- name: open_tasks per phase
SELECT count(*) FROM (
    SELECT 1 FROM (SELECT 1 FROM {table} INDEXED BY {index}_{phase}_status WHERE {free} LIMIT 10000)
    UNION ALL
    SELECT 1 FROM (SELECT 1 FROM {table} INDEXED BY {index}_{phase}_heartbeat
                   WHERE {phase}_status = 'processing' LIMIT 10000)
    UNION ALL
    SELECT 1 FROM (SELECT 1 FROM {table} INDEXED BY {index}_{phase}_retry
                   WHERE {phase}_retry_at IS NOT NULL LIMIT 10000)
    LIMIT 10000)

-- name: tenants
SELECT {TenantCount; sources = count(published_id); partial = sum(partial); failed = count(failed);
                    pages = sum(page_count); chunks = sum(chunk_count)}
FROM (SELECT s.*, CASE WHEN s.building_id IS NOT NULL THEN (
                 SELECT 1 FROM documents f WHERE f.{id} = s.building_id AND {failed_for_good}) END AS failed
      FROM sources s
      WHERE (s.published_id IS NOT NULL OR s.building_id IS NOT NULL) AND ($1 IS NULL OR s.tenant_id = $1)) AS s
GROUP BY tenant_id, collection, branch HAVING count(published_id) + count(failed) > 0
ORDER BY tenant_id, collection, branch

-- name: own_vectors
SELECT c.chunk_content_hash, v.vector
FROM sources own CROSS JOIN sources s INDEXED BY idx_sources_family ON s.family_key = own.family_key
JOIN documents d ON d.source_key = s.key AND d.state <> 'dropped'
CROSS JOIN json_each($3) k CROSS JOIN task_queue_chunk c INDEXED BY idx_tqc_document
    ON c.document_id = d.id AND c.text_key = k.value
JOIN catalog_vector v ON v.id = c.content_id * 256 + $2
WHERE own.id = $1

-- name: witnesses
SELECT family_key, change_seq, coalesce(published_id, 0) || ' ' || coalesce(published_at, '')
FROM sources INDEXED BY idx_sources_change
WHERE tenant_id = $1 AND change_seq <= $2 ORDER BY change_seq DESC, key DESC LIMIT $3

-- name: spaces
SELECT x.name, coalesce(x.dimension, 0), sum(s.chunk_count)
FROM sources s JOIN catalog_space x ON x.id = s.space_id
WHERE s.tenant_id = $1 AND s.published_id IS NOT NULL GROUP BY x.id ORDER BY 3 DESC, x.name

-- name: all_spaces
SELECT x.name, coalesce(x.dimension, 0), sum(s.chunk_count)
FROM sources s JOIN catalog_space x ON x.id = s.space_id
WHERE s.published_id IS NOT NULL GROUP BY x.id ORDER BY 3 DESC, x.name

-- A text that several sources of a family have is read once, with the first of them.
-- name: first_of_family_where
NOT EXISTS (SELECT 1 FROM sources o INDEXED BY idx_sources_family
            CROSS JOIN task_queue_chunk oc INDEXED BY idx_tqc_document ON oc.document_id = o.published_id
                AND oc.text_key = c.text_key AND oc.content_id = c.content_id
            WHERE o.family_key = s.family_key AND o.key < s.key AND o.space_id = s.space_id)

-- name: load_vectors
SELECT c.content_id, s.family_key, v.vector
FROM sources s INDEXED BY idx_sources_change
CROSS JOIN task_queue_chunk c INDEXED BY idx_tqc_document ON c.document_id = s.published_id
JOIN catalog_vector v ON v.id = c.content_id * 256 + $2
WHERE s.tenant_id = $1 AND s.space_id = $2 AND {first_of_family_where}

-- name: load_some_vectors
SELECT c.content_id, s.family_key, v.vector
FROM json_each($3) j CROSS JOIN sources s INDEXED BY idx_sources_family
    ON s.family_key = j.value AND s.tenant_id = $1 AND s.space_id = $2
CROSS JOIN task_queue_chunk c INDEXED BY idx_tqc_document ON c.document_id = s.published_id
JOIN catalog_vector v ON v.id = c.content_id * 256 + $2
WHERE {first_of_family_where}

-- name: hydrate_columns
SELECT {ChunkView c.; content_id = t.id; source_id = s.id; family_key = s.family_key; place: s.; path: s.; title: s.;
                  file_type: s.; tags: s.; properties: s.; page_number = p.page_number; page_count = s.page_count;
                  start = c.start_char; end = c.end_char; text = t.text}
FROM catalog_content t
CROSS JOIN sources s INDEXED BY idx_sources_family ON s.family_key = t.family_key
CROSS JOIN task_queue_chunk c INDEXED BY idx_tqc_document
    ON c.document_id = s.published_id AND c.text_key = t.text_key AND c.content_id = t.id
CROSS JOIN task_queue_page p ON p.id = c.page_id

-- name: hydrate_where
WHERE t.id IN (SELECT value FROM json_each($12)) AND {filtered} ORDER BY s.key

-- name: hydrate_all_where
WHERE t.id IN (SELECT value FROM json_each($1)) ORDER BY s.key

-- name: locate
SELECT c.chunk_id, c.content_id FROM sources s CROSS JOIN task_queue_chunk c INDEXED BY idx_tqc_document
    ON c.document_id = s.published_id
WHERE s.id = $1 AND c.chunk_id IN (SELECT value FROM json_each($2))

-- Ranks only: the columns of a hit are read for the few results that remain. FTS5 has a fixed k1 of 1.2. A column of
-- weight 0.75 has the effect of 1.6; see decision 0049. One statement: a list of ids costs as much as the lookups.
-- By the function: ORDER BY rank would sort all matches, with the places of their words, before the first is returned.
-- name: ranked
SELECT k.id, k.score, {visible_where}
FROM (SELECT rowid AS id, bm25(catalog_keyword, 0.75) AS score FROM catalog_keyword
      WHERE catalog_keyword MATCH $12 ORDER BY score, id LIMIT $13) k
CROSS JOIN catalog_content t ON t.id = k.id

-- Texts of some families: the score of all others, which costs more than to look up their family, is not computed.
-- name: ranked_among
SELECT k.id, k.score, {visible_where}
FROM (SELECT f.rowid AS id, bm25(f.catalog_keyword, 0.75) AS score
      FROM catalog_keyword f CROSS JOIN catalog_content o ON o.id = f.rowid
      WHERE f.catalog_keyword MATCH $12 AND o.family_key IN (SELECT value FROM json_each($14))
      ORDER BY score, id LIMIT $13) k
CROSS JOIN catalog_content t ON t.id = k.id

-- name: visible_where
EXISTS (SELECT 1 FROM sources s INDEXED BY idx_sources_family
        CROSS JOIN task_queue_chunk c INDEXED BY idx_tqc_document
            ON c.document_id = s.published_id AND c.text_key = t.text_key AND c.content_id = t.id
        WHERE s.family_key = t.family_key AND {filtered})

-- name: visible
SELECT t.id
FROM json_each($12) j CROSS JOIN catalog_content t ON t.id = j.value
WHERE {visible_where}

-- name: snippets
SELECT rowid, snippet(catalog_keyword, 0, $2, $3, '…', 24)
FROM catalog_keyword WHERE catalog_keyword MATCH $1 AND rowid IN (SELECT value FROM json_each($4))

-- The first texts with each word, by id.
-- name: holding
SELECT * FROM (
    SELECT w.key, (SELECT json_group_array(rowid) FROM (
        SELECT rowid FROM catalog_keyword WHERE catalog_keyword MATCH w.value LIMIT $2)) AS ids
    FROM json_each($1) w)
WHERE ids <> '[]'

-- One lookup for each pair of word and text: the list of a frequent word is not read.
-- name: words_in
SELECT w.key, k.rowid FROM json_each($1) w CROSS JOIN json_each($2) j
CROSS JOIN catalog_keyword k ON k.catalog_keyword MATCH w.value AND k.rowid = j.value

-- For each name, entity or text: the first rows only. A name such as __init__ has as many as there are classes.
-- name: entities_called
SELECT e.id, e.name, e.kind, e.short_key
FROM json_each($2) j CROSS JOIN catalog_entity e
    ON e.id IN (SELECT x.id FROM catalog_entity x INDEXED BY idx_catalog_entity_short
                WHERE x.tenant_id = $1 AND x.short_key = j.value ORDER BY x.id LIMIT $3)

-- name: relations_at
SELECT j.value, (SELECT json_group_array(json_array(content_id, source_id, target_id, kind)) FROM (
    SELECT * FROM (SELECT content_id, source_id, target_id, kind FROM catalog_relation
                   WHERE source_id = j.value ORDER BY content_id, target_id, kind LIMIT $2)
    UNION ALL
    SELECT * FROM (SELECT content_id, source_id, target_id, kind FROM catalog_relation
                   WHERE target_id = j.value ORDER BY content_id, source_id, kind LIMIT $2)))
FROM json_each($1) j

-- name: chunks_of
SELECT j.value, (SELECT json_group_array(content_id) FROM (
    SELECT content_id FROM (SELECT content_id, occurrences FROM catalog_mention WHERE entity_id = j.value
                            ORDER BY content_id LIMIT $3)
    WHERE occurrences > 0 LIMIT $2))
FROM json_each($1) j

-- The ids of PostgreSQL are UUIDs, those here are the numbers.
-- name: of_document_id_where
WHERE s.key = (SELECT source_key FROM documents WHERE id = $1)
