-- Where a file was read that is known by a path it has yet to be moved to.
CREATE TABLE catalog_arrival (
    tenant_id   TEXT NOT NULL,
    collection  TEXT NOT NULL,
    branch      TEXT NOT NULL,
    path        TEXT NOT NULL,
    read_from   TEXT NOT NULL,
    created_at  TEXT NOT NULL,
    PRIMARY KEY (tenant_id, collection, branch, path)
) WITHOUT ROWID;
