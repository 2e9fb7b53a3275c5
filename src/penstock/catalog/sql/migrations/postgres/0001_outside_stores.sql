-- Stores outside the catalog that hold a copy of a part of it; addresses are without passwords.
CREATE TABLE catalog_outside_store (
    store    text    COLLATE "C" NOT NULL PRIMARY KEY CHECK (store IN ('vector', 'graph')),
    address  text    COLLATE "C" NOT NULL,
    -- Has all that is published.
    filled   boolean NOT NULL,
    -- Texts up to this number are copied, until it is filled; the count of copies is for people.
    copied_to    bigint NOT NULL DEFAULT 0,
    copied       bigint NOT NULL DEFAULT 0,
    -- Grows whenever a worker begins to fill it, or has to begin again: the fence of its writes here.
    fill_number  bigint NOT NULL DEFAULT 0,
    fill_until   timestamptz
);

-- Texts to be removed from these stores, written by the transaction that removed them here.
CREATE TABLE catalog_removal (
    id          bigint      NOT NULL PRIMARY KEY,
    store       text        COLLATE "C" NOT NULL,
    tenant_id   text        COLLATE "C" NOT NULL,
    content_id  bigint      NOT NULL,
    -- The vector space; empty in other stores.
    space       text        COLLATE "C" NOT NULL,
    due_at      timestamptz NOT NULL
);
CREATE INDEX idx_catalog_removal_due ON catalog_removal (store, due_at, id);
CREATE INDEX idx_catalog_removal_text ON catalog_removal (store, content_id);
