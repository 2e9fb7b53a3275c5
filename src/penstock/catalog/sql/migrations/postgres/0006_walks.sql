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
