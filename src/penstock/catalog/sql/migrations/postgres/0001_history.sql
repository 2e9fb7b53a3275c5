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

-- What was asked to be looked at, root by root: a delete asked for earlier, but run later, leaves what it wants.
CREATE TABLE catalog_walk (
    tenant_id   text        COLLATE "C" NOT NULL,
    collection  text        COLLATE "C" NOT NULL,
    branch      text        COLLATE "C" NOT NULL,
    root        text        COLLATE "C" NOT NULL,
    rules       text        COLLATE "C" NOT NULL,
    -- The rules may be longer than an entry of an index.
    rules_key   text        COLLATE "C" NOT NULL GENERATED ALWAYS AS (md5(rules)) STORED,
    asked_at    timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, collection, branch, root, rules_key)
);
CREATE INDEX idx_catalog_walk_asked ON catalog_walk (tenant_id, asked_at);

-- Where a file was read that is known by a path it has yet to be moved to.
CREATE TABLE catalog_arrival (
    tenant_id   text        COLLATE "C" NOT NULL,
    collection  text        COLLATE "C" NOT NULL,
    branch      text        COLLATE "C" NOT NULL,
    path        text        COLLATE "C" NOT NULL,
    read_from   text        NOT NULL,
    created_at  timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, collection, branch, path)
);

-- Tokens sent to services that charge for them, by month (2026-11).
CREATE TABLE catalog_token_use (
    tenant_id   text        COLLATE "C" NOT NULL,
    service     text        COLLATE "C" NOT NULL,
    month       text        COLLATE "C" NOT NULL,
    -- Empty: without a job, such as a query.
    job_id      text        COLLATE "C" NOT NULL,
    tokens      bigint      NOT NULL,
    PRIMARY KEY (tenant_id, service, month, job_id)
);

-- Rows of other queues that were imported, so that a second import takes none of them again.
CREATE TABLE catalog_import (
    kind       text COLLATE "C" NOT NULL,
    -- Address of the store that the rows came from, without a password.
    source     text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    row_id     text COLLATE "C" NOT NULL,
    outcome    text COLLATE "C" NOT NULL,
    job_id     text COLLATE "C",
    PRIMARY KEY (kind, source, name, row_id)
);

-- Work trees of git repositories that were indexed, and the tenants of their documents.
CREATE TABLE catalog_project (
    root       text COLLATE "C" NOT NULL PRIMARY KEY,
    tenant_id  text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    -- Normalised, without user and password; empty: none.
    remote     text COLLATE "C" NOT NULL
);
CREATE INDEX idx_catalog_project_tenant ON catalog_project (tenant_id);
