-- The catalog. Documents, pages and chunks have the specification's UUIDs, and beside each a number (key) that the
-- rest of the program knows them by and in whose order tasks are claimed: by UUID a batch of tasks would touch a page
-- of the table each. Rows are narrow where they change and wide where they do not, as in SQLite.
-- Names, paths and hashes compare by their bytes (COLLATE "C"), as they do on every other engine.

CREATE TYPE task_status AS ENUM ('pending', 'processing', 'completed', 'failed', 'skipped');

-- Numbers of rows; a sequence is never held by anybody.
CREATE SEQUENCE catalog_row AS bigint;

-- Numbers of changes are held from the change to its commit, so that whoever sees one has seen all before it.
CREATE TABLE catalog_sequence (
    name   text   NOT NULL PRIMARY KEY,
    value  bigint NOT NULL
) WITH (fillfactor = 10);
INSERT INTO catalog_sequence VALUES ('change', 0), ('forgotten', 0);

CREATE TABLE catalog_space (
    id         smallint NOT NULL PRIMARY KEY CHECK (id BETWEEN 1 AND 255),
    name       text     COLLATE "C" NOT NULL UNIQUE,
    dimension  integer  CHECK (dimension > 0)
);

CREATE TABLE sources (
    key                   bigint      NOT NULL PRIMARY KEY DEFAULT nextval('catalog_row'),
    id                    text        COLLATE "C" NOT NULL UNIQUE,
    tenant_id             text        COLLATE "C" NOT NULL,
    collection            text        COLLATE "C" NOT NULL,
    branch                text        COLLATE "C" NOT NULL DEFAULT 'main',
    path                  text        COLLATE "C" NOT NULL,
    -- Sources of several branches that share texts: the key of the first of them, even when that is gone.
    family_key            bigint      NOT NULL DEFAULT nextval('catalog_row'),
    -- What search sees; set by one update. The columns after it describe that generation.
    published_id          bigint,
    space_id              smallint,
    partial               boolean     NOT NULL DEFAULT false,
    size                  bigint      NOT NULL DEFAULT 0,
    mtime_ns              bigint      NOT NULL DEFAULT 0,
    page_count            integer     NOT NULL DEFAULT 0,
    chunk_count           integer     NOT NULL DEFAULT 0,
    content_hash          text        COLLATE "C" NOT NULL DEFAULT '',
    ocr_fingerprint       text        COLLATE "C" NOT NULL DEFAULT '',
    vector_fingerprint    text        COLLATE "C" NOT NULL DEFAULT '',
    graphrag_fingerprint  text        COLLATE "C" NOT NULL DEFAULT '',
    asked_at              timestamptz,
    read_at               timestamptz,
    published_at          timestamptz,
    building_id           bigint,
    -- Number of the last change of what can be found of it.
    change_seq            bigint      NOT NULL DEFAULT 0,
    created_at            timestamptz NOT NULL DEFAULT now(),
    updated_at            timestamptz NOT NULL DEFAULT now(),
    file_type             text        COLLATE "C" NOT NULL DEFAULT '',
    title                 text        NOT NULL DEFAULT '',
    tags                  text        NOT NULL DEFAULT '[]',
    metadata              text        NOT NULL DEFAULT '{}',
    -- What the document states about itself, and the same as filters compare it: catalog/rules/properties.py.
    properties            text        NOT NULL DEFAULT '{}',
    CHECK (published_id IS NULL OR (asked_at IS NOT NULL AND read_at IS NOT NULL))
);
CREATE UNIQUE INDEX idx_sources_path ON sources (tenant_id, collection, branch, path);
CREATE INDEX idx_sources_change ON sources (tenant_id, change_seq);
CREATE INDEX idx_sources_family ON sources (family_key);
-- Lists of documents, page by page.
CREATE INDEX idx_sources_listed ON sources (tenant_id, id);

