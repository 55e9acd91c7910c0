-- Version 1. Later versions add files; a file that was released is not changed. Functions carry their version in their
-- names, so that the program of the version before goes on working while nodes are replaced one by one.

CREATE TABLE toolyard.meta (
    key text PRIMARY KEY,
    value bytea NOT NULL
);

-- Which server this was last, to notice a failover or a restart: nobody is fenced until `calm_until`.
CREATE TABLE toolyard.cluster (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    timeline text NOT NULL,
    server_started timestamptz NOT NULL,
    calm_until timestamptz NOT NULL
);
INSERT INTO toolyard.cluster (timeline, server_started, calm_until)
VALUES (left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), pg_postmaster_start_time(), '-infinity');

CREATE SEQUENCE toolyard.epochs;

-- One row for each owner: a process of a node. Deleting the row fences the owner.
CREATE TABLE toolyard.nodes (
    node text NOT NULL,
    epoch int8 NOT NULL,
    home text NOT NULL,
    serves boolean NOT NULL,
    address text,
    draining boolean NOT NULL DEFAULT false,
    began_at timestamptz NOT NULL,
    beat_at timestamptz NOT NULL,
    commits int8 NOT NULL DEFAULT 0,
    watches boolean NOT NULL DEFAULT false,
    last_group int8 NOT NULL DEFAULT 0,
    program text NOT NULL,
    PRIMARY KEY (node, epoch)
) WITH (fillfactor = 50);

-- Text that may hold NUL is kept as bytes, and times as nanoseconds since 1970.
CREATE TABLE toolyard.runs (
    run uuid PRIMARY KEY,
    workspace bytea NOT NULL DEFAULT '',
    kind int2,
    status int2,
    title bytea,
    session bytea,
    started_at int8,
    ended_at int8,
    holder_node text,
    holder_epoch int8
);
CREATE INDEX runs_open ON toolyard.runs (run) WHERE status < 3;
CREATE INDEX runs_of_session ON toolyard.runs (session, run) WHERE session IS NOT NULL;
CREATE INDEX runs_unlisted ON toolyard.runs (run) WHERE kind IS NULL;

-- Run ids are UUIDs of version 7, which sort by time: a range of ids is a range of time.
CREATE TABLE toolyard.frames (
    run uuid NOT NULL,
    seq int8 NOT NULL,
    kind int2 NOT NULL,
    payload bytea NOT NULL,
    chain bytea NOT NULL,
    PRIMARY KEY (run, seq)
) PARTITION BY RANGE (run);
CREATE TABLE toolyard.frames_other PARTITION OF toolyard.frames DEFAULT;

