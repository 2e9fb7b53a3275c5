-- The catalog. Rows are narrow where they change and wide where they do not: text, vectors and keyword entries
-- stand apart from the status rows, and generations of a source share them for chunks that did not change.
-- Statuses are OR chains: SQLite builds a temporary b-tree for an IN list of three or more constants.

-- Numbers are handed out here and never again, so that a late worker's (row, claim number) cannot fit another
-- row: SQLite gives the largest rowid again after its row was deleted.
CREATE TABLE catalog_sequence (
    name   TEXT    NOT NULL PRIMARY KEY,
    value  INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO catalog_sequence VALUES ('row', 0), ('change', 0), ('forgotten', 0);

CREATE TABLE catalog_space (
    id         INTEGER NOT NULL PRIMARY KEY CHECK (id BETWEEN 1 AND 255),
    name       TEXT    NOT NULL UNIQUE,
    dimension  INTEGER CHECK (dimension > 0)
);

CREATE TABLE sources (
    key                   INTEGER NOT NULL PRIMARY KEY,
    id                    TEXT    NOT NULL UNIQUE,
    tenant_id             TEXT    NOT NULL,
    collection            TEXT    NOT NULL,
    branch                TEXT    NOT NULL DEFAULT 'main',
    path                  TEXT    NOT NULL,
    -- Sources of several branches that share texts: the key of the first of them, even when that is gone.
    family_key            INTEGER NOT NULL,
    -- What search sees; set by one update. The columns after it describe that generation.
    published_id          INTEGER,
    space_id              INTEGER,
    partial               INTEGER NOT NULL DEFAULT 0 CHECK (partial IN (0, 1)),
    size                  INTEGER NOT NULL DEFAULT 0,
    mtime_ns              INTEGER NOT NULL DEFAULT 0,
    page_count            INTEGER NOT NULL DEFAULT 0,
    chunk_count           INTEGER NOT NULL DEFAULT 0,
    content_hash          TEXT    NOT NULL DEFAULT '',
    ocr_fingerprint       TEXT    NOT NULL DEFAULT '',
    vector_fingerprint    TEXT    NOT NULL DEFAULT '',
    graphrag_fingerprint  TEXT    NOT NULL DEFAULT '',
    asked_at              TEXT,
    read_at               TEXT,
    published_at          TEXT,
    building_id           INTEGER,
    -- Number of the last change of what can be found of it.
    change_seq            INTEGER NOT NULL DEFAULT 0,
    created_at            TEXT    NOT NULL,
    updated_at            TEXT    NOT NULL,
    file_type             TEXT    NOT NULL DEFAULT '',
    title                 TEXT    NOT NULL DEFAULT '',
    tags                  TEXT    NOT NULL DEFAULT '[]',
    metadata              TEXT    NOT NULL DEFAULT '{}',
    -- What the document states about itself, and the same as filters compare it: catalog/rules/properties.py.
    properties            TEXT    NOT NULL DEFAULT '{}',
    CHECK (published_id IS NULL OR (asked_at IS NOT NULL AND read_at IS NOT NULL))
);
CREATE UNIQUE INDEX idx_sources_path ON sources (tenant_id, collection, branch, path);
CREATE INDEX idx_sources_change ON sources (tenant_id, change_seq);
CREATE INDEX idx_sources_family ON sources (family_key);
-- Lists of documents, page by page.
CREATE INDEX idx_sources_listed ON sources (tenant_id, id);

-- One generation of a source.
CREATE TABLE documents (
    id                     INTEGER NOT NULL PRIMARY KEY,
    source_key             INTEGER NOT NULL REFERENCES sources (key) ON DELETE CASCADE,
    filename               TEXT    NOT NULL,
    state                  TEXT    NOT NULL CHECK (state = 'building' OR state = 'published' OR state = 'dropped'),
    ocr_status             TEXT    NOT NULL DEFAULT 'pending' CHECK (
        ocr_status = 'pending' OR ocr_status = 'processing' OR ocr_status = 'completed'
        OR ocr_status = 'failed' OR ocr_status = 'skipped'),
    vector_index_status    TEXT    NOT NULL DEFAULT 'pending' CHECK (
        vector_index_status = 'pending' OR vector_index_status = 'processing'
        OR vector_index_status = 'completed' OR vector_index_status = 'failed'
        OR vector_index_status = 'skipped'),
    graphrag_index_status  TEXT    NOT NULL DEFAULT 'pending' CHECK (
        graphrag_index_status = 'pending' OR graphrag_index_status = 'processing'
        OR graphrag_index_status = 'completed' OR graphrag_index_status = 'failed'
        OR graphrag_index_status = 'skipped'),
    ocr_started_at         TEXT,
    ocr_completed_at       TEXT,
    ocr_error              TEXT,
    vector_started_at      TEXT,
    vector_completed_at    TEXT,
    vector_error           TEXT,
    graphrag_started_at    TEXT,
    graphrag_completed_at  TEXT,
    graphrag_error         TEXT,
    current_worker_id      TEXT,
    last_heartbeat         TEXT,
    -- How many of its pages stand where, per phase; what is in none of them is skipped.
    ocr_processing         INTEGER NOT NULL DEFAULT 0 CHECK (ocr_processing >= 0),
    ocr_waiting            INTEGER NOT NULL DEFAULT 0 CHECK (ocr_waiting >= 0),
    ocr_failed             INTEGER NOT NULL DEFAULT 0 CHECK (ocr_failed >= 0),
    ocr_completed          INTEGER NOT NULL DEFAULT 0 CHECK (ocr_completed >= 0),
    vector_processing      INTEGER NOT NULL DEFAULT 0 CHECK (vector_processing >= 0),
    vector_waiting         INTEGER NOT NULL DEFAULT 0 CHECK (vector_waiting >= 0),
    vector_failed          INTEGER NOT NULL DEFAULT 0 CHECK (vector_failed >= 0),
    vector_completed       INTEGER NOT NULL DEFAULT 0 CHECK (vector_completed >= 0),
    graphrag_processing    INTEGER NOT NULL DEFAULT 0 CHECK (graphrag_processing >= 0),
    graphrag_waiting       INTEGER NOT NULL DEFAULT 0 CHECK (graphrag_waiting >= 0),
    graphrag_failed        INTEGER NOT NULL DEFAULT 0 CHECK (graphrag_failed >= 0),
    graphrag_completed     INTEGER NOT NULL DEFAULT 0 CHECK (graphrag_completed >= 0),
    page_count             INTEGER NOT NULL DEFAULT 0,
    chunk_count            INTEGER NOT NULL DEFAULT 0,
    -- Chunks, for statistics that need not read them.
    vector_chunks          INTEGER NOT NULL DEFAULT 0 CHECK (vector_chunks >= 0),
    graphrag_chunks        INTEGER NOT NULL DEFAULT 0 CHECK (graphrag_chunks >= 0),
    -- Pages and chunks that failed for good in ocr or vector, and how many of them not by their content.
    failed_count           INTEGER NOT NULL DEFAULT 0 CHECK (failed_count >= 0),
    outage_count           INTEGER NOT NULL DEFAULT 0 CHECK (outage_count >= 0),
    -- Pages and chunks still to be written of a large generation: it is written by several transactions.
    unwritten              INTEGER NOT NULL DEFAULT 0 CHECK (unwritten >= 0),
    space_id               INTEGER,
    gate                   TEXT    NOT NULL DEFAULT 'page' CHECK (gate = 'page' OR gate = 'document'),
    priority               INTEGER NOT NULL DEFAULT 5 CHECK (priority BETWEEN 0 AND 10),
    max_retries            INTEGER NOT NULL DEFAULT 3 CHECK (max_retries >= 0),
    -- The document's first turn in the lanes of chunks, and how many of its tasks have one.
    turn                   INTEGER NOT NULL DEFAULT 0,
    given                  INTEGER NOT NULL DEFAULT 0,
    content_hash           TEXT    NOT NULL,
    ocr_fingerprint        TEXT    NOT NULL DEFAULT '',
    vector_fingerprint     TEXT    NOT NULL DEFAULT '',
    graphrag_fingerprint   TEXT    NOT NULL DEFAULT '',
    job_id                 TEXT,
    asked_at               TEXT    NOT NULL,
    read_at                TEXT    NOT NULL,
    published_at           TEXT,
    created_at             TEXT    NOT NULL,
    updated_at             TEXT    NOT NULL,
    note                   TEXT,
    -- What its source will say of itself once this is published; NULL when it does.
    source_json            TEXT,
    -- Of a generation not whole when written: its file, and the parser and limits it was read with. What failed in
    -- it by its content is not read again until one of them changes.
    size                   INTEGER,
    mtime_ns               INTEGER,
    read_with              TEXT
);
CREATE INDEX idx_documents_source ON documents (source_key);
CREATE UNIQUE INDEX idx_documents_building ON documents (source_key) WHERE state = 'building';
CREATE INDEX idx_documents_unwritten ON documents (updated_at) WHERE unwritten > 0;

CREATE TABLE task_queue_page (
    id                       INTEGER NOT NULL PRIMARY KEY,
    document_id              INTEGER NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    page_number              INTEGER NOT NULL,
    page_file_path           TEXT,
    ocr_status               TEXT    NOT NULL DEFAULT 'pending' CHECK (
        ocr_status = 'pending' OR ocr_status = 'processing' OR ocr_status = 'completed'
        OR ocr_status = 'failed' OR ocr_status = 'skipped'),
    ocr_worker_id            TEXT,
    ocr_started_at           TEXT,
    ocr_completed_at         TEXT,
    ocr_error                TEXT,
    ocr_retry_count          INTEGER NOT NULL DEFAULT 0,
    ocr_last_heartbeat       TEXT,
    vector_status            TEXT    NOT NULL DEFAULT 'pending' CHECK (
        vector_status = 'pending' OR vector_status = 'processing' OR vector_status = 'completed'
        OR vector_status = 'failed' OR vector_status = 'skipped'),
    vector_worker_id         TEXT,
    vector_started_at        TEXT,
    vector_completed_at      TEXT,
    vector_error             TEXT,
    vector_retry_count       INTEGER NOT NULL DEFAULT 0,
    vector_last_heartbeat    TEXT,
    graphrag_status          TEXT    NOT NULL DEFAULT 'pending' CHECK (
        graphrag_status = 'pending' OR graphrag_status = 'processing' OR graphrag_status = 'completed'
        OR graphrag_status = 'failed' OR graphrag_status = 'skipped'),
    graphrag_worker_id       TEXT,
    graphrag_started_at      TEXT,
    graphrag_completed_at    TEXT,
    graphrag_error           TEXT,
    graphrag_retry_count     INTEGER NOT NULL DEFAULT 0,
    graphrag_last_heartbeat  TEXT,
    chunk_count              INTEGER NOT NULL DEFAULT 0,
    max_retries              INTEGER NOT NULL DEFAULT 3,
    created_at               TEXT    NOT NULL,
    updated_at               TEXT    NOT NULL,
    priority                 INTEGER NOT NULL DEFAULT 5,
    turn                     INTEGER NOT NULL DEFAULT 0,
    ocr_claim_number         INTEGER NOT NULL DEFAULT 0,
    ocr_retry_at             TEXT,
    ocr_suspect              INTEGER NOT NULL DEFAULT 0 CHECK (ocr_suspect IN (0, 1)),
    -- Looked at: a picture, whose text must be recognized. Only some processes do that.
    needs_ocr                INTEGER NOT NULL DEFAULT 0 CHECK (needs_ocr IN (0, 1)),
    -- How many of its chunks stand where; what is in none of them is skipped.
    vector_processing        INTEGER NOT NULL DEFAULT 0 CHECK (vector_processing >= 0),
    vector_waiting           INTEGER NOT NULL DEFAULT 0 CHECK (vector_waiting >= 0),
    vector_failed            INTEGER NOT NULL DEFAULT 0 CHECK (vector_failed >= 0),
    vector_completed         INTEGER NOT NULL DEFAULT 0 CHECK (vector_completed >= 0),
    graphrag_processing      INTEGER NOT NULL DEFAULT 0 CHECK (graphrag_processing >= 0),
    graphrag_waiting         INTEGER NOT NULL DEFAULT 0 CHECK (graphrag_waiting >= 0),
    graphrag_failed          INTEGER NOT NULL DEFAULT 0 CHECK (graphrag_failed >= 0),
    graphrag_completed       INTEGER NOT NULL DEFAULT 0 CHECK (graphrag_completed >= 0),
    CHECK (ocr_retry_count BETWEEN 0 AND max_retries),
    CHECK (ocr_retry_at IS NULL OR (ocr_status = 'failed' AND ocr_retry_count < max_retries)),
    CHECK (ocr_status <> 'processing' OR ocr_last_heartbeat IS NOT NULL)
);
-- Also the constraint: a page number once a document.
CREATE UNIQUE INDEX idx_tqp_document ON task_queue_page (document_id, page_number);
-- What a claim reads, in the order it reads it; retries that are due stand in an index of their own.
CREATE INDEX idx_tqp_ocr_status ON task_queue_page (needs_ocr, priority DESC, turn, id) WHERE ocr_status = 'pending';
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
    id                       INTEGER NOT NULL PRIMARY KEY,
    page_id                  INTEGER NOT NULL REFERENCES task_queue_page (id) ON DELETE CASCADE,
    document_id              INTEGER NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    chunk_id                 TEXT    NOT NULL,
    chunk_index              INTEGER NOT NULL,
    chunk_content_hash       TEXT    NOT NULL,
    vector_status            TEXT    NOT NULL DEFAULT 'pending' CHECK (
        vector_status = 'pending' OR vector_status = 'processing' OR vector_status = 'completed'
        OR vector_status = 'failed' OR vector_status = 'skipped'),
    vector_worker_id         TEXT,
    vector_started_at        TEXT,
    vector_completed_at      TEXT,
    vector_error             TEXT,
    vector_retry_count       INTEGER NOT NULL DEFAULT 0,
    vector_last_heartbeat    TEXT,
    graphrag_status          TEXT    NOT NULL DEFAULT 'pending' CHECK (
        graphrag_status = 'pending' OR graphrag_status = 'processing' OR graphrag_status = 'completed'
        OR graphrag_status = 'failed' OR graphrag_status = 'skipped'),
    graphrag_worker_id       TEXT,
    graphrag_started_at      TEXT,
    graphrag_completed_at    TEXT,
    graphrag_error           TEXT,
    graphrag_retry_count     INTEGER NOT NULL DEFAULT 0,
    graphrag_last_heartbeat  TEXT,
    entities_extracted       INTEGER NOT NULL DEFAULT 0,
    relationships_extracted  INTEGER NOT NULL DEFAULT 0,
    max_retries              INTEGER NOT NULL DEFAULT 3,
    created_at               TEXT    NOT NULL,
    updated_at               TEXT    NOT NULL,
    content_id               INTEGER NOT NULL,
    -- The first 60 bits of the hash: short enough to stand in an index.
    text_key                 INTEGER NOT NULL,
    priority                 INTEGER NOT NULL DEFAULT 5,
    turn                     INTEGER NOT NULL DEFAULT 0,
    vector_claim_number      INTEGER NOT NULL DEFAULT 0,
    vector_retry_at          TEXT,
    vector_suspect           INTEGER NOT NULL DEFAULT 0 CHECK (vector_suspect IN (0, 1)),
    -- Why its next phase cannot be claimed now: the document's gate, or deletes of its source still to be done.
    vector_held              TEXT CHECK (vector_held IS NULL OR vector_held = 'gate' OR vector_held = 'outbox'),
    graphrag_claim_number    INTEGER NOT NULL DEFAULT 0,
    graphrag_retry_at        TEXT,
    graphrag_suspect         INTEGER NOT NULL DEFAULT 0 CHECK (graphrag_suspect IN (0, 1)),
    graphrag_held            TEXT CHECK (graphrag_held IS NULL OR graphrag_held = 'gate'),
    start_char               INTEGER NOT NULL DEFAULT 0,
    end_char                 INTEGER NOT NULL DEFAULT 0,
    first_line               INTEGER,
    last_line                INTEGER,
    heading_path             TEXT    NOT NULL DEFAULT '',
    symbols                  TEXT    NOT NULL DEFAULT '',
    CHECK (vector_retry_count BETWEEN 0 AND max_retries),
    CHECK (vector_retry_at IS NULL OR (vector_status = 'failed' AND vector_retry_count < max_retries)),
    CHECK (vector_status <> 'processing' OR vector_last_heartbeat IS NOT NULL),
    CHECK (graphrag_retry_count BETWEEN 0 AND max_retries),
    CHECK (graphrag_retry_at IS NULL OR (graphrag_status = 'failed' AND graphrag_retry_count < max_retries)),
    CHECK (graphrag_status <> 'processing' OR graphrag_last_heartbeat IS NOT NULL)
);
-- Also the constraint: a place in a page once.
CREATE UNIQUE INDEX idx_tqc_page ON task_queue_chunk (page_id, chunk_index);
-- Also answers which texts a generation has, which every hit of a search asks and every new generation.
CREATE INDEX idx_tqc_document ON task_queue_chunk (document_id, text_key, content_id);
CREATE INDEX idx_tqc_vector_status ON task_queue_chunk (priority DESC, turn, id)
    WHERE vector_status = 'pending' AND vector_held IS NULL;
