-- name: add_tokens
INSERT INTO catalog_token_use (tenant_id, service, month, job_id, tokens)
SELECT * FROM rows(tenant_id text, service text, month text, job_id text, tokens bigint)
ORDER BY tenant_id, service, month, job_id
ON CONFLICT (tenant_id, service, month, job_id) DO UPDATE SET tokens = catalog_token_use.tokens + excluded.tokens

-- name: token_uses
SELECT tenant_id, service, month, job_id, tokens FROM catalog_token_use
WHERE ($1::text IS NULL OR tenant_id = $1) AND month = $2 ORDER BY tenant_id, service, tokens DESC, job_id

-- name: forget_tokens
DELETE FROM catalog_token_use WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM catalog_token_use WHERE tenant_id = $1 LIMIT $2 FOR UPDATE SKIP LOCKED))