-- One generation of a source.
CREATE TABLE documents (
    id                     uuid        NOT NULL PRIMARY KEY DEFAULT gen_random_uuid(),
    key                    bigint      NOT NULL UNIQUE DEFAULT nextval('catalog_row'),
    -- Looked at when the transaction ends: a source is written last.
    source_key             bigint      NOT NULL REFERENCES sources (key) ON DELETE CASCADE
                                       DEFERRABLE INITIALLY DEFERRED,
    filename               text        NOT NULL,
    state                  text        COLLATE "C" NOT NULL CHECK (state IN ('building', 'published', 'dropped')),
    ocr_status             task_status NOT NULL DEFAULT 'pending',
    vector_index_status    task_status NOT NULL DEFAULT 'pending',
    graphrag_index_status  task_status NOT NULL DEFAULT 'pending',
    ocr_started_at         timestamptz,
    ocr_completed_at       timestamptz,
    ocr_error              text,
    vector_started_at      timestamptz,
    vector_completed_at    timestamptz,
    vector_error           text,
    graphrag_started_at    timestamptz,
    graphrag_completed_at  timestamptz,
    graphrag_error         text,
    current_worker_id      varchar(100),
    last_heartbeat         timestamptz,
    -- How many of its pages stand where, per phase; what is in none of them is skipped.
    ocr_processing         integer     NOT NULL DEFAULT 0 CHECK (ocr_processing >= 0),
    ocr_waiting            integer     NOT NULL DEFAULT 0 CHECK (ocr_waiting >= 0),
    ocr_failed             integer     NOT NULL DEFAULT 0 CHECK (ocr_failed >= 0),
    ocr_completed          integer     NOT NULL DEFAULT 0 CHECK (ocr_completed >= 0),
    vector_processing      integer     NOT NULL DEFAULT 0 CHECK (vector_processing >= 0),
    vector_waiting         integer     NOT NULL DEFAULT 0 CHECK (vector_waiting >= 0),
    vector_failed          integer     NOT NULL DEFAULT 0 CHECK (vector_failed >= 0),
    vector_completed       integer     NOT NULL DEFAULT 0 CHECK (vector_completed >= 0),
    graphrag_processing    integer     NOT NULL DEFAULT 0 CHECK (graphrag_processing >= 0),
    graphrag_waiting       integer     NOT NULL DEFAULT 0 CHECK (graphrag_waiting >= 0),
    graphrag_failed        integer     NOT NULL DEFAULT 0 CHECK (graphrag_failed >= 0),
    graphrag_completed     integer     NOT NULL DEFAULT 0 CHECK (graphrag_completed >= 0),
    page_count             integer     NOT NULL DEFAULT 0,
    chunk_count            integer     NOT NULL DEFAULT 0,
    -- Chunks, for statistics that need not read them.
    vector_chunks          integer     NOT NULL DEFAULT 0 CHECK (vector_chunks >= 0),
    graphrag_chunks        integer     NOT NULL DEFAULT 0 CHECK (graphrag_chunks >= 0),
    -- Pages and chunks that failed for good in ocr or vector, and how many of them not by their content.
    failed_count           integer     NOT NULL DEFAULT 0 CHECK (failed_count >= 0),
    outage_count           integer     NOT NULL DEFAULT 0 CHECK (outage_count >= 0),
    -- Pages and chunks still to be written of a large generation: it is written by several transactions.
    unwritten              integer     NOT NULL DEFAULT 0 CHECK (unwritten >= 0),
    space_id               smallint    REFERENCES catalog_space (id),
    gate                   text        COLLATE "C" NOT NULL DEFAULT 'page' CHECK (gate IN ('page', 'document')),
    priority               integer     NOT NULL DEFAULT 5 CHECK (priority BETWEEN 0 AND 10),
    max_retries            integer     NOT NULL DEFAULT 3 CHECK (max_retries >= 0),
    -- The document's first turn in the lanes of chunks, and how many of its tasks have one.
    turn                   integer     NOT NULL DEFAULT 0,
    given                  integer     NOT NULL DEFAULT 0,
    content_hash           text        COLLATE "C" NOT NULL,
    ocr_fingerprint        text        COLLATE "C" NOT NULL DEFAULT '',
    vector_fingerprint     text        COLLATE "C" NOT NULL DEFAULT '',
    graphrag_fingerprint   text        COLLATE "C" NOT NULL DEFAULT '',
    job_id                 text        COLLATE "C",
    asked_at               timestamptz NOT NULL,
    read_at                timestamptz NOT NULL,
    published_at           timestamptz,
    created_at             timestamptz NOT NULL DEFAULT now(),
    updated_at             timestamptz NOT NULL DEFAULT now(),
    note                   text,
    -- What its source will say of itself once this is published; NULL when it does.
    source_json            text,
    -- Of a generation not whole when written: its file, and the parser and limits it was read with. What failed in
    -- it by its content is not read again until one of them changes.
    size                   bigint,
    mtime_ns               bigint,
    read_with              text        COLLATE "C"
) WITH (fillfactor = 70);
CREATE INDEX idx_documents_source ON documents (source_key);
CREATE UNIQUE INDEX idx_documents_building ON documents (source_key) WHERE state = 'building';
CREATE INDEX idx_documents_unwritten ON documents (updated_at) WHERE unwritten > 0;
CREATE INDEX idx_documents_space ON documents (space_id);

