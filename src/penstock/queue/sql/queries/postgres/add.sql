-- Rows come as one array a column, so that a batch is one statement whatever its size. No ON CONFLICT: who adds has
-- looked for the rows it could meet and locked them; what another adds between the look and this is met as a unique
-- violation, and the whole transaction is done again.
-- name: insert_job
INSERT INTO unified_queue ({inserted})
SELECT * FROM unnest({inserted_arrays})

-- name: known_children
SELECT idempotency_key FROM unified_queue
WHERE parent_id = %(parent_id)s AND parent_run = %(parent_run)s AND idempotency_key = ANY(%(keys)s::text[])

-- Where every flow of a batch stands, and which of its ids are taken, in one statement.
-- name: surroundings
SELECT f.tenant_id, f.priority, (
    SELECT turn FROM unified_queue
    WHERE coalesce(held, status) = 'pending' AND priority = f.priority AND turn >= 0
    ORDER BY turn LIMIT 1
), (
    SELECT turn FROM unified_queue
    WHERE status = 'pending' AND tenant_id = f.tenant_id AND priority = f.priority
    ORDER BY turn DESC LIMIT 1
), ARRAY(SELECT queue_id FROM unified_queue WHERE queue_id = ANY(%(ids)s::text[]))
FROM unnest(%(tenants)s::text[], %(priorities)s::int[]) AS f(tenant_id, priority)

-- name: backlog_indexing
SELECT count(*) FROM (
    SELECT 1 FROM unified_queue
    WHERE status = 'pending' AND parent_id IS NULL AND item_type <> 'function' LIMIT %(cap)s
) AS counted

-- name: backlog_indexing_of_tenant
SELECT count(*) FROM (
    SELECT 1 FROM unified_queue
    WHERE status = 'pending' AND parent_id IS NULL AND item_type <> 'function' AND tenant_id = %(tenant_id)s
    LIMIT %(cap)s
) AS counted

-- name: backlog_functions
SELECT count(*) FROM (
    SELECT 1 FROM unified_queue
    WHERE status = 'pending' AND parent_id IS NULL AND item_type = 'function' LIMIT %(cap)s
) AS counted
