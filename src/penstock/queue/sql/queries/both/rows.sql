-- name: get
SELECT {job} FROM unified_queue WHERE queue_id = :queue_id

-- name: lock_holder
SELECT queue_id FROM unified_queue {index[lock]} WHERE lock_held = :lock_key