CREATE TABLE task_queue_page (
    id                       uuid         NOT NULL PRIMARY KEY DEFAULT gen_random_uuid(),
    key                      bigint       NOT NULL UNIQUE DEFAULT nextval('catalog_row'),
    document_id              uuid         NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    page_number              integer      NOT NULL,
    page_file_path           varchar(1000),
    ocr_status               task_status  NOT NULL DEFAULT 'pending',
    ocr_worker_id            varchar(100),
    ocr_started_at           timestamptz,
    ocr_completed_at         timestamptz,
    ocr_error                text,
    ocr_retry_count          integer      NOT NULL DEFAULT 0,
    ocr_last_heartbeat       timestamptz,
    vector_status            task_status  NOT NULL DEFAULT 'pending',
    vector_worker_id         varchar(100),
    vector_started_at        timestamptz,
    vector_completed_at      timestamptz,
    vector_error             text,
    vector_retry_count       integer      NOT NULL DEFAULT 0,
    vector_last_heartbeat    timestamptz,
    graphrag_status          task_status  NOT NULL DEFAULT 'pending',
    graphrag_worker_id       varchar(100),
    graphrag_started_at      timestamptz,
    graphrag_completed_at    timestamptz,
    graphrag_error           text,
    graphrag_retry_count     integer      NOT NULL DEFAULT 0,
    graphrag_last_heartbeat  timestamptz,
    chunk_count              integer      NOT NULL DEFAULT 0,
    max_retries              integer      NOT NULL DEFAULT 3,
    created_at               timestamptz  NOT NULL DEFAULT now(),
    updated_at               timestamptz  NOT NULL DEFAULT now(),
    priority                 integer      NOT NULL DEFAULT 5,
    turn                     integer      NOT NULL DEFAULT 0,
    ocr_claim_number         integer      NOT NULL DEFAULT 0,
    ocr_retry_at             timestamptz,
    ocr_suspect              boolean      NOT NULL DEFAULT false,
    -- Looked at: a picture, whose text must be recognized. Only some processes do that.
    needs_ocr                boolean      NOT NULL DEFAULT false,
    -- How many of its chunks stand where; what is in none of them is skipped.
    vector_processing        integer      NOT NULL DEFAULT 0 CHECK (vector_processing >= 0),
    vector_waiting           integer      NOT NULL DEFAULT 0 CHECK (vector_waiting >= 0),
    vector_failed            integer      NOT NULL DEFAULT 0 CHECK (vector_failed >= 0),
    vector_completed         integer      NOT NULL DEFAULT 0 CHECK (vector_completed >= 0),
    graphrag_processing      integer      NOT NULL DEFAULT 0 CHECK (graphrag_processing >= 0),
    graphrag_waiting         integer      NOT NULL DEFAULT 0 CHECK (graphrag_waiting >= 0),
    graphrag_failed          integer      NOT NULL DEFAULT 0 CHECK (graphrag_failed >= 0),
    graphrag_completed       integer      NOT NULL DEFAULT 0 CHECK (graphrag_completed >= 0),
    CHECK (ocr_retry_count BETWEEN 0 AND max_retries),
    CHECK (ocr_retry_at IS NULL OR (ocr_status = 'failed' AND ocr_retry_count < max_retries)),
    CHECK (ocr_status <> 'processing' OR ocr_last_heartbeat IS NOT NULL)
) WITH (
    -- Room for the counters to change in place.
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000
);
-- Also the constraint: a page number once a document.
CREATE UNIQUE INDEX idx_tqp_document ON task_queue_page (document_id, page_number);
-- What a claim reads, in the order it reads it; retries that are due stand in an index of their own.
CREATE INDEX idx_tqp_ocr_status ON task_queue_page (needs_ocr, priority DESC, turn, key) WHERE ocr_status = 'pending';
CREATE INDEX idx_tqp_ocr_retry ON task_queue_page (ocr_retry_at) WHERE ocr_retry_at IS NOT NULL;
CREATE INDEX idx_tqp_ocr_failed ON task_queue_page (document_id) WHERE ocr_status = 'failed';
CREATE INDEX idx_tqp_vector_status ON task_queue_page (vector_status)
    WHERE vector_status IN ('pending', 'failed');
