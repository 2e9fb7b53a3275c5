-- name: expect
INSERT OR REPLACE INTO catalog_arrival (tenant_id, collection, branch, path, read_from, created_at)
VALUES ($1, $2, $3, $4, $5, $6)
