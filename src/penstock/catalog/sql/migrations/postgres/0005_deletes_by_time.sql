-- Whether anything was deleted since a time is asked at every store, and the answer is nearly always no.
CREATE INDEX idx_catalog_tombstone_asked ON catalog_tombstone (tenant_id, asked_at);