CREATE INDEX idx_tqp_graphrag_status ON task_queue_page (graphrag_status)
    WHERE graphrag_status IN ('pending', 'failed');
CREATE INDEX idx_tqp_ocr_heartbeat ON task_queue_page (ocr_last_heartbeat) WHERE ocr_status = 'processing';
CREATE INDEX idx_tqp_vector_heartbeat ON task_queue_page (vector_last_heartbeat)
    WHERE vector_status = 'processing';
CREATE INDEX idx_tqp_graphrag_heartbeat ON task_queue_page (graphrag_last_heartbeat)
    WHERE graphrag_status = 'processing';

CREATE TABLE task_queue_chunk (
    id                       uuid         NOT NULL PRIMARY KEY DEFAULT gen_random_uuid(),
    key                      bigint       NOT NULL UNIQUE DEFAULT nextval('catalog_row'),
    page_id                  uuid         NOT NULL REFERENCES task_queue_page (id) ON DELETE CASCADE,
    document_id              uuid         NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    chunk_id                 varchar(64)  NOT NULL,
    chunk_index              integer      NOT NULL,
    chunk_content_hash       varchar(64)  NOT NULL,
    vector_status            task_status  NOT NULL DEFAULT 'pending',
    vector_worker_id         varchar(100),
    vector_started_at        timestamptz,
    vector_completed_at      timestamptz,
    vector_error             text,
    vector_retry_count       integer      NOT NULL DEFAULT 0,
    vector_last_heartbeat    timestamptz,
    graphrag_status          task_status  NOT NULL DEFAULT 'pending',
    graphrag_worker_id       varchar(100),
    graphrag_started_at      timestamptz,
    graphrag_completed_at    timestamptz,
    graphrag_error           text,
    graphrag_retry_count     integer      NOT NULL DEFAULT 0,
    graphrag_last_heartbeat  timestamptz,
    entities_extracted       integer      NOT NULL DEFAULT 0,
    relationships_extracted  integer      NOT NULL DEFAULT 0,
    max_retries              integer      NOT NULL DEFAULT 3,
    created_at               timestamptz  NOT NULL DEFAULT now(),
    updated_at               timestamptz  NOT NULL DEFAULT now(),
    content_id               bigint       NOT NULL,
    -- The first 60 bits of the hash: short enough to stand in an index.
    text_key                 bigint       NOT NULL,
    priority                 integer      NOT NULL DEFAULT 5,
    turn                     integer      NOT NULL DEFAULT 0,
    vector_claim_number      integer      NOT NULL DEFAULT 0,
    vector_retry_at          timestamptz,
    vector_suspect           boolean      NOT NULL DEFAULT false,
    -- Why its next phase cannot be claimed now: the document's gate, or deletes of its source still to be done.
    vector_held              text         COLLATE "C" CHECK (vector_held IN ('gate', 'outbox')),
    graphrag_claim_number    integer      NOT NULL DEFAULT 0,
    graphrag_retry_at        timestamptz,
    graphrag_suspect         boolean      NOT NULL DEFAULT false,
    graphrag_held            text         COLLATE "C" CHECK (graphrag_held = 'gate'),
    start_char               integer      NOT NULL DEFAULT 0,
    end_char                 integer      NOT NULL DEFAULT 0,
    first_line               integer,
    last_line                integer,
    heading_path             text         NOT NULL DEFAULT '',
    symbols                  text         NOT NULL DEFAULT '',
    CHECK (vector_retry_count BETWEEN 0 AND max_retries),
    CHECK (vector_retry_at IS NULL OR (vector_status = 'failed' AND vector_retry_count < max_retries)),
    CHECK (vector_status <> 'processing' OR vector_last_heartbeat IS NOT NULL),
    CHECK (graphrag_retry_count BETWEEN 0 AND max_retries),
    CHECK (graphrag_retry_at IS NULL OR (graphrag_status = 'failed' AND graphrag_retry_count < max_retries)),
    CHECK (graphrag_status <> 'processing' OR graphrag_last_heartbeat IS NOT NULL)
) WITH (
    -- The claim indexes must not fill up with dead entries between two visits.
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000
);
-- Also the constraint: a place in a page once.
CREATE UNIQUE INDEX idx_tqc_page ON task_queue_chunk (page_id, chunk_index);
-- Also answers which texts a generation has, which every hit of a search asks and every new generation.
CREATE INDEX idx_tqc_document ON task_queue_chunk (document_id, text_key, content_id);
CREATE INDEX idx_tqc_vector_status ON task_queue_chunk (priority DESC, turn, key)
    WHERE vector_status = 'pending' AND vector_held IS NULL;
