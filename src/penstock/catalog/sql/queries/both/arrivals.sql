-- name: expected
SELECT read_from FROM catalog_arrival WHERE tenant_id = $1 AND collection = $2 AND branch = $3 AND path = $4

-- name: unexpect
DELETE FROM catalog_arrival
WHERE tenant_id = $1 AND ($2::text = '' OR collection = $2) AND ($3::text = '' OR branch = $3)
  AND ($4::text = '' OR path = $4 OR (path >= $5 AND path < $6)) AND created_at <= $7

-- name: old_arrivals
DELETE FROM catalog_arrival WHERE created_at < $1
