-- name: tokens_used
SELECT coalesce(sum(tokens), 0) FROM catalog_token_use WHERE tenant_id = $1 AND service = $2 AND month = $3

-- name: old_tokens
DELETE FROM catalog_token_use WHERE month < $1