CREATE INDEX idx_tqc_vector_retry ON task_queue_chunk (vector_retry_at) WHERE vector_retry_at IS NOT NULL;
CREATE INDEX idx_tqc_vector_failed ON task_queue_chunk (document_id) WHERE vector_status = 'failed';
CREATE INDEX idx_tqc_vector_held ON task_queue_chunk (document_id) WHERE vector_held IS NOT NULL;
CREATE INDEX idx_tqc_graphrag_status ON task_queue_chunk (priority DESC, turn, id)
    WHERE graphrag_status = 'pending' AND vector_status = 'completed' AND graphrag_held IS NULL;
CREATE INDEX idx_tqc_graphrag_retry ON task_queue_chunk (graphrag_retry_at)
    WHERE graphrag_retry_at IS NOT NULL;
CREATE INDEX idx_tqc_graphrag_failed ON task_queue_chunk (document_id) WHERE graphrag_status = 'failed';
CREATE INDEX idx_tqc_vector_heartbeat ON task_queue_chunk (vector_last_heartbeat)
    WHERE vector_status = 'processing';
CREATE INDEX idx_tqc_graphrag_heartbeat ON task_queue_chunk (graphrag_last_heartbeat)
    WHERE graphrag_status = 'processing';

-- The text of a chunk, once for all generations of a family of sources that have it.
CREATE TABLE catalog_content (
    id          INTEGER NOT NULL PRIMARY KEY,
    family_key  INTEGER NOT NULL,
    text_key    INTEGER NOT NULL,
    text        TEXT    NOT NULL
);
-- keyword_text is a function of catalog/rules/query_terms.py, which each connection of ours has.
CREATE VIEW catalog_keyword_text AS SELECT id, keyword_text(text) AS text FROM catalog_content;
CREATE VIRTUAL TABLE catalog_keyword USING fts5 (
    text, content = 'catalog_keyword_text', content_rowid = 'id', tokenize = 'porter unicode61'
);
-- Segments of a level that are merged: by default 4. A merge is part of a commit, and others wait for it.
INSERT INTO catalog_keyword (catalog_keyword, rank) VALUES ('automerge', 8);
-- id = content id * 256 + space id: one row a text and space, found without an index. float32, little endian.
CREATE TABLE catalog_vector (
    id      INTEGER NOT NULL PRIMARY KEY,
    vector  BLOB    NOT NULL
);
-- The Markdown of pages whose text was recognized, and of pages with warnings.
CREATE TABLE catalog_page_text (
    page_id     INTEGER NOT NULL PRIMARY KEY REFERENCES task_queue_page (id) ON DELETE CASCADE,
    text        TEXT    NOT NULL,
    engine      TEXT    NOT NULL DEFAULT '',
    confidence  REAL    CHECK (confidence BETWEEN 0 AND 100),
    warnings    TEXT    NOT NULL DEFAULT '[]'
);

