-- Counters that a transaction of ours never leaves so; each with what it should say, up to a number.
-- name: miscounted_pages
SELECT p.id, p.document_id, vp, vw, vf, vc,
       CASE WHEN vp THEN 'processing' WHEN vw THEN 'pending' WHEN vf THEN 'failed'
            WHEN vc THEN 'completed' ELSE 'skipped' END,
       gp, gw, gf, gc,
       CASE WHEN gp THEN 'processing' WHEN gw THEN 'pending' WHEN gf THEN 'failed'
            WHEN gc THEN 'completed' ELSE 'skipped' END,
       chunks
FROM task_queue_page p JOIN (
    SELECT page_id, count(*) AS chunks,
           sum(vector_status = 'processing') AS vp,
           sum(vector_status = 'pending' OR vector_retry_at IS NOT NULL) AS vw,
           sum(vector_status = 'failed' AND vector_retry_at IS NULL) AS vf,
           sum(vector_status = 'completed') AS vc,
           sum(graphrag_status = 'processing') AS gp,
           sum(graphrag_status = 'pending' OR graphrag_retry_at IS NOT NULL) AS gw,
           sum(graphrag_status = 'failed' AND graphrag_retry_at IS NULL) AS gf,
           sum(graphrag_status = 'completed') AS gc
    FROM task_queue_chunk GROUP BY page_id) c ON c.page_id = p.id
JOIN documents d ON d.id = p.document_id AND d.state <> 'dropped'
    AND NOT EXISTS (SELECT 1 FROM catalog_outbox o WHERE o.kind = 'leftover' AND o.document_id = d.id)
WHERE (p.vector_processing, p.vector_waiting, p.vector_failed, p.vector_completed) <> (vp, vw, vf, vc)
   OR (p.graphrag_processing, p.graphrag_waiting, p.graphrag_failed, p.graphrag_completed) <> (gp, gw, gf, gc)
   OR p.vector_status <> CASE WHEN vp THEN 'processing' WHEN vw THEN 'pending' WHEN vf THEN 'failed'
                              WHEN vc THEN 'completed' ELSE 'skipped' END
   OR p.graphrag_status <> CASE WHEN gp THEN 'processing' WHEN gw THEN 'pending' WHEN gf THEN 'failed'
                                WHEN gc THEN 'completed' ELSE 'skipped' END
   OR p.chunk_count <> chunks LIMIT $1

-- name: miscounted_documents
SELECT d.id, d.state, (SELECT s.path FROM sources s WHERE s.key = d.source_key),
       op, ow, fo, oc,
       CASE WHEN op THEN 'processing' WHEN ow THEN 'pending' WHEN fo THEN 'failed'
            WHEN oc THEN 'completed' ELSE 'skipped' END,
       vp, vw, vf, vc,
       CASE WHEN vp THEN 'processing' WHEN vw THEN 'pending' WHEN vf THEN 'failed'
            WHEN vc THEN 'completed' ELSE 'skipped' END,
       gp, gw, gf, gc,
       CASE WHEN gp THEN 'processing' WHEN gw THEN 'pending' WHEN gf THEN 'failed'
            WHEN gc THEN 'completed' ELSE 'skipped' END,
       pages, chunks, embedded, extracted, failed
FROM documents d JOIN (
    SELECT document_id,
           count(*) AS pages, sum(chunk_count) AS chunks,
           sum(ocr_status = 'processing') AS op,
           sum(ocr_status = 'pending' OR ocr_retry_at IS NOT NULL) AS ow,
           sum(ocr_status = 'failed' AND ocr_retry_at IS NULL) AS fo,
           sum(ocr_status = 'completed') AS oc,
           sum(vector_status = 'processing') AS vp, sum(vector_status = 'pending') AS vw,
           sum(vector_status = 'failed') AS vf, sum(vector_status = 'completed') AS vc,
           sum(graphrag_status = 'processing') AS gp, sum(graphrag_status = 'pending') AS gw,
           sum(graphrag_status = 'failed') AS gf, sum(graphrag_status = 'completed') AS gc,
           sum(vector_completed) AS embedded, sum(graphrag_completed) AS extracted,
           sum(ocr_status = 'failed' AND ocr_retry_at IS NULL) + sum(vector_failed) AS failed
    FROM task_queue_page GROUP BY document_id) p ON p.document_id = d.id
WHERE d.state <> 'dropped'
  AND NOT EXISTS (SELECT 1 FROM catalog_outbox o WHERE o.kind = 'leftover' AND o.document_id = d.id)
  AND ((d.ocr_processing, d.ocr_waiting, d.ocr_failed, d.ocr_completed) <> (op, ow, fo, oc)
    OR (d.vector_processing, d.vector_waiting, d.vector_failed, d.vector_completed) <> (vp, vw, vf, vc)
    OR (d.graphrag_processing, d.graphrag_waiting, d.graphrag_failed, d.graphrag_completed) <> (gp, gw, gf, gc)
    OR (d.page_count, d.chunk_count, d.vector_chunks, d.graphrag_chunks, d.failed_count)
       <> (pages, chunks, embedded, extracted, failed)
    OR d.ocr_status <> CASE WHEN op THEN 'processing' WHEN ow THEN 'pending' WHEN fo THEN 'failed'
                            WHEN oc THEN 'completed' ELSE 'skipped' END
    OR d.vector_index_status <> CASE WHEN vp THEN 'processing' WHEN vw THEN 'pending' WHEN vf THEN 'failed'
                                     WHEN vc THEN 'completed' ELSE 'skipped' END
    OR d.graphrag_index_status <> CASE WHEN gp THEN 'processing' WHEN gw THEN 'pending' WHEN gf THEN 'failed'
                                       WHEN gc THEN 'completed' ELSE 'skipped' END) LIMIT $1

-- Sources say what their published generation does, once nothing of it is under way or has failed.
-- name: miscounted_sources
SELECT s.key, s.path, d.page_count, d.chunk_count FROM sources s JOIN documents d ON d.id = s.published_id
WHERE (s.page_count, s.chunk_count) <> (d.page_count, d.chunk_count) AND s.partial = 0 AND d.failed_count = 0
  AND d.ocr_waiting + d.ocr_processing + d.vector_waiting + d.vector_processing = 0
LIMIT $1

-- name: recount_page
UPDATE task_queue_page SET vector_processing = $1, vector_waiting = $2, vector_failed = $3, vector_completed = $4,
    vector_status = $5, graphrag_processing = $6, graphrag_waiting = $7, graphrag_failed = $8, graphrag_completed = $9,
    graphrag_status = $10, chunk_count = $11 WHERE id = $12

-- name: recount_document
UPDATE documents SET ocr_processing = $1, ocr_waiting = $2, ocr_failed = $3, ocr_completed = $4, ocr_status = $5,
    vector_processing = $6, vector_waiting = $7, vector_failed = $8, vector_completed = $9, vector_index_status = $10,
    graphrag_processing = $11, graphrag_waiting = $12, graphrag_failed = $13, graphrag_completed = $14, graphrag_index_status
    = $15, page_count = $16, chunk_count = $17, vector_chunks = $18, graphrag_chunks = $19, failed_count = $20 WHERE id = $21

-- name: recount_source
UPDATE sources SET page_count = $1, chunk_count = $2 WHERE key = $3