CREATE INDEX idx_tqc_vector_retry ON task_queue_chunk (vector_retry_at) WHERE vector_retry_at IS NOT NULL;
CREATE INDEX idx_tqc_vector_failed ON task_queue_chunk (document_id) WHERE vector_status = 'failed';
CREATE INDEX idx_tqc_vector_held ON task_queue_chunk (document_id) WHERE vector_held IS NOT NULL;
CREATE INDEX idx_tqc_graphrag_status ON task_queue_chunk (priority DESC, turn, key)
    WHERE graphrag_status = 'pending' AND vector_status = 'completed' AND graphrag_held IS NULL;
CREATE INDEX idx_tqc_graphrag_retry ON task_queue_chunk (graphrag_retry_at) WHERE graphrag_retry_at IS NOT NULL;
CREATE INDEX idx_tqc_graphrag_failed ON task_queue_chunk (document_id) WHERE graphrag_status = 'failed';
CREATE INDEX idx_tqc_vector_heartbeat ON task_queue_chunk (vector_last_heartbeat)
    WHERE vector_status = 'processing';
CREATE INDEX idx_tqc_graphrag_heartbeat ON task_queue_chunk (graphrag_last_heartbeat)
    WHERE graphrag_status = 'processing';

-- The text of a chunk, once for all generations of a family of sources that have it.
CREATE TABLE catalog_content (
    id          bigint NOT NULL PRIMARY KEY,
    family_key  bigint NOT NULL,
    text_key    bigint NOT NULL,
    text        text   NOT NULL
);

-- The words of a text, apart from it: what is ranked is then read without the texts, and never unpacked.
-- size counts its words with repetitions, as BM25 needs it. English without its stop words: a question's are left out before it is asked, and inside quotes they count.
CREATE TEXT SEARCH DICTIONARY catalog_stem (TEMPLATE = pg_catalog.snowball, LANGUAGE = english);
CREATE TEXT SEARCH CONFIGURATION catalog_english (COPY = pg_catalog.english);
ALTER TEXT SEARCH CONFIGURATION catalog_english ALTER MAPPING REPLACE english_stem WITH catalog_stem;
CREATE TABLE catalog_keyword (
    content_id  bigint   NOT NULL PRIMARY KEY,
    words       tsvector NOT NULL,
    size        integer  NOT NULL DEFAULT 0
) WITH (toast_tuple_target = 8160);
ALTER TABLE catalog_keyword ALTER COLUMN words SET STORAGE EXTERNAL;
CREATE INDEX idx_catalog_keyword ON catalog_keyword USING gin (words);

-- float32, little endian, which no compression makes smaller.
CREATE TABLE catalog_vector (
    content_id  bigint   NOT NULL,
    space_id    smallint NOT NULL,
    vector      bytea    NOT NULL,
    PRIMARY KEY (content_id, space_id)
) WITH (toast_tuple_target = 8160);
ALTER TABLE catalog_vector ALTER COLUMN vector SET STORAGE EXTERNAL;

