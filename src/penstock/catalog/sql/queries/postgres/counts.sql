-- A source has the counts of its published generation, once no task of the generation is open or has failed.
-- name: miscounted_sources
SELECT s.key, s.path, d.page_count, d.chunk_count FROM sources s JOIN documents d ON d.key = s.published_id
WHERE (s.page_count, s.chunk_count) <> (d.page_count, d.chunk_count) AND NOT s.partial AND d.failed_count = 0
  AND d.ocr_waiting + d.ocr_processing + d.vector_waiting + d.vector_processing = 0
LIMIT $1
