-- What was found in texts. Entities are known by tenant, kind and normalised name, and go with their last mention.
CREATE TABLE catalog_entity (
    id         bigint NOT NULL PRIMARY KEY,
    tenant_id  text   COLLATE "C" NOT NULL,
    kind       text   COLLATE "C" NOT NULL,
    name_key   text   COLLATE "C" NOT NULL,
    -- The name people ask for: the last part of a dotted name or a path.
    short_key  text   COLLATE "C" NOT NULL,
    name       text   COLLATE "C" NOT NULL
);
CREATE UNIQUE INDEX idx_catalog_entity_name ON catalog_entity (tenant_id, name_key, kind);
CREATE INDEX idx_catalog_entity_short ON catalog_entity (tenant_id, short_key);

-- Mentions and relations belong to a text, as its vector does: generations that share the text share them.
CREATE TABLE catalog_mention (
    content_id   bigint  NOT NULL,
    entity_id    bigint  NOT NULL,
    -- 0: the entity is only the end of a relation here.
    occurrences  integer NOT NULL CHECK (occurrences >= 0),
    PRIMARY KEY (content_id, entity_id)
);
CREATE INDEX idx_catalog_mention_entity ON catalog_mention (entity_id);

CREATE TABLE catalog_relation (
    content_id  bigint           NOT NULL,
    source_id   bigint           NOT NULL,
    target_id   bigint           NOT NULL,
    kind        text             COLLATE "C" NOT NULL,
    weight      double precision NOT NULL,
    PRIMARY KEY (content_id, source_id, target_id, kind)
);
CREATE INDEX idx_catalog_relation_source ON catalog_relation (source_id);
CREATE INDEX idx_catalog_relation_target ON catalog_relation (target_id);
