-- What was asked to be looked at, root by root: a delete asked for earlier, but run later, leaves what it wants.
CREATE TABLE catalog_walk (
    tenant_id   TEXT NOT NULL,
    collection  TEXT NOT NULL,
    branch      TEXT NOT NULL,
    root        TEXT NOT NULL,
    rules       TEXT NOT NULL,
    asked_at    TEXT NOT NULL,
    PRIMARY KEY (tenant_id, collection, branch, root, rules)
) WITHOUT ROWID;
CREATE INDEX idx_catalog_walk_asked ON catalog_walk (tenant_id, asked_at);
