-- Stores outside the catalog that hold a copy of a part of it; addresses are without passwords.
CREATE TABLE catalog_outside_store (
    store    TEXT    NOT NULL PRIMARY KEY CHECK (store = 'vector' OR store = 'graph'),
    address  TEXT    NOT NULL,
    -- Has all that is published.
    filled   INTEGER NOT NULL CHECK (filled IN (0, 1)),
    -- Texts up to this number are copied, until it is filled; the count of copies is for people.
    copied_to    INTEGER NOT NULL DEFAULT 0,
    copied       INTEGER NOT NULL DEFAULT 0,
    -- Grows whenever a worker begins to fill it, or has to begin again: the fence of its writes here.
    fill_number  INTEGER NOT NULL DEFAULT 0,
    fill_until   TEXT
) WITHOUT ROWID;

-- Texts to be removed from these stores, written by the transaction that removed them here.
CREATE TABLE catalog_removal (
    id          INTEGER NOT NULL PRIMARY KEY,
    store       TEXT    NOT NULL,
    tenant_id   TEXT    NOT NULL,
    content_id  INTEGER NOT NULL,
    -- The vector space; empty in other stores.
    space       TEXT    NOT NULL,
    due_at      TEXT    NOT NULL
);
CREATE INDEX idx_catalog_removal_due ON catalog_removal (store, due_at, id);
CREATE INDEX idx_catalog_removal_text ON catalog_removal (store, content_id);
