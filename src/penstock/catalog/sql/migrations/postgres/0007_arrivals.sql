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
