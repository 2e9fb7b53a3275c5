-- Function jobs as a task queue: its columns and its words, over the one table there is. To be read, not written.
CREATE VIEW task_queue AS
SELECT
    queue_id                                 AS task_id,
    payload_json::json ->> 'entity_type'     AS entity_type,
    payload_json::json ->> 'entity_id'       AS entity_id,
    payload_json::json ->> 'function_name'   AS function_name,
    payload_json::json -> 'payload'          AS payload,
    CASE status
        WHEN 'pending' THEN 'PENDING'
        WHEN 'in_progress' THEN 'IN_PROGRESS'
        WHEN 'done' THEN 'COMPLETED'
        ELSE 'FAILED'
    END                                      AS status,
    error_message,
    retry_count,
    max_retries,
    created_at,
    updated_at
FROM unified_queue
WHERE item_type = 'function';
