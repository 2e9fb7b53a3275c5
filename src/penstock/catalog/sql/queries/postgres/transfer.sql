-- The sequence is not part of a snapshot: it may be ahead, which harms nothing.
-- name: last_numbers
SELECT name, value FROM catalog_sequence UNION ALL SELECT 'row', last_value FROM catalog_row

-- name: continue_rows
SELECT setval('catalog_row', greatest(last_value, $1)) FROM catalog_row

-- name: continue_changes
UPDATE catalog_sequence
SET value = 1 + greatest($1, (SELECT s.value FROM catalog_sequence s WHERE s.name = 'change'))
WHERE name = 'change'

-- Caches of vectors that have seen less than what is forgotten start again.
-- name: forget_changes
UPDATE catalog_sequence SET value = (SELECT s.value FROM catalog_sequence s WHERE s.name = 'change')
WHERE name = 'forgotten'

-- Columns of a table, their place in the primary key, or 0, and the special types.
-- name: stored_columns
SELECT a.attname::text, coalesce(array_position(i.indkey::smallint[], a.attnum) + 1, 0),
       a.atttypid = 'uuid'::regtype, a.atttypid = 'bool'::regtype
FROM pg_catalog.pg_attribute a
LEFT JOIN pg_catalog.pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attnum
