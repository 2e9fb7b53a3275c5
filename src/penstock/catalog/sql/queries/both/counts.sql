-- Counters that no transaction of ours leaves wrong, each with the right values, up to a limit.
-- name: miscounted_pages
SELECT {MiscountedPage c.; page_id = p.{id}; document_id = d.{id}}
FROM task_queue_page p JOIN (
    SELECT n.*, [[chunk phase,| CASE WHEN n.{phase}_processing > 0 THEN 'processing' WHEN n.{phase}_waiting > 0 THEN 'pending'
                  WHEN n.{phase}_failed > 0 THEN 'failed' WHEN n.{phase}_completed > 0 THEN 'completed'
                  ELSE 'skipped' END AS {phase}_status]]
    FROM (SELECT page_id, count(*) AS chunk_count, [[chunk phase,|
                 count(CASE WHEN {phase}_status = 'processing' THEN 1 END) AS {phase}_processing,
                 count(CASE WHEN {phase}_status = 'pending' OR {phase}_retry_at IS NOT NULL THEN 1 END) AS {phase}_waiting,
                 count(CASE WHEN {phase}_status = 'failed' AND {phase}_retry_at IS NULL THEN 1 END) AS {phase}_failed,
                 count(CASE WHEN {phase}_status = 'completed' THEN 1 END) AS {phase}_completed]]
          FROM task_queue_chunk GROUP BY page_id) AS n) AS c ON c.page_id = p.id
JOIN documents d ON d.id = p.document_id AND d.state <> 'dropped'
    AND NOT EXISTS (SELECT 1 FROM catalog_outbox o WHERE o.kind = 'leftover' AND o.{document_id} = d.{id})
WHERE p.chunk_count <> c.chunk_count OR [[chunk phase OR|
   (p.{phase}_processing, p.{phase}_waiting, p.{phase}_failed, p.{phase}_completed, p.{phase}_status::text)
   <> (c.{phase}_processing, c.{phase}_waiting, c.{phase}_failed, c.{phase}_completed, c.{phase}_status)]]
LIMIT $1

-- name: miscounted_documents
SELECT {MiscountedDocument c.; document_id = d.{id}; state = d.state; path = s.path}
FROM documents d JOIN (
    SELECT n.*, [[phase,| CASE WHEN n.{phase}_processing > 0 THEN 'processing' WHEN n.{phase}_waiting > 0 THEN 'pending'
                  WHEN n.{phase}_failed > 0 THEN 'failed' WHEN n.{phase}_completed > 0 THEN 'completed'
                  ELSE 'skipped' END AS {document_status}]]
    FROM (SELECT document_id, count(*) AS page_count, sum(chunk_count) AS chunk_count,
                 [[phase,| count(CASE WHEN {phase}_status = 'processing' THEN 1 END) AS {phase}_processing,
                 count(CASE WHEN {phase}_status = 'completed' THEN 1 END) AS {phase}_completed]],
                 count(CASE WHEN ocr_status = 'pending' OR ocr_retry_at IS NOT NULL THEN 1 END) AS ocr_waiting,
                 count(CASE WHEN ocr_status = 'failed' AND ocr_retry_at IS NULL THEN 1 END) AS ocr_failed,
                 [[chunk phase,| count(CASE WHEN {phase}_status = 'pending' THEN 1 END) AS {phase}_waiting,
                 count(CASE WHEN {phase}_status = 'failed' THEN 1 END) AS {phase}_failed,
                 sum({phase}_completed) AS {phase}_chunks]],
                 count(CASE WHEN ocr_status = 'failed' AND ocr_retry_at IS NULL THEN 1 END)
                     + sum(vector_failed) AS failed_count
          FROM task_queue_page GROUP BY document_id) AS n) AS c ON c.document_id = d.id
LEFT JOIN sources s ON s.key = d.source_key
WHERE d.state <> 'dropped'
  AND NOT EXISTS (SELECT 1 FROM catalog_outbox o WHERE o.kind = 'leftover' AND o.{document_id} = d.{id})
  AND ((d.page_count, d.chunk_count, d.failed_count) <> (c.page_count, c.chunk_count, c.failed_count)
       OR [[chunk phase OR| d.{phase}_chunks <> c.{phase}_chunks]] OR [[phase OR|
       (d.{phase}_processing, d.{phase}_waiting, d.{phase}_failed, d.{phase}_completed, d.{document_status}::text)
       <> (c.{phase}_processing, c.{phase}_waiting, c.{phase}_failed, c.{phase}_completed, c.{document_status})]])
LIMIT $1

-- name: recount_page (MiscountedPage)
UPDATE task_queue_page AS t SET {MiscountedPage set; page_id; document_id} FROM rows() WHERE t.{id} = $page_id

-- name: recount_document (MiscountedDocument)
UPDATE documents AS t SET {MiscountedDocument set; document_id; state; path} FROM rows() WHERE t.{id} = $document_id

-- name: recount_source (MiscountedSource)
UPDATE sources AS t SET {MiscountedSource set; key; path} FROM rows() WHERE t.key = $key
