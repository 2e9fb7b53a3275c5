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
        SET failed_count = failed_count + (after = 'failed')::int - (before = 'failed')::int
        WHERE id = NEW.document_id AND phase IN ('ocr', 'vector') AND (after = 'failed') <> (before = 'failed');
    END IF;
    IF TG_TABLE_NAME = 'task_queue_chunk' THEN
        EXECUTE format('UPDATE documents SET %1$I = %1$I + $1 WHERE id = $2 AND $1 <> 0', phase || '_chunks')
        USING (after = 'completed')::int - (before = 'completed')::int, NEW.document_id;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER catalog_ocr_moved AFTER UPDATE OF ocr_status ON task_queue_page FOR EACH ROW
    WHEN (OLD.ocr_status <> NEW.ocr_status AND current_setting('penstock.catalog', true) IS DISTINCT FROM 'on')
    EXECUTE FUNCTION catalog_moved('ocr', 'documents', 'ocr_status', 'document_id');
-- A chunk phase is known by its column: each has one trigger on the chunks and one on the pages.
DO $$
DECLARE
    phase    text;
    trigger  text := 'CREATE TRIGGER %1$I AFTER UPDATE OF %2$I ON %3$I FOR EACH ROW WHEN (OLD.%2$I <> NEW.%2$I'
                     ' AND current_setting(''penstock.catalog'', true) IS DISTINCT FROM ''on'')'
                     ' EXECUTE FUNCTION catalog_moved(%4$L, %5$L, %6$L, %7$L)';
BEGIN
    FOR phase IN
        SELECT left(attname, -length('_status')) FROM pg_attribute
        WHERE attrelid = 'task_queue_chunk'::regclass AND NOT attisdropped AND attname LIKE '%\_status'
    LOOP
        EXECUTE format(trigger, 'catalog_' || phase || '_moved', phase || '_status', 'task_queue_page',
                       phase, 'documents', phase || '_index_status', 'document_id');
        EXECUTE format(trigger, 'catalog_' || phase || '_moved', phase || '_status', 'task_queue_chunk',
                       phase, 'task_queue_page', phase || '_status', 'page_id');
    END LOOP;
END
$$;
