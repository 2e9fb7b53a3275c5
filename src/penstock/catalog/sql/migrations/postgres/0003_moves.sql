-- A file that turns up at another path is looked for by its size and time before it is read.
CREATE INDEX idx_sources_size ON sources (tenant_id, size, mtime_ns);
