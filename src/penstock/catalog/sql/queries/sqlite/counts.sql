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
   OR p.chunk_count <> chunks LIMIT ?

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
                                       WHEN gc THEN 'completed' ELSE 'skipped' END) LIMIT ?

-- Sources say what their published generation does, once nothing of it is under way or has failed.
-- name: miscounted_sources
SELECT s.key, s.path, d.page_count, d.chunk_count FROM sources s JOIN documents d ON d.id = s.published_id
WHERE (s.page_count, s.chunk_count) <> (d.page_count, d.chunk_count) AND s.partial = 0 AND d.failed_count = 0
  AND d.ocr_waiting + d.ocr_processing + d.vector_waiting + d.vector_processing = 0
LIMIT ?

-- name: recount_page
UPDATE task_queue_page SET vector_processing = ?, vector_waiting = ?, vector_failed = ?, vector_completed = ?,
    vector_status = ?, graphrag_processing = ?, graphrag_waiting = ?, graphrag_failed = ?, graphrag_completed = ?,
    graphrag_status = ?, chunk_count = ? WHERE id = ?

-- name: recount_document
UPDATE documents SET ocr_processing = ?, ocr_waiting = ?, ocr_failed = ?, ocr_completed = ?, ocr_status = ?,
    vector_processing = ?, vector_waiting = ?, vector_failed = ?, vector_completed = ?, vector_index_status = ?,
    graphrag_processing = ?, graphrag_waiting = ?, graphrag_failed = ?, graphrag_completed = ?, graphrag_index_status
    = ?, page_count = ?, chunk_count = ?, vector_chunks = ?, graphrag_chunks = ?, failed_count = ? WHERE id = ?

-- name: recount_source
UPDATE sources SET page_count = ?, chunk_count = ? WHERE key = ?
