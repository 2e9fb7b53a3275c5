-- Statements of both dialects. Parameters are :name; statements.py turns them into %(name)s for PostgreSQL and into
-- ?1, ?2, … in order of appearance for SQLite. {index[name]} names the index for SQLite, whose planner has no statistics.
-- name: backlog_indexing_of_tenant
SELECT count(*) FROM (
    SELECT 1 FROM unified_queue {index[collection_tenant]}
    WHERE status = 'pending' AND {own_document} AND tenant_id = :tenant_id
    ORDER BY tenant_id, priority, turn LIMIT :cap
) AS counted

