-- name: last_numbers
SELECT name, value FROM catalog_sequence

-- name: continue_rows
UPDATE catalog_sequence SET value = max(value, $1) WHERE name = 'row'

-- Caches of vectors that have seen less than what is forgotten start again.
-- name: continue_changes
UPDATE catalog_sequence
SET value = 1 + max($1, (SELECT s.value FROM catalog_sequence s WHERE s.name = 'change'))
WHERE name = 'change'

-- name: forget_changes
UPDATE catalog_sequence SET value = (SELECT s.value FROM catalog_sequence s WHERE s.name = 'change')
WHERE name = 'forgotten'

-- name: forget_words
INSERT INTO catalog_keyword (catalog_keyword) VALUES ('delete-all')

-- name: buffer_words
INSERT INTO catalog_keyword (catalog_keyword, rank) VALUES ('hashsize', $1)

-- Columns of a table, and their place in the primary key, or 0.
-- name: stored_columns
SELECT name, pk FROM pragma_table_info($1)
