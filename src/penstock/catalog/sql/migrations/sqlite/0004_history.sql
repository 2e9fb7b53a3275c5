-- What happened to sources after they were first indexed, also to those that are gone.
CREATE TABLE catalog_history (
    id          INTEGER NOT NULL PRIMARY KEY,
    tenant_id   TEXT    NOT NULL,
    collection  TEXT    NOT NULL,
    branch      TEXT    NOT NULL,
    source_id   TEXT    NOT NULL,
    -- Where it was before.
    path        TEXT    NOT NULL,
    what        TEXT    NOT NULL CHECK (what = 'updated' OR what = 'renamed' OR what = 'removed'),
    note        TEXT    NOT NULL,
    job_id      TEXT,
    at          TEXT    NOT NULL
);
CREATE INDEX idx_catalog_history_source ON catalog_history (source_id, id);
CREATE INDEX idx_catalog_history_path ON catalog_history (tenant_id, collection, branch, path, id);
CREATE INDEX idx_catalog_history_removed ON catalog_history (at) WHERE what = 'removed';
