-- Tasks that somebody else moves, with the specification's statements or by hand: their page and document are brought
-- up to them here. The program's own sessions say who they are and do it themselves, once a batch.
CREATE FUNCTION catalog_kind(status text, retry_at text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN status = 'pending' OR retry_at IS NOT NULL THEN 'waiting' ELSE status END
$$;

-- Arguments: the phase, the parent's table, its status column, the column that names the parent.
CREATE FUNCTION catalog_moved() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    phase   text  := TG_ARGV[0];
    parent  uuid  := to_jsonb(NEW) ->> TG_ARGV[3];
    before  text  := catalog_kind(to_jsonb(OLD) ->> (phase || '_status'), to_jsonb(OLD) ->> (phase || '_retry_at'));
    after   text  := catalog_kind(to_jsonb(NEW) ->> (phase || '_status'), to_jsonb(NEW) ->> (phase || '_retry_at'));
    part    text;
BEGIN
    FOREACH part IN ARRAY ARRAY['processing', 'waiting', 'failed', 'completed'] LOOP
        EXECUTE format('UPDATE %1$I SET %2$I = %2$I + $1 WHERE id = $2 AND $1 <> 0', TG_ARGV[1], phase || '_' || part)
        USING (after = part)::int - (before = part)::int, parent;
    END LOOP;
    EXECUTE format(
        'UPDATE %I SET %I = (CASE WHEN %I > 0 THEN ''processing'' WHEN %I > 0 THEN ''pending'' WHEN %I > 0 THEN ''failed'''
        ' WHEN %I > 0 THEN ''completed'' ELSE ''skipped'' END)::task_status, updated_at = now() WHERE id = $1',
        TG_ARGV[1], TG_ARGV[2], phase || '_processing', phase || '_waiting', phase || '_failed', phase || '_completed')
    USING parent;
    IF TG_TABLE_NAME = 'task_queue_chunk' OR phase = 'ocr' THEN
        UPDATE documents
        SET vector_chunks = vector_chunks + CASE WHEN phase = 'vector' THEN done ELSE 0 END,
            graphrag_chunks = graphrag_chunks + CASE WHEN phase = 'graphrag' THEN done ELSE 0 END,
            failed_count = failed_count + CASE WHEN phase <> 'graphrag' THEN failures ELSE 0 END
        FROM (SELECT (after = 'completed')::int - (before = 'completed')::int AS done,
                     (after = 'failed')::int - (before = 'failed')::int AS failures) AS moved
        WHERE id = NEW.document_id AND (done, failures) <> (0, 0);
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER catalog_ocr_moved AFTER UPDATE OF ocr_status ON task_queue_page FOR EACH ROW
    WHEN (OLD.ocr_status <> NEW.ocr_status AND current_setting('penstock.catalog', true) IS DISTINCT FROM 'on')
    EXECUTE FUNCTION catalog_moved('ocr', 'documents', 'ocr_status', 'document_id');
CREATE TRIGGER catalog_vector_moved AFTER UPDATE OF vector_status ON task_queue_page FOR EACH ROW
    WHEN (OLD.vector_status <> NEW.vector_status AND current_setting('penstock.catalog', true) IS DISTINCT FROM 'on')
    EXECUTE FUNCTION catalog_moved('vector', 'documents', 'vector_index_status', 'document_id');
CREATE TRIGGER catalog_graphrag_moved AFTER UPDATE OF graphrag_status ON task_queue_page FOR EACH ROW
    WHEN (OLD.graphrag_status <> NEW.graphrag_status
          AND current_setting('penstock.catalog', true) IS DISTINCT FROM 'on')
    EXECUTE FUNCTION catalog_moved('graphrag', 'documents', 'graphrag_index_status', 'document_id');
CREATE TRIGGER catalog_vector_moved AFTER UPDATE OF vector_status ON task_queue_chunk FOR EACH ROW
    WHEN (OLD.vector_status <> NEW.vector_status AND current_setting('penstock.catalog', true) IS DISTINCT FROM 'on')
    EXECUTE FUNCTION catalog_moved('vector', 'task_queue_page', 'vector_status', 'page_id');
CREATE TRIGGER catalog_graphrag_moved AFTER UPDATE OF graphrag_status ON task_queue_chunk FOR EACH ROW
    WHEN (OLD.graphrag_status <> NEW.graphrag_status
          AND current_setting('penstock.catalog', true) IS DISTINCT FROM 'on')
    EXECUTE FUNCTION catalog_moved('graphrag', 'task_queue_page', 'graphrag_status', 'page_id');