CREATE TABLE catalog_vector_cache (
    id         INTEGER NOT NULL PRIMARY KEY,
    tenant_id  TEXT    NOT NULL,
    space_id   INTEGER NOT NULL,
    text_hash  TEXT    NOT NULL,
    used_at    TEXT    NOT NULL,
    vector     BLOB    NOT NULL
);
CREATE UNIQUE INDEX idx_catalog_vector_cache_text ON catalog_vector_cache (tenant_id, space_id, text_hash);
CREATE INDEX idx_catalog_vector_cache_used ON catalog_vector_cache (used_at);

CREATE TABLE catalog_outbox (
    id           INTEGER NOT NULL PRIMARY KEY,
    kind         TEXT    NOT NULL CHECK (kind = 'job' OR kind = 'leftover'),
    document_id  INTEGER NOT NULL,
    source_key   INTEGER NOT NULL,
    job_id       TEXT,
    created_at   TEXT    NOT NULL
);
CREATE UNIQUE INDEX idx_catalog_outbox_leftover ON catalog_outbox (source_key, document_id)
    WHERE kind = 'leftover';

-- Absent scopes are '': a delete of the whole tenant, collection or branch.
CREATE TABLE catalog_tombstone (
    tenant_id   TEXT NOT NULL,
    collection  TEXT NOT NULL,
    branch      TEXT NOT NULL,
    path        TEXT NOT NULL,
    source_id   TEXT NOT NULL,
    asked_at    TEXT NOT NULL,
    reason      TEXT NOT NULL,
    created_at  TEXT NOT NULL,
    PRIMARY KEY (tenant_id, collection, branch, path, source_id)
) WITHOUT ROWID;

