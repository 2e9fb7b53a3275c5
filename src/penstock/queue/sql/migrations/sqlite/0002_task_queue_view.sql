-- Function jobs as a task queue: its columns and its words, over the one table there is. To be read, not
-- written. Long payloads stand in a table of their own; the join is left out where nobody asks for them.
CREATE VIEW task_queue AS
SELECT
    task_id,
    json_extract(asked, '$.entity_type')   AS entity_type,
    json_extract(asked, '$.entity_id')     AS entity_id,
    json_extract(asked, '$.function_name') AS function_name,
    json_extract(asked, '$.payload')       AS payload,
    status,
    error_message,
    retry_count,
    max_retries,
    created_at,
    updated_at
FROM (
    SELECT
        q.queue_id AS task_id,
        coalesce(nullif(q.payload_json, ''), p.payload_json) AS asked,
        CASE q.status
            WHEN 'pending' THEN 'PENDING'
            WHEN 'in_progress' THEN 'IN_PROGRESS'
            WHEN 'done' THEN 'COMPLETED'
            ELSE 'FAILED'
        END AS status,
        q.error_message,
        q.retry_count,
        q.max_retries,
        q.created_at,
        q.updated_at
    FROM unified_queue q
    LEFT JOIN unified_queue_payload p ON p.queue_id = q.queue_id
    WHERE q.item_type = 'function'
);
