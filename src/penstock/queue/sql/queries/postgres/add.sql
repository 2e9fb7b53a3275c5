-- Rows come as one array a column, so that a batch is one statement whatever its size. No ON CONFLICT: who adds has
-- looked for the rows it could meet and locked them; what another adds between the look and this is met as a unique
-- violation, and the whole transaction is done again.
-- name: insert_job
INSERT INTO unified_queue ({inserted})
SELECT * FROM unnest({inserted_arrays})

-- The same for rows that have all but a few columns in common: what is sent once need not be taken apart row by row.
-- name: insert_alike
INSERT INTO unified_queue ({inserted})
SELECT {own_or_common} FROM unnest({own_arrays}) AS own({own})

-- One new row that meets nobody, in one round trip: its turn is found, its limits are looked at, it is written and
-- notified in a single statement. Where anything stands in the way (a live twin, a taken id, a queue that may be full) it
-- writes nothing, and the rules decide; so it does where anything is paused. The turn is that of transitions.next_turn.
-- name: add_plain
INSERT INTO unified_queue (
    queue_id, root_id, item_type, op, tenant_id, collection, branch, priority, created_at, updated_at,
    idempotency_key, dedupe, max_retries, timeout_s, submitted_by, lock_key, payload_json, metadata, turn)
SELECT :queue_id::text, :queue_id::text, :item_type::text, :op::text, :tenant_id::text,
    :collection::text, :branch::text, :priority::int, :now::timestamptz, :now::timestamptz,
    :idempotency_key::text, :dedupe::boolean, :max_retries::int, :timeout_s::int,
    :submitted_by::text, :lock_key::text, :payload_json::text, :metadata::text,
    greatest((
        SELECT turn FROM unified_queue
        WHERE coalesce(held, status) = 'pending' AND priority = :priority::int AND turn >= 0
        ORDER BY turn LIMIT 1
    ), (
        SELECT turn + 1 FROM unified_queue
        WHERE status = 'pending' AND tenant_id = :tenant_id::text AND priority = :priority::int
        ORDER BY turn DESC LIMIT 1
    ), 0)
WHERE NOT EXISTS (SELECT 1 FROM queue_pause)
  AND (:functions::bigint IS NULL OR :functions::bigint > (
        SELECT count(*) FROM (
            SELECT 1 FROM unified_queue
            WHERE status = 'pending' AND parent_id IS NULL AND item_type = 'function' LIMIT :functions::bigint
        ) AS counted))
  AND (:indexing::bigint IS NULL OR :indexing::bigint > (
        SELECT count(*) FROM (
            SELECT 1 FROM unified_queue
            WHERE status = 'pending' AND parent_id IS NULL AND item_type <> 'function' LIMIT :indexing::bigint
        ) AS counted))
  AND (:per_tenant::bigint IS NULL OR :per_tenant::bigint > (
        SELECT count(*) FROM (
            SELECT 1 FROM unified_queue
            WHERE status = 'pending' AND parent_id IS NULL AND item_type <> 'function'
              AND tenant_id = :tenant_id::text LIMIT :per_tenant::bigint
        ) AS counted))
ON CONFLICT DO NOTHING
RETURNING pg_notify(:channel, '')

-- name: known_children
SELECT idempotency_key FROM unified_queue
WHERE parent_id = :parent_id AND parent_run = :parent_run AND idempotency_key = ANY(:keys::text[])

-- Where every flow of a batch stands, and which of its ids are taken, in one statement.
-- name: flow_turns
SELECT f.tenant_id, f.priority, (
    SELECT turn FROM unified_queue
    WHERE coalesce(held, status) = 'pending' AND priority = f.priority AND turn >= 0
    ORDER BY turn LIMIT 1
), (
    SELECT turn FROM unified_queue
    WHERE status = 'pending' AND tenant_id = f.tenant_id AND priority = f.priority
    ORDER BY turn DESC LIMIT 1
), ARRAY(SELECT queue_id FROM unified_queue WHERE queue_id = ANY(:ids::text[]))
FROM unnest(:tenants::text[], :priorities::int[]) AS f(tenant_id, priority)

-- Type by type, each of which is one part of an index. The status is hidden in a subquery: with few rows of a type, or
-- none, any other index over what is pending would be read to its end, and planners take it for the sake of the LIMIT.
-- name: backlog_indexing
SELECT count(*) FROM (
    SELECT 1 FROM unnest(ARRAY[{indexing_types}]) AS t(item_type) CROSS JOIN LATERAL (
        SELECT 1 FROM unified_queue q
        WHERE q.item_type = t.item_type AND q.status IN ('pending', 'failed') AND q.status = (SELECT 'pending')
          AND q.parent_id IS NULL LIMIT :cap
    ) AS found
    LIMIT :cap
) AS counted
