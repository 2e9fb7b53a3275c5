-- What happened to sources after they were first indexed, also to those that are gone.
CREATE TABLE catalog_history (
    id          bigint      NOT NULL PRIMARY KEY,
    tenant_id   text        COLLATE "C" NOT NULL,
    collection  text        COLLATE "C" NOT NULL,
    branch      text        COLLATE "C" NOT NULL,
    source_id   text        COLLATE "C" NOT NULL,
    -- Where it was before.
    path        text        COLLATE "C" NOT NULL,
    what        text        COLLATE "C" NOT NULL CHECK (what IN ('updated', 'renamed', 'removed')),
    note        text        NOT NULL,
    job_id      text        COLLATE "C",
    at          timestamptz NOT NULL
);
CREATE INDEX idx_catalog_history_source ON catalog_history (source_id, id);
CREATE INDEX idx_catalog_history_path ON catalog_history (tenant_id, collection, branch, path, id);
CREATE INDEX idx_catalog_history_removed ON catalog_history (at) WHERE what = 'removed';
