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

-- Tokens sent to services that charge for them, by month (2026-11).
CREATE TABLE catalog_token_use (
    tenant_id   TEXT    NOT NULL,
    service     TEXT    NOT NULL,
    month       TEXT    NOT NULL,
    -- Empty: without a job, such as a query.
    job_id      TEXT    NOT NULL,
    tokens      INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, service, month, job_id)
) WITHOUT ROWID;

-- Rows of other queues that were imported, so that a second import takes none of them again.
CREATE TABLE catalog_import (
    kind       TEXT NOT NULL,
    -- Address of the store that the rows came from, without a password.
    source     TEXT NOT NULL,
    name       TEXT NOT NULL,
    row_id     TEXT NOT NULL,
    outcome    TEXT NOT NULL,
    job_id     TEXT,
    PRIMARY KEY (kind, source, name, row_id)
) WITHOUT ROWID;

-- Work trees of git repositories that were indexed, and the tenants of their documents.
CREATE TABLE catalog_project (
    root       TEXT NOT NULL PRIMARY KEY,
    tenant_id  TEXT NOT NULL,
    name       TEXT NOT NULL,
    -- Normalised, without user and password; empty: none.
    remote     TEXT NOT NULL
);
CREATE INDEX idx_catalog_project_tenant ON catalog_project (tenant_id);