-- A blob without bytes is a large one: it is in `large_blobs` or in the bucket.
CREATE TABLE toolyard.blobs (
    sha256 bytea PRIMARY KEY,
    len int8 NOT NULL,
    bytes bytea,
    used_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE toolyard.large_blobs (
    sha256 bytea PRIMARY KEY,
    bytes bytea NOT NULL
);
ALTER TABLE toolyard.large_blobs ALTER COLUMN bytes SET STORAGE EXTERNAL;

CREATE TABLE toolyard.facts (
    workspace bytea NOT NULL DEFAULT '',
    space bytea NOT NULL,
    key bytea NOT NULL,
    version int8 NOT NULL DEFAULT 1,
    value bytea NOT NULL,
    expires_at int8,
    PRIMARY KEY (workspace, space, key)
);
CREATE INDEX facts_that_end ON toolyard.facts (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE toolyard.ledger (
    seq int8 PRIMARY KEY,
    node text NOT NULL,
    epoch int8 NOT NULL,
    payload bytea NOT NULL,
    chain bytea NOT NULL
);

-- Microseconds since 1970, by the server's clock.
CREATE FUNCTION toolyard.micros_1() RETURNS int8 LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8
$$;

-- Whether the server has changed or started so recently that nobody may be called dead.
CREATE FUNCTION toolyard.is_calm_1() RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT NOT EXISTS (
        SELECT 1 FROM toolyard.cluster
        WHERE timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
            AND server_started = pg_postmaster_start_time() AND calm_until < clock_timestamp())
$$;

CREATE FUNCTION toolyard.is_alive_1(of_node text, of_epoch int8, ttl_ms int4) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT EXISTS (
        SELECT 1 FROM toolyard.nodes WHERE node = of_node AND epoch = of_epoch
            AND (beat_at > clock_timestamp() - ttl_ms * interval '1 millisecond' OR toolyard.is_calm_1()))
$$;

-- Registers an owner and answers its epoch. A node that serves has its name for itself.
CREATE FUNCTION toolyard.register_1(me text, my_home text, to_serve boolean, my_program text, ttl_ms int4)
RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
    next_epoch int8;
    other text;
BEGIN
    PERFORM pg_advisory_xact_lock(7809632481);
    IF to_serve THEN
        SELECT home INTO other FROM toolyard.nodes
        WHERE node = me AND serves AND home <> my_home AND toolyard.is_alive_1(node, epoch, ttl_ms);
        IF FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'TY002', MESSAGE = format('a node with the name %s serves from %s', me, other);
        END IF;
        -- A home has one serving process at a time, so an earlier one of this home is dead.
        DELETE FROM toolyard.nodes WHERE node = me AND serves;
    END IF;
    next_epoch := nextval('toolyard.epochs');
    INSERT INTO toolyard.nodes (node, epoch, home, serves, began_at, beat_at, program)
    VALUES (me, next_epoch, my_home, to_serve, clock_timestamp(), clock_timestamp(), my_program);
    RETURN next_epoch;
END $$;

-- Renews a lease. `alive` is false for an owner that was fenced.
CREATE FUNCTION toolyard.beat_1(me text, my_epoch int8, my_commits int8, i_watch boolean, calm_ms int4,
    OUT alive boolean, OUT others_watch boolean, OUT others_commits int8) LANGUAGE plpgsql AS $$
DECLARE
    line text := left(pg_walfile_name(pg_current_wal_insert_lsn()), 8);
BEGIN
    UPDATE toolyard.cluster
    SET timeline = line, server_started = pg_postmaster_start_time(),
        calm_until = clock_timestamp() + calm_ms * interval '1 millisecond'
    WHERE timeline <> line OR server_started <> pg_postmaster_start_time();
    UPDATE toolyard.nodes SET beat_at = clock_timestamp(), commits = my_commits, watches = i_watch
    WHERE node = me AND epoch = my_epoch;
    alive := FOUND;
    SELECT coalesce(bool_or(watches), false), coalesce(sum(commits), 0)::int8 INTO others_watch, others_commits
    FROM toolyard.nodes WHERE (node, epoch) <> (me, my_epoch);
END $$;

-- Everything that one node has queued, as one statement. Answers 0 when the node was fenced, 1 when this was done now, and
-- 2 when it had been done already (`mark` names the group where nothing else shows whether it was written).
CREATE FUNCTION toolyard.append_1(me text, my_epoch int8, mark int8, new_runs uuid[],
    f_run uuid[], f_seq int8[], f_kind int2[], f_payload bytea[], f_chain bytea[],
    r_run uuid[], r_kind int2[], r_status int2[], r_title bytea[], r_session bytea[], r_started int8[], r_ended int8[],
    r_ends boolean[], let_go uuid[], b_sha256 bytea[], b_len int8[], b_bytes bytea[],
    k_space bytea[], k_key bytea[], k_value bytea[], k_until int8[])
RETURNS int4 LANGUAGE plpgsql AS $$
DECLARE
    held uuid;
    written int8;
BEGIN
    IF mark IS NULL THEN
        PERFORM 1 FROM toolyard.nodes WHERE node = me AND epoch = my_epoch FOR KEY SHARE;
        IF NOT FOUND THEN RETURN 0; END IF;
    ELSE
        UPDATE toolyard.nodes SET last_group = mark WHERE node = me AND epoch = my_epoch AND last_group < mark;
        IF NOT FOUND THEN
            PERFORM 1 FROM toolyard.nodes WHERE node = me AND epoch = my_epoch FOR KEY SHARE;
            RETURN CASE WHEN FOUND THEN 2 ELSE 0 END;
        END IF;
    END IF;
    IF cardinality(new_runs) > 0 THEN
        INSERT INTO toolyard.runs (run, holder_node, holder_epoch)
        SELECT run, me, my_epoch FROM unnest(new_runs) AS n(run) ON CONFLICT DO NOTHING;
        SELECT run INTO held FROM toolyard.runs WHERE run = ANY (new_runs) AND holder_epoch IS NOT NULL
            AND (holder_node, holder_epoch) IS DISTINCT FROM (me, my_epoch) LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'TY001', MESSAGE = format('run %s is held by another node', held);
        END IF;
    END IF;
    IF cardinality(r_run) > 0 THEN
        INSERT INTO toolyard.runs AS old
            (run, kind, status, title, session, started_at, ended_at, holder_node, holder_epoch)
        SELECT run, kind, status, title, session, started, ended,
            CASE WHEN NOT ends THEN me END, CASE WHEN NOT ends THEN my_epoch END
        FROM unnest(r_run, r_kind, r_status, r_title, r_session, r_started, r_ended, r_ends)
            AS n(run, kind, status, title, session, started, ended, ends)
        ON CONFLICT (run) DO UPDATE SET kind = excluded.kind, status = excluded.status, title = excluded.title,
            session = excluded.session, started_at = excluded.started_at, ended_at = excluded.ended_at,
            holder_node = CASE WHEN excluded.holder_epoch IS NOT NULL THEN old.holder_node END,
            holder_epoch = CASE WHEN excluded.holder_epoch IS NOT NULL THEN old.holder_epoch END
        WHERE old.holder_epoch IS NULL OR (old.holder_node = me AND old.holder_epoch = my_epoch);
        GET DIAGNOSTICS written = ROW_COUNT;
        IF written < cardinality(r_run) THEN
            RAISE EXCEPTION USING ERRCODE = 'TY001', MESSAGE = 'the run is held by another node';
        END IF;
    END IF;
    IF cardinality(b_sha256) > 0 THEN
        INSERT INTO toolyard.blobs AS old (sha256, len, bytes)
        SELECT sha256, len, bytes FROM unnest(b_sha256, b_len, b_bytes) AS n(sha256, len, bytes)
        ON CONFLICT (sha256) DO UPDATE SET used_at = now() WHERE old.used_at < now() - interval '10 minutes';
    END IF;
    IF cardinality(f_run) > 0 THEN
        INSERT INTO toolyard.frames (run, seq, kind, payload, chain)
        SELECT run, seq, kind, payload, chain FROM unnest(f_run, f_seq, f_kind, f_payload, f_chain)
            AS n(run, seq, kind, payload, chain);
    END IF;
    IF cardinality(let_go) > 0 THEN
        UPDATE toolyard.runs SET holder_node = NULL, holder_epoch = NULL
        WHERE run = ANY (let_go) AND holder_node = me AND holder_epoch = my_epoch;
    END IF;
    IF cardinality(k_space) > 0 THEN
        DELETE FROM toolyard.facts f USING unnest(k_space, k_key, k_value) AS n(space, key, value)
        WHERE f.workspace = '' AND f.space = n.space AND f.key = n.key AND n.value IS NULL;
        INSERT INTO toolyard.facts AS old (space, key, value, expires_at)
        SELECT space, key, value, until FROM unnest(k_space, k_key, k_value, k_until) AS n(space, key, value, until)
        WHERE value IS NOT NULL
        ON CONFLICT (workspace, space, key) DO UPDATE
            SET value = excluded.value, expires_at = excluded.expires_at, version = old.version + 1;
    END IF;
    RETURN 1;
END $$;

-- Sets or removes (`wanted` is NULL) a fact if it is what is expected. `done` is NULL for a node that was fenced.
CREATE FUNCTION toolyard.swap_1(me text, my_epoch int8, in_space bytea, of_key bytea, expected bytea, wanted bytea,
    until int8, OUT done boolean, OUT present bytea) LANGUAGE plpgsql AS $$
DECLARE
    is_there boolean;
    stored_until int8;
BEGIN
    PERFORM 1 FROM toolyard.nodes WHERE node = me AND epoch = my_epoch FOR KEY SHARE;
    IF NOT FOUND THEN RETURN; END IF;
    LOOP
        SELECT value, expires_at INTO present, stored_until FROM toolyard.facts
        WHERE workspace = '' AND space = in_space AND key = of_key FOR UPDATE;
        is_there := FOUND;
        IF is_there AND stored_until <= toolyard.micros_1() THEN present := NULL; END IF;
        IF present IS DISTINCT FROM expected THEN
            done := false;
            RETURN;
        END IF;
        done := true;
        IF is_there THEN
            IF wanted IS NULL THEN
                DELETE FROM toolyard.facts WHERE workspace = '' AND space = in_space AND key = of_key;
            ELSE
                UPDATE toolyard.facts SET value = wanted, expires_at = until, version = version + 1
                WHERE workspace = '' AND space = in_space AND key = of_key;
            END IF;
            RETURN;
        ELSIF wanted IS NULL THEN
            RETURN;
        END IF;
        INSERT INTO toolyard.facts (space, key, value, expires_at) VALUES (in_space, of_key, wanted, until)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN RETURN; END IF;
    END LOOP;
END $$;

-- Takes a run. NULL for a node that was fenced.
CREATE FUNCTION toolyard.claim_1(me text, my_epoch int8, of_run uuid, from_node text, from_epoch int8, ttl_ms int4)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    is_mine boolean := from_node IS NOT DISTINCT FROM me AND from_epoch IS NOT DISTINCT FROM my_epoch;
BEGIN
    PERFORM 1 FROM toolyard.nodes WHERE node = me AND epoch = my_epoch FOR KEY SHARE;
    IF NOT FOUND THEN RETURN NULL; END IF;
    -- Another node that has the run locked is about to take it.
    PERFORM 1 FROM toolyard.runs WHERE run = of_run AND kind IS NOT NULL FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN false; END IF;
    IF from_epoch IS NOT NULL AND NOT is_mine THEN
        DELETE FROM toolyard.nodes WHERE node = from_node AND epoch = from_epoch
            AND NOT toolyard.is_alive_1(from_node, from_epoch, ttl_ms);
        PERFORM 1 FROM toolyard.nodes WHERE node = from_node AND epoch = from_epoch;
        IF FOUND THEN RETURN false; END IF;
    END IF;
    UPDATE toolyard.runs SET holder_node = me, holder_epoch = my_epoch
    WHERE run = of_run AND (holder_epoch IS NULL OR (holder_node = from_node AND holder_epoch = from_epoch));
    RETURN FOUND;
END $$;

-- Appends the entry that follows the last one. 0: fenced, 1: done, 2: another entry has that number.
CREATE FUNCTION toolyard.ledger_1(me text, my_epoch int8, at_seq int8, of_payload bytea, of_chain bytea)
RETURNS int4 LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM toolyard.nodes WHERE node = me AND epoch = my_epoch FOR KEY SHARE;
    IF NOT FOUND THEN RETURN 0; END IF;
    INSERT INTO toolyard.ledger (seq, node, epoch, payload, chain) VALUES (at_seq, me, my_epoch, of_payload, of_chain)
    ON CONFLICT DO NOTHING;
    RETURN CASE WHEN FOUND THEN 1 ELSE 2 END;
END $$;

-- Removes runs that have ended. NULL for a node that was fenced.
CREATE FUNCTION toolyard.remove_runs_1(me text, my_epoch int8, old uuid[]) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
    removed uuid[];
BEGIN
    PERFORM 1 FROM toolyard.nodes WHERE node = me AND epoch = my_epoch FOR KEY SHARE;
    IF NOT FOUND THEN RETURN NULL; END IF;
    WITH gone AS (DELETE FROM toolyard.runs WHERE run = ANY (old) AND status >= 3 RETURNING run)
    SELECT coalesce(array_agg(run), '{}') INTO removed FROM gone;
    DELETE FROM toolyard.frames WHERE run = ANY (removed);
    RETURN cardinality(removed);
END $$;

-- Makes the partitions of this month and the next two, and drops those that retention has emptied. What cannot be done now,
-- because somebody holds a lock, is done an hour later.
CREATE FUNCTION toolyard.partitions_1() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    month timestamptz;
    name text;
    old record;
    is_empty boolean;
    bound text;
    ends text;
BEGIN
    IF NOT pg_try_advisory_xact_lock(7809632482) THEN RETURN; END IF;
    SET LOCAL lock_timeout = '1s';
    FOR ahead IN 0..2 LOOP
        month := date_trunc('month', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' + ahead * interval '1 month';
        name := 'frames_' || to_char(month AT TIME ZONE 'UTC', 'YYYY_MM');
        IF to_regclass('toolyard.' || name) IS NULL THEN
            bound := lpad(to_hex((extract(epoch FROM month) * 1000)::int8), 12, '0');
            ends := lpad(to_hex((extract(epoch FROM month + interval '1 month') * 1000)::int8), 12, '0');
            BEGIN
                EXECUTE format('CREATE TABLE toolyard.%I PARTITION OF toolyard.frames FOR VALUES FROM (%L) TO (%L)', name,
                    bound || repeat('0', 20), ends || repeat('0', 20));
            EXCEPTION WHEN lock_not_available OR check_violation OR duplicate_table THEN
                NULL;
            END;
        END IF;
    END LOOP;
    FOR old IN SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'toolyard.frames'::regclass AND c.relname ~ '^frames_[0-9]{4}_[0-9]{2}$'
            AND c.relname < 'frames_' || to_char(now() AT TIME ZONE 'UTC' - interval '1 month', 'YYYY_MM') LOOP
        BEGIN
            EXECUTE format('SELECT NOT EXISTS (SELECT 1 FROM toolyard.%I)', old.relname) INTO is_empty;
            IF is_empty THEN EXECUTE format('DROP TABLE toolyard.%I', old.relname); END IF;
        EXCEPTION WHEN lock_not_available THEN
            NULL;
        END;
    END LOOP;
END $$;