-- Sources whose row is gone, for caches that still know them.
CREATE TABLE catalog_gone (
    change_seq  INTEGER NOT NULL PRIMARY KEY,
    tenant_id   TEXT    NOT NULL,
    family_key  INTEGER NOT NULL,
    gone_at     TEXT    NOT NULL
);

CREATE TABLE catalog_ledger (
    tenant_id   TEXT NOT NULL,
    collection  TEXT NOT NULL,
    branch      TEXT NOT NULL,
    path        TEXT NOT NULL,
    kind        TEXT NOT NULL CHECK (kind = 'skipped' OR kind = 'failed'),
    rule        TEXT NOT NULL,
    cause       TEXT NOT NULL,
    remedy      TEXT NOT NULL,
    job_id      TEXT,
    at          TEXT NOT NULL,
    PRIMARY KEY (tenant_id, collection, branch, path)
) WITHOUT ROWID;

-- For lists of failures: they read these few and none of the paths that a rule left out.
CREATE INDEX idx_ledger_failed ON catalog_ledger (tenant_id, collection, branch, path) WHERE kind = 'failed';

CREATE TABLE catalog_fingerprint (
    phase        TEXT NOT NULL PRIMARY KEY CHECK (phase = 'ocr' OR phase = 'vector' OR phase = 'graphrag'),
    fingerprint  TEXT NOT NULL
) WITHOUT ROWID;

-- A file that turns up at another path is looked for by its size and time before it is read.
CREATE INDEX idx_sources_size ON sources (tenant_id, size, mtime_ns);

-- Whether anything was deleted since a time is asked at every store, and the answer is nearly always no.
CREATE INDEX idx_catalog_tombstone_asked ON catalog_tombstone (tenant_id, asked_at);
