-- Counters that a transaction of ours never leaves so; each with what it should say, up to a number.
-- name: miscounted_pages
SELECT p.key, d.key, vp, vw, vf, vc,
       CASE WHEN vp > 0 THEN 'processing' WHEN vw > 0 THEN 'pending' WHEN vf > 0 THEN 'failed'
            WHEN vc > 0 THEN 'completed' ELSE 'skipped' END,
       gp, gw, gf, gc,
       CASE WHEN gp > 0 THEN 'processing' WHEN gw > 0 THEN 'pending' WHEN gf > 0 THEN 'failed'
            WHEN gc > 0 THEN 'completed' ELSE 'skipped' END,
       chunks
FROM task_queue_page p JOIN (
    SELECT page_id, count(*) AS chunks,
           count(*) FILTER (WHERE vector_status = 'processing') AS vp,
           count(*) FILTER (WHERE vector_status = 'pending' OR vector_retry_at IS NOT NULL) AS vw,
           count(*) FILTER (WHERE vector_status = 'failed' AND vector_retry_at IS NULL) AS vf,
           count(*) FILTER (WHERE vector_status = 'completed') AS vc,
           count(*) FILTER (WHERE graphrag_status = 'processing') AS gp,
           count(*) FILTER (WHERE graphrag_status = 'pending' OR graphrag_retry_at IS NOT NULL) AS gw,
           count(*) FILTER (WHERE graphrag_status = 'failed' AND graphrag_retry_at IS NULL) AS gf,
           count(*) FILTER (WHERE graphrag_status = 'completed') AS gc
    FROM task_queue_chunk GROUP BY page_id) c ON c.page_id = p.id
JOIN documents d ON d.id = p.document_id AND d.state <> 'dropped'
    AND NOT EXISTS (SELECT 1 FROM catalog_outbox o WHERE o.kind = 'leftover' AND o.document_key = d.key)
WHERE (p.vector_processing, p.vector_waiting, p.vector_failed, p.vector_completed) <> (vp, vw, vf, vc)
   OR (p.graphrag_processing, p.graphrag_waiting, p.graphrag_failed, p.graphrag_completed) <> (gp, gw, gf, gc)
   OR p.vector_status::text <> CASE WHEN vp > 0 THEN 'processing' WHEN vw > 0 THEN 'pending'
                                    WHEN vf > 0 THEN 'failed' WHEN vc > 0 THEN 'completed' ELSE 'skipped' END
   OR p.graphrag_status::text <> CASE WHEN gp > 0 THEN 'processing' WHEN gw > 0 THEN 'pending'
                                      WHEN gf > 0 THEN 'failed' WHEN gc > 0 THEN 'completed' ELSE 'skipped' END
   OR p.chunk_count <> chunks LIMIT $1

-- name: miscounted_documents
SELECT d.key, d.state, s.path,
       op, ow, fo, oc,
       CASE WHEN op > 0 THEN 'processing' WHEN ow > 0 THEN 'pending' WHEN fo > 0 THEN 'failed'
            WHEN oc > 0 THEN 'completed' ELSE 'skipped' END,
       vp, vw, vf, vc,
       CASE WHEN vp > 0 THEN 'processing' WHEN vw > 0 THEN 'pending' WHEN vf > 0 THEN 'failed'
            WHEN vc > 0 THEN 'completed' ELSE 'skipped' END,
       gp, gw, gf, gc,
       CASE WHEN gp > 0 THEN 'processing' WHEN gw > 0 THEN 'pending' WHEN gf > 0 THEN 'failed'
            WHEN gc > 0 THEN 'completed' ELSE 'skipped' END,
       pages, chunks, embedded, extracted, failed
FROM documents d JOIN (
    SELECT document_id,
           count(*) AS pages, sum(chunk_count) AS chunks,
           count(*) FILTER (WHERE ocr_status = 'processing') AS op,
           count(*) FILTER (WHERE ocr_status = 'pending' OR ocr_retry_at IS NOT NULL) AS ow,
           count(*) FILTER (WHERE ocr_status = 'failed' AND ocr_retry_at IS NULL) AS fo,
           count(*) FILTER (WHERE ocr_status = 'completed') AS oc,
           count(*) FILTER (WHERE vector_status = 'processing') AS vp,
           count(*) FILTER (WHERE vector_status = 'pending') AS vw,
           count(*) FILTER (WHERE vector_status = 'failed') AS vf,
           count(*) FILTER (WHERE vector_status = 'completed') AS vc,
           count(*) FILTER (WHERE graphrag_status = 'processing') AS gp,
           count(*) FILTER (WHERE graphrag_status = 'pending') AS gw,
           count(*) FILTER (WHERE graphrag_status = 'failed') AS gf,
           count(*) FILTER (WHERE graphrag_status = 'completed') AS gc,
           sum(vector_completed) AS embedded, sum(graphrag_completed) AS extracted,
           count(*) FILTER (WHERE ocr_status = 'failed' AND ocr_retry_at IS NULL) + sum(vector_failed) AS failed
    FROM task_queue_page GROUP BY document_id) p ON p.document_id = d.id
