-- name: project_roots
SELECT root, tenant_id, name, remote FROM catalog_project ORDER BY name, root

-- name: project_roots_at
SELECT root, tenant_id, name, remote FROM catalog_project WHERE root IN texts($1)

-- A folder keeps the tenant that it was first indexed with: a new remote would leave its documents behind.
-- name: add_project_root
INSERT INTO catalog_project (root, tenant_id, name, remote) VALUES ($1, $2, $3, $4) ON CONFLICT (root) DO NOTHING

-- name: move_project_root
UPDATE catalog_project SET root = $1 WHERE root = $2

-- name: delete_project_root
DELETE FROM catalog_project WHERE root = $1

-- name: forget_project_roots
DELETE FROM catalog_project WHERE tenant_id = $1

-- One step in the index of paths for each branch.
-- name: branches
WITH RECURSIVE step (branch) AS (
    SELECT min(branch) FROM sources WHERE tenant_id = $1 AND collection = $2
    UNION ALL
    SELECT (SELECT min(s.branch) FROM sources s
            WHERE s.tenant_id = $1 AND s.collection = $2 AND s.branch > step.branch)
    FROM step WHERE step.branch IS NOT NULL)
SELECT branch FROM step WHERE branch IS NOT NULL
