-- One array per column, so that a batch of any size is one statement. No ON CONFLICT: the rows that it could meet are
-- read and locked before; a row added by another transaction since then is a unique violation, and the whole
-- transaction runs again.
-- name: insert_job
INSERT INTO unified_queue ({inserted})
SELECT * FROM unnest({inserted_arrays})

-- The same for rows that share all but a few columns: shared values are sent and decoded once.
-- name: insert_alike
INSERT INTO unified_queue ({inserted})
SELECT {own_or_common} FROM unnest({own_arrays}) AS own({own})

-- Whole rows of another store.
-- name: insert_row
INSERT INTO unified_queue ({job})
SELECT * FROM unnest({job_arrays})

-- One plain row in one round trip: a single statement computes the turn, writes the row and notifies. With a live
-- duplicate, a taken id or any pause it writes nothing, and the rules decide. The turn is that of transitions.next_turn.
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
ON CONFLICT DO NOTHING
RETURNING pg_notify(:channel, '')

-- The same with limits: it writes nothing to a queue that may be full. Rows are counted as in the backlog statements.
-- name: add_plain_limited
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
            WHERE item_type = 'function' AND status IN ('pending', 'failed') AND status = (SELECT 'pending')
              AND parent_id IS NULL LIMIT :functions::bigint
        ) AS counted))
  AND (:indexing::bigint IS NULL OR :indexing::bigint > (
        SELECT count(*) FROM (
            SELECT 1 FROM unnest(ARRAY[{indexing_types}]) AS t(item_type) CROSS JOIN LATERAL (
                SELECT 1 FROM unified_queue q
                WHERE q.item_type = t.item_type AND q.status IN ('pending', 'failed') AND q.status = (SELECT 'pending')
                  AND q.parent_id IS NULL LIMIT :indexing::bigint
            ) AS found
            LIMIT :indexing::bigint
        ) AS counted))
  AND (:per_tenant::bigint IS NULL OR :per_tenant::bigint > (
        SELECT count(*) FROM (
            SELECT 1 FROM unified_queue
            WHERE status = 'pending' AND {own_document} AND tenant_id = :tenant_id::text
            ORDER BY tenant_id, priority, turn LIMIT :per_tenant::bigint
        ) AS counted))
ON CONFLICT DO NOTHING
RETURNING pg_notify(:channel, '')

-- Many plain rows that never meet others, and that share all but four columns: all or none. A taken id fails the
-- statement. Their turns follow each other.
-- name: add_alike
WITH added AS (
    INSERT INTO unified_queue (
        queue_id, root_id, item_type, op, tenant_id, collection, branch, priority, created_at, updated_at,
        idempotency_key, dedupe, max_retries, timeout_s, submitted_by, lock_key, payload_json, metadata, turn)
    SELECT own.queue_id, own.queue_id, :item_type::text, :op::text, :tenant_id::text, :collection::text,
        :branch::text, :priority::int, :now::timestamptz, :now::timestamptz, own.idempotency_key, :dedupe::boolean,
        :max_retries::int, :timeout_s::int, :submitted_by::text, own.lock_key, own.payload_json, :metadata::text,
        own.place::int - 1 + greatest((
            SELECT turn FROM unified_queue
            WHERE coalesce(held, status) = 'pending' AND priority = :priority::int AND turn >= 0
            ORDER BY turn LIMIT 1
        ), (
            SELECT turn + 1 FROM unified_queue
            WHERE status = 'pending' AND tenant_id = :tenant_id::text AND priority = :priority::int
            ORDER BY turn DESC LIMIT 1
        ), 0)
    FROM unnest(:ids::text[], :keys::text[], :locks::text[], :payloads::text[]) WITH ORDINALITY
        AS own(queue_id, idempotency_key, lock_key, payload_json, place)
    WHERE NOT EXISTS (SELECT 1 FROM queue_pause)
    RETURNING 1
)
SELECT pg_notify(:channel, '') FROM added HAVING count(*) > 0

-- name: known_children
SELECT idempotency_key FROM unified_queue
WHERE parent_id = :parent_id AND parent_run = :parent_run AND idempotency_key = ANY(:keys::text[])

-- The turns of all flows of a batch, and which of its ids exist, in one statement.
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

-- The status is hidden in a subquery: otherwise the planner takes another index over pending rows because of the LIMIT,
-- and reads it to its end when there are few rows of a key.
-- name: keyed_backlog
SELECT count(*) FROM (
    SELECT 1 FROM unified_queue
    WHERE item_type = 'function' AND status IN ('pending', 'failed') AND status = (SELECT 'pending')
      AND parent_id IS NULL AND backlog_key = :key LIMIT :cap
) AS counted

-- name: backlog_functions
SELECT count(*) FROM (
    SELECT 1 FROM unified_queue
    WHERE item_type = 'function' AND status IN ('pending', 'failed') AND status = (SELECT 'pending')
      AND parent_id IS NULL LIMIT :cap
) AS counted

-- Type by type, each a range of an index; the status as above.
-- name: backlog_indexing
SELECT count(*) FROM (
    SELECT 1 FROM unnest(ARRAY[{indexing_types}]) AS t(item_type) CROSS JOIN LATERAL (
        SELECT 1 FROM unified_queue q
        WHERE q.item_type = t.item_type AND q.status IN ('pending', 'failed') AND q.status = (SELECT 'pending')
          AND q.parent_id IS NULL LIMIT :cap
    ) AS found
    LIMIT :cap
) AS counted