LEFT JOIN sources s ON s.key = d.source_key
WHERE d.state <> 'dropped'
  AND NOT EXISTS (SELECT 1 FROM catalog_outbox o WHERE o.kind = 'leftover' AND o.document_key = d.key)
  AND ((d.ocr_processing, d.ocr_waiting, d.ocr_failed, d.ocr_completed) <> (op, ow, fo, oc)
    OR (d.vector_processing, d.vector_waiting, d.vector_failed, d.vector_completed) <> (vp, vw, vf, vc)
    OR (d.graphrag_processing, d.graphrag_waiting, d.graphrag_failed, d.graphrag_completed) <> (gp, gw, gf, gc)
    OR (d.page_count, d.chunk_count, d.vector_chunks, d.graphrag_chunks, d.failed_count)
       <> (pages, chunks, embedded, extracted, failed)
    OR d.ocr_status::text <> CASE WHEN op > 0 THEN 'processing' WHEN ow > 0 THEN 'pending'
                                  WHEN fo > 0 THEN 'failed' WHEN oc > 0 THEN 'completed' ELSE 'skipped' END
    OR d.vector_index_status::text <> CASE WHEN vp > 0 THEN 'processing' WHEN vw > 0 THEN 'pending'
                                           WHEN vf > 0 THEN 'failed' WHEN vc > 0 THEN 'completed' ELSE 'skipped' END
    OR d.graphrag_index_status::text
       <> CASE WHEN gp > 0 THEN 'processing' WHEN gw > 0 THEN 'pending' WHEN gf > 0 THEN 'failed'
               WHEN gc > 0 THEN 'completed' ELSE 'skipped' END) LIMIT $1

-- Sources say what their published generation does, once nothing of it is under way or has failed.
-- name: miscounted_sources
SELECT s.key, s.path, d.page_count, d.chunk_count FROM sources s JOIN documents d ON d.key = s.published_id
WHERE (s.page_count, s.chunk_count) <> (d.page_count, d.chunk_count) AND NOT s.partial AND d.failed_count = 0
  AND d.ocr_waiting + d.ocr_processing + d.vector_waiting + d.vector_processing = 0
LIMIT $1

-- name: recount_page
UPDATE task_queue_page AS t SET vector_processing = v.vector_processing, vector_waiting = v.vector_waiting,
    vector_failed = v.vector_failed, vector_completed = v.vector_completed, vector_status =
    v.vector_status, graphrag_processing = v.graphrag_processing, graphrag_waiting =
    v.graphrag_waiting, graphrag_failed = v.graphrag_failed, graphrag_completed = v.graphrag_completed,
    graphrag_status = v.graphrag_status, chunk_count = v.chunk_count
FROM rows(vector_processing int, vector_waiting int, vector_failed int, vector_completed int, vector_status
          task_status, graphrag_processing int, graphrag_waiting int, graphrag_failed int, graphrag_completed int,
          graphrag_status task_status, chunk_count int, key bigint)
WHERE t.key = v.key

-- name: recount_document
UPDATE documents AS t SET ocr_processing = v.ocr_processing, ocr_waiting = v.ocr_waiting, ocr_failed = v.ocr_failed,
    ocr_completed = v.ocr_completed, ocr_status = v.ocr_status, vector_processing = v.vector_processing,
    vector_waiting = v.vector_waiting, vector_failed = v.vector_failed, vector_completed = v.vector_completed,
    vector_index_status = v.vector_index_status, graphrag_processing = v.graphrag_processing,
    graphrag_waiting = v.graphrag_waiting, graphrag_failed = v.graphrag_failed, graphrag_completed =
    v.graphrag_completed, graphrag_index_status = v.graphrag_index_status, page_count =
    v.page_count, chunk_count = v.chunk_count, vector_chunks = v.vector_chunks, graphrag_chunks = v.graphrag_chunks,
    failed_count = v.failed_count
FROM rows(ocr_processing int, ocr_waiting int, ocr_failed int, ocr_completed int, ocr_status task_status,
          vector_processing int, vector_waiting int, vector_failed int, vector_completed int, vector_index_status
          task_status, graphrag_processing int, graphrag_waiting int, graphrag_failed int, graphrag_completed int,
          graphrag_index_status task_status, page_count int, chunk_count int, vector_chunks int, graphrag_chunks int,
          failed_count int, key bigint)
WHERE t.key = v.key

-- name: recount_source
UPDATE sources AS t SET page_count = v.page_count, chunk_count = v.chunk_count
FROM rows(page_count int, chunk_count int, key bigint)
WHERE t.key = v.key