-- The Markdown of pages whose text was recognized, and of pages with warnings.
CREATE TABLE catalog_page_text (
    page_key    bigint NOT NULL PRIMARY KEY REFERENCES task_queue_page (key) ON DELETE CASCADE,
    text        text   NOT NULL,
    engine      text   NOT NULL DEFAULT '',
    confidence  float8 CHECK (confidence BETWEEN 0 AND 100),
    warnings    text   NOT NULL DEFAULT '[]'
);

CREATE TABLE catalog_vector_cache (
    tenant_id  text        COLLATE "C" NOT NULL,
    space_id   smallint    NOT NULL REFERENCES catalog_space (id),
    text_hash  text        COLLATE "C" NOT NULL,
    used_at    timestamptz NOT NULL,
    vector     bytea       NOT NULL
) WITH (toast_tuple_target = 8160);
ALTER TABLE catalog_vector_cache ALTER COLUMN vector SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX idx_catalog_vector_cache_text ON catalog_vector_cache (tenant_id, space_id, text_hash);
CREATE INDEX idx_catalog_vector_cache_used ON catalog_vector_cache (used_at);
CREATE INDEX idx_catalog_vector_cache_space ON catalog_vector_cache (space_id);

CREATE TABLE catalog_outbox (
    id           bigint      NOT NULL PRIMARY KEY,
    kind         text        COLLATE "C" NOT NULL CHECK (kind IN ('job', 'leftover')),
    document_key bigint      NOT NULL,
    source_key   bigint      NOT NULL,
    job_id       text        COLLATE "C",
    created_at   timestamptz NOT NULL
);
CREATE UNIQUE INDEX idx_catalog_outbox_leftover ON catalog_outbox (source_key, document_key)
    WHERE kind = 'leftover';

-- Absent scopes are '': a delete of the whole tenant, collection or branch.
CREATE TABLE catalog_tombstone (
    tenant_id   text        COLLATE "C" NOT NULL,
    collection  text        COLLATE "C" NOT NULL,
    branch      text        COLLATE "C" NOT NULL,
    path        text        COLLATE "C" NOT NULL,
    source_id   text        COLLATE "C" NOT NULL,
    asked_at    timestamptz NOT NULL,
    reason      text        NOT NULL,
    created_at  timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, collection, branch, path, source_id)
);

-- Sources whose row is gone, for caches that still know them.
CREATE TABLE catalog_gone (
    change_seq  bigint      NOT NULL PRIMARY KEY,
    tenant_id   text        COLLATE "C" NOT NULL,
    family_key  bigint      NOT NULL,
    gone_at     timestamptz NOT NULL
);

CREATE TABLE catalog_ledger (
    tenant_id   text        COLLATE "C" NOT NULL,
    collection  text        COLLATE "C" NOT NULL,
    branch      text        COLLATE "C" NOT NULL,
    path        text        COLLATE "C" NOT NULL,
    kind        text        COLLATE "C" NOT NULL CHECK (kind IN ('skipped', 'failed')),
    rule        text        NOT NULL,
    cause       text        NOT NULL,
    remedy      text        NOT NULL,
    job_id      text        COLLATE "C",
    at          timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, collection, branch, path)
);

-- For lists of failures: they read these few and none of the paths that a rule left out.
CREATE INDEX idx_ledger_failed ON catalog_ledger (tenant_id, collection, branch, path) WHERE kind = 'failed';

CREATE TABLE catalog_fingerprint (
    phase        text COLLATE "C" NOT NULL PRIMARY KEY CHECK (phase IN ('ocr', 'vector', 'graphrag')),
    fingerprint  text NOT NULL
);

-- A file that turns up at another path is looked for by its size and time before it is read.
CREATE INDEX idx_sources_size ON sources (tenant_id, size, mtime_ns);

-- Whether anything was deleted since a time is asked at every store, and the answer is nearly always no.
CREATE INDEX idx_catalog_tombstone_asked ON catalog_tombstone (tenant_id, asked_at);
