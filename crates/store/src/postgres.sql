-- The part of PostgreSQL's system catalog that psql, drivers and BI tools query. Sessions of the PostgreSQL protocol see
-- it besides the tables. The server's module `postgres` drops the qualifiers pg_catalog. and public.; these names hide
-- DuckDB's own. Objects have PostgreSQL's OIDs where those are fixed (types, access methods, schemas).
USE memory;

CREATE SCHEMA pg;

CREATE SCHEMA information;

-- Name types that clients cast to. A literal before ::regclass is resolved instead (to_regclass).
CREATE TYPE regclass AS VARCHAR;
CREATE TYPE regtype AS VARCHAR;
CREATE TYPE regproc AS VARCHAR;
CREATE TYPE regnamespace AS VARCHAR;
CREATE TYPE regrole AS VARCHAR;
CREATE TYPE name AS VARCHAR;
CREATE TYPE xid AS BIGINT;

-- OID, name, SQL's name, size, category, array type.
CREATE VIEW pg.types AS
SELECT * FROM (VALUES
    (16, 'bool', 'boolean', 1, 'B', 1000), (17, 'bytea', 'bytea', -1, 'U', 1001),
    (18, 'char', '"char"', 1, 'Z', 1002), (19, 'name', 'name', 64, 'S', 1003),
    (20, 'int8', 'bigint', 8, 'N', 1016), (21, 'int2', 'smallint', 2, 'N', 1005),
    (23, 'int4', 'integer', 4, 'N', 1007), (25, 'text', 'text', -1, 'S', 1009),
    (26, 'oid', 'oid', 4, 'N', 1028), (114, 'json', 'json', -1, 'U', 199),
    (700, 'float4', 'real', 4, 'N', 1021), (701, 'float8', 'double precision', 8, 'N', 1022),
    (1043, 'varchar', 'character varying', -1, 'S', 1015), (1082, 'date', 'date', 4, 'D', 1182),
    (1083, 'time', 'time without time zone', 8, 'D', 1183),
    (1114, 'timestamp', 'timestamp without time zone', 8, 'D', 1115),
    (1184, 'timestamp' || 'tz', 'timestamp with' || ' time zone', 8, 'D', 1185), -- a name only
    (1186, 'interval', 'interval', 16, 'T', 1187), (1700, 'numeric', 'numeric', -1, 'N', 1231),
    (2205, 'regclass', 'regclass', 4, 'N', 2210), (2950, 'uuid', 'uuid', 16, 'U', 2951),
    (3802, 'jsonb', 'jsonb', -1, 'U', 3807)
) AS t(oid, typname, sql_name, typlen, typcategory, typarray);

-- OID of the PostgreSQL type in which a column of a DuckDB type is sent (as in the server's postgres::encode).
CREATE MACRO pg.type_oid(duckdb_type) AS CASE
    WHEN duckdb_type LIKE '%[]' THEN 1009
    WHEN duckdb_type = 'BOOLEAN' THEN 16
    WHEN duckdb_type IN ('TINYINT', 'UTINYINT', 'SMALLINT') THEN 21
    WHEN duckdb_type IN ('USMALLINT', 'INTEGER') THEN 23
    WHEN duckdb_type IN ('UINTEGER', 'BIGINT') THEN 20
    WHEN duckdb_type IN ('UBIGINT', 'HUGEINT', 'UHUGEINT') OR duckdb_type LIKE 'DECIMAL%' THEN 1700
    WHEN duckdb_type = 'FLOAT' THEN 700
    WHEN duckdb_type = 'DOUBLE' THEN 701
    WHEN duckdb_type = 'DATE' THEN 1082
    WHEN duckdb_type = 'TIME' THEN 1083
    WHEN duckdb_type LIKE 'TIMESTAMP % ZONE' THEN 1184
    WHEN duckdb_type LIKE 'TIMESTAMP%' THEN 1114
    WHEN duckdb_type = 'INTERVAL' THEN 1186
    WHEN duckdb_type = 'BLOB' THEN 17
    WHEN duckdb_type = 'UUID' THEN 2950
    WHEN duckdb_type = 'JSON' OR duckdb_type LIKE 'STRUCT%' OR duckdb_type LIKE 'MAP%' THEN 114
    ELSE 25 END;

CREATE MACRO pg.schema_oid(schema_name) AS CASE schema_name WHEN 'main' THEN 2200 ELSE 16384 END;

-- Visible objects: the tables (schema public) and one view per metric (schema metrics). Their definitions name internal
-- tables and files, and are not shown.
CREATE VIEW pg.relations AS
SELECT 16400 + view_oid AS oid, CASE schema_name WHEN 'main' THEN 'public' ELSE schema_name END AS schema_name,
    pg.schema_oid(schema_name) AS schema_oid, view_name AS name,
    CASE schema_name WHEN 'main' THEN 'r' ELSE 'v' END AS kind, column_count, comment
FROM duckdb_views()
WHERE database_name = 'memory' AND schema_name IN ('main', 'metrics') AND NOT internal;

CREATE VIEW pg.columns AS
SELECT 16400 + table_oid AS relation, CASE schema_name WHEN 'main' THEN 'public' ELSE schema_name END AS schema_name,
    table_name, column_name, column_index, data_type, pg.type_oid(data_type) AS type_oid, comment
FROM duckdb_columns()
WHERE database_name = 'memory' AND schema_name IN ('main', 'metrics') AND NOT internal;

CREATE VIEW pg.pg_namespace AS
SELECT * FROM (VALUES (11, 'pg_catalog', 10, NULL::VARCHAR[]), (13000, 'information_schema', 10, NULL),
    (2200, 'public', 10, NULL), (16384, 'metrics', 10, NULL)) AS t(oid, nspname, nspowner, nspacl);

CREATE VIEW pg.pg_class AS
SELECT oid, name AS relname, schema_oid AS relnamespace, 0 AS reltype, 0 AS reloftype, 10 AS relowner,
    CASE kind WHEN 'r' THEN 2 ELSE 0 END AS relam, 0 AS relfilenode, 0 AS reltablespace, 0 AS relpages,
    -1::FLOAT AS reltuples, 0 AS relallvisible, 0 AS reltoastrelid, false AS relhasindex, false AS relisshared,
    'p' AS relpersistence, kind AS relkind, column_count::SMALLINT AS relnatts, 0::SMALLINT AS relchecks,
    false AS relhasrules, false AS relhastriggers, false AS relhassubclass, false AS relrowsecurity,
    false AS relforcerowsecurity, true AS relispopulated, 'n' AS relreplident, false AS relispartition,
    0 AS relrewrite, 0::BIGINT AS relfrozenxid, NULL::VARCHAR[] AS relacl, NULL::VARCHAR[] AS reloptions,
    NULL::VARCHAR AS relpartbound, 0::BIGINT AS xmin, 1259 AS tableoid
FROM pg.relations;

CREATE VIEW pg.pg_attribute AS
SELECT c.relation AS attrelid, c.column_name AS attname, c.type_oid AS atttypid, -1 AS attstattarget,
    t.typlen::SMALLINT AS attlen, c.column_index::SMALLINT AS attnum, 0 AS attndims, -1 AS attcacheoff,
    -1 AS atttypmod, false AS attbyval, 'p' AS attstorage, 'i' AS attalign, '' AS attcompression,
    false AS attnotnull, false AS atthasdef, false AS atthasmissing, '' AS attidentity, '' AS attgenerated,
    false AS attisdropped, true AS attislocal, 0 AS attinhcount, 0 AS attcollation, NULL::VARCHAR[] AS attacl,
    NULL::VARCHAR[] AS attoptions, NULL::VARCHAR[] AS attfdwoptions
FROM pg.columns AS c LEFT JOIN pg.types AS t ON t.oid = c.type_oid;

CREATE VIEW pg.pg_type AS
SELECT oid, typname, 11 AS typnamespace, 10 AS typowner, typlen::SMALLINT AS typlen, typlen BETWEEN 1 AND 8 AS typbyval,
    'b' AS typtype, typcategory, false AS typispreferred, true AS typisdefined, ',' AS typdelim, 0 AS typrelid,
    0 AS typelem, typarray, typname || 'in' AS typinput, typname || 'out' AS typoutput,
    typname || 'recv' AS typreceive, typname || 'send' AS typsend, '-' AS typmodin, '-' AS typmodout,
    '-' AS typanalyze, 'i' AS typalign, 'p' AS typstorage, false AS typnotnull, 0 AS typbasetype, -1 AS typtypmod,
    0 AS typndims, 0 AS typcollation, NULL::VARCHAR AS typdefaultbin, NULL::VARCHAR AS typdefault,
    NULL::VARCHAR[] AS typacl, '-' AS typsubscript
FROM pg.types
UNION ALL
SELECT typarray, '_' || typname, 11, 10, -1, false, 'b', 'A', false, true, ',', 0, oid, 0, 'array_in', 'array_out',
    'array_recv', 'array_send', '-', '-', '-', 'i', 'x', false, 0, -1, 0, 0, NULL, NULL, NULL, 'array_subscript_handler'
FROM pg.types;

CREATE VIEW pg.pg_description AS
SELECT oid AS objoid, 1259 AS classoid, 0 AS objsubid, comment AS description FROM pg.relations WHERE comment IS NOT NULL
UNION ALL
SELECT relation, 1259, column_index, comment FROM pg.columns WHERE comment IS NOT NULL;

CREATE VIEW pg.pg_database AS
SELECT 16383 AS oid, 'takt' AS datname, 10 AS datdba, 6 AS encoding, 'c' AS datlocprovider, false AS datistemplate,
    true AS datallowconn, -1 AS datconnlimit, 0::BIGINT AS datfrozenxid, 1663 AS dattablespace, 'C' AS datcollate,
    'C' AS datctype, NULL::VARCHAR AS daticulocale, NULL::VARCHAR AS daticurules, NULL::VARCHAR[] AS datacl;

CREATE VIEW pg.pg_roles AS
SELECT 10 AS oid, 'takt' AS rolname, false AS rolsuper, true AS rolinherit, false AS rolcreaterole,
    false AS rolcreatedb, true AS rolcanlogin, false AS rolreplication, -1 AS rolconnlimit,
    NULL::VARCHAR AS rolpassword, NULL::TIMESTAMP AS rolvaliduntil, false AS rolbypassrls,
    NULL::VARCHAR[] AS rolconfig;

CREATE VIEW pg.pg_user AS
SELECT rolname AS usename, oid AS usesysid, false AS usecreatedb, false AS usesuper, false AS userepl,
    false AS usebypassrls, NULL::VARCHAR AS passwd, NULL::TIMESTAMP AS valuntil, NULL::VARCHAR[] AS useconfig
FROM pg.pg_roles;

CREATE VIEW pg.pg_am AS SELECT 2 AS oid, 'heap' AS amname, 'heap_tableam_handler' AS amhandler, 't' AS amtype;

CREATE VIEW pg.pg_tables AS
SELECT schema_name AS schemaname, name AS tablename, 'takt' AS tableowner, NULL::VARCHAR AS tablespace,
    false AS hasindexes, false AS hasrules, false AS hastriggers, false AS rowsecurity
FROM pg.relations WHERE kind = 'r';

CREATE VIEW pg.pg_views AS
SELECT schema_name AS schemaname, name AS viewname, 'takt' AS viewowner, NULL::VARCHAR AS definition
FROM pg.relations WHERE kind = 'v';

CREATE VIEW pg.pg_settings AS
SELECT * FROM (VALUES ('server_version', '16.0', 'Preset Options'), ('server_version_num', '160000', 'Preset Options'),
    ('standard_conforming_strings', 'on', 'Preset Options'), ('TimeZone', 'UTC', 'Client Connection Defaults'),
    ('max_index_keys', '32', 'Preset Options'), ('default_transaction_read_only', 'on', 'Client Connection Defaults'),
    ('search_path', '"$user", public, metrics', 'Client Connection Defaults')) AS t(name, setting, category);

-- Empty: DuckDB or takt has no such objects.
CREATE VIEW pg.pg_attrdef AS
SELECT 0 AS oid, 0 AS adrelid, 0::SMALLINT AS adnum, '' AS adbin WHERE false;
CREATE VIEW pg.pg_index AS
SELECT 0 AS indexrelid, 0 AS indrelid, 0::SMALLINT AS indnatts, 0::SMALLINT AS indnkeyatts, false AS indisunique,
    false AS indisprimary, false AS indisexclusion, false AS indimmediate, false AS indisclustered, false AS indisvalid,
    false AS indcheckxmin, false AS indisready, false AS indislive, false AS indisreplident, NULL::SMALLINT[] AS indkey,
    NULL::INTEGER[] AS indcollation, NULL::INTEGER[] AS indclass, NULL::SMALLINT[] AS indoption,
    NULL::VARCHAR AS indexprs, NULL::VARCHAR AS indpred WHERE false;
CREATE VIEW pg.pg_indexes AS
SELECT '' AS schemaname, '' AS tablename, '' AS indexname, '' AS tablespace, '' AS indexdef WHERE false;
CREATE VIEW pg.pg_constraint AS
SELECT 0 AS oid, '' AS conname, 0 AS connamespace, '' AS contype, false AS condeferrable, false AS condeferred,
    false AS convalidated, 0 AS conrelid, 0 AS contypid, 0 AS conindid, 0 AS conparentid, 0 AS confrelid,
    '' AS confupdtype, '' AS confdeltype, '' AS confmatchtype, NULL::SMALLINT[] AS conkey, NULL::SMALLINT[] AS confkey,
    '' AS conbin WHERE false;
CREATE VIEW pg.pg_collation AS
SELECT 0 AS oid, '' AS collname, 0 AS collnamespace, '' AS collcollate WHERE false;
CREATE VIEW pg.pg_inherits AS
SELECT 0 AS inhrelid, 0 AS inhparent, 0 AS inhseqno, false AS inhdetachpending WHERE false;
CREATE VIEW pg.pg_policy AS
SELECT 0 AS oid, '' AS polname, 0 AS polrelid, '' AS polcmd, false AS polpermissive, NULL::INTEGER[] AS polroles,
    '' AS polqual, '' AS polwithcheck WHERE false;
CREATE VIEW pg.pg_statistic_ext AS
SELECT 0 AS oid, 0 AS stxrelid, '' AS stxname, 0 AS stxnamespace, NULL::VARCHAR[] AS stxkind, 0 AS stxstattarget
WHERE false;
CREATE VIEW pg.pg_publication AS SELECT 0 AS oid, '' AS pubname, false AS puballtables WHERE false;
CREATE VIEW pg.pg_publication_rel AS
SELECT 0 AS oid, 0 AS prpubid, 0 AS prrelid, '' AS prqual, NULL::SMALLINT[] AS prattrs WHERE false;
CREATE VIEW pg.pg_publication_namespace AS SELECT 0 AS oid, 0 AS pnpubid, 0 AS pnnspid WHERE false;
CREATE VIEW pg.pg_trigger AS
SELECT 0 AS oid, 0 AS tgrelid, '' AS tgname, 0 AS tgfoid, '' AS tgenabled, false AS tgisinternal, 0 AS tgconstraint,
    0 AS tgparentid WHERE false;
CREATE VIEW pg.pg_rewrite AS SELECT 0 AS oid, '' AS rulename, 0 AS ev_class, '' AS ev_type WHERE false;
CREATE VIEW pg.pg_depend AS
SELECT 0 AS classid, 0 AS objid, 0 AS objsubid, 0 AS refclassid, 0 AS refobjid, 0 AS refobjsubid, '' AS deptype
WHERE false;
CREATE VIEW pg.pg_enum AS SELECT 0 AS oid, 0 AS enumtypid, 0.0::FLOAT AS enumsortorder, '' AS enumlabel WHERE false;
CREATE VIEW pg.pg_range AS SELECT 0 AS rngtypid, 0 AS rngsubtype, 0 AS rngmultitypid WHERE false;
CREATE VIEW pg.pg_sequence AS
SELECT 0 AS seqrelid, 0 AS seqtypid, 0 AS seqstart, 0 AS seqincrement, 0 AS seqmax, 0 AS seqmin, 0 AS seqcache,
    false AS seqcycle WHERE false;
CREATE VIEW pg.pg_proc AS
SELECT 0 AS oid, '' AS proname, 0 AS pronamespace, 0 AS proowner, 0 AS prolang, '' AS prokind, false AS proretset,
    0 AS prorettype, 0 AS pronargs, NULL::INTEGER[] AS proargtypes, NULL::VARCHAR[] AS proargnames,
    NULL::VARCHAR[] AS proargmodes, NULL::INTEGER[] AS proallargtypes, '' AS prosrc
WHERE false;
CREATE VIEW pg.pg_extension AS
SELECT 0 AS oid, '' AS extname, 0 AS extowner, 0 AS extnamespace, '' AS extversion WHERE false;
CREATE VIEW pg.pg_matviews AS
SELECT '' AS schemaname, '' AS matviewname, '' AS matviewowner, '' AS definition WHERE false;
CREATE VIEW pg.pg_foreign_table AS SELECT 0 AS ftrelid, 0 AS ftserver, NULL::VARCHAR[] AS ftoptions WHERE false;
CREATE VIEW pg.pg_foreign_server AS SELECT 0 AS oid, '' AS srvname WHERE false;
CREATE VIEW pg.pg_auth_members AS SELECT 0 AS roleid, 0 AS member, 0 AS grantor WHERE false;
CREATE VIEW pg.pg_partitioned_table AS SELECT 0 AS partrelid, '' AS partstrat WHERE false;
CREATE VIEW pg.pg_sequences AS SELECT '' AS schemaname, '' AS sequencename WHERE false;
CREATE VIEW pg.pg_shdescription AS SELECT 0 AS objoid, 0 AS classoid, '' AS description WHERE false;
CREATE VIEW pg.pg_locks AS SELECT '' AS locktype, 0::BIGINT AS transactionid WHERE false;
CREATE VIEW pg.pg_tablespace AS SELECT 1663 AS oid, 'pg_default' AS spcname, 10 AS spcowner;
CREATE VIEW pg.pg_stat_activity AS SELECT 0 AS pid, '' AS usename, '' AS query WHERE false;

CREATE VIEW pg.pg_cast AS SELECT 0 AS oid, 0 AS castsource, 0 AS casttarget, 0 AS castfunc, '' AS castcontext,
    '' AS castmethod WHERE false;
CREATE VIEW pg.pg_operator AS SELECT 0 AS oid, '' AS oprname, 0 AS oprnamespace, 0 AS oprleft, 0 AS oprright,
    0 AS oprresult, 0 AS oprcode WHERE false;
CREATE VIEW pg.pg_stat_user_tables AS
SELECT 0 AS relid, '' AS schemaname, '' AS relname, 0::BIGINT AS n_live_tup WHERE false;

-- Functions that clients call on the objects above.
CREATE MACRO pg.pg_get_keywords() AS TABLE
SELECT keyword_name AS word, upper(keyword_category[1]) AS catcode, keyword_category AS catdesc FROM duckdb_keywords();
CREATE MACRO pg.pg_get_userbyid(role) AS 'takt';
CREATE MACRO pg.pg_table_is_visible(relation) AS true;
CREATE MACRO pg.pg_type_is_visible(type_oid) AS true;
CREATE MACRO pg.pg_function_is_visible(function_oid) AS true;
CREATE MACRO pg.pg_relation_is_publishable(relation) AS false;
CREATE MACRO pg.pg_encoding_to_char(encoding) AS 'UTF8';
CREATE MACRO pg.pg_get_expr(expr, relation) AS NULL::VARCHAR, (expr, relation, pretty) AS NULL::VARCHAR;
CREATE MACRO pg.pg_get_constraintdef(c) AS NULL::VARCHAR, (c, pretty) AS NULL::VARCHAR;
CREATE MACRO pg.pg_get_indexdef(i) AS NULL::VARCHAR, (i, column_number, pretty) AS NULL::VARCHAR;
CREATE MACRO pg.pg_get_serial_sequence(relation, column_name) AS NULL::VARCHAR;
CREATE MACRO pg.pg_get_statisticsobjdef_columns(s) AS NULL::VARCHAR;
CREATE MACRO pg.pg_get_function_result(f) AS NULL::VARCHAR;
CREATE MACRO pg.pg_get_function_arguments(f) AS NULL::VARCHAR;
CREATE MACRO pg.pg_get_viewdef(relation) AS NULL::VARCHAR, (relation, pretty) AS NULL::VARCHAR;
CREATE MACRO pg.pg_table_size(relation) AS 0::BIGINT;
CREATE MACRO pg.pg_relation_size(relation) AS 0::BIGINT;
CREATE MACRO pg.pg_total_relation_size(relation) AS 0::BIGINT;
CREATE MACRO pg.pg_database_size(database_oid) AS 0::BIGINT;
CREATE MACRO pg.pg_tablespace_size(tablespace) AS 0::BIGINT;
CREATE MACRO pg.pg_tablespace_location(tablespace) AS '';
CREATE MACRO pg.pg_backend_pid() AS 0;
CREATE MACRO pg.pg_is_in_recovery() AS false;
CREATE MACRO pg.txid_current() AS 1::BIGINT;
CREATE MACRO pg.obj_description(object) AS NULL::VARCHAR, (object, catalog_name) AS
    (SELECT any_value(comment) FROM pg.relations WHERE oid = object AND catalog_name = 'pg_class');
CREATE MACRO pg.shobj_description(object, catalog_name) AS NULL::VARCHAR;
CREATE MACRO pg.col_description(relation_oid, number) AS
    (SELECT any_value(comment) FROM pg.columns WHERE relation = relation_oid AND column_index = number);
CREATE MACRO pg.format_type(type_oid, modifier) AS (SELECT coalesce(
    any_value(sql_name) FILTER (oid = type_oid), any_value(sql_name || '[]') FILTER (typarray = type_oid),
    CASE WHEN type_oid IS NOT NULL THEN '???' END) FROM pg.types);
CREATE MACRO pg.to_regclass(relation) AS (SELECT any_value(oid) FROM (
    SELECT oid, name, schema_name FROM pg.relations
    UNION ALL SELECT * FROM (VALUES (1259, 'pg_class', 'pg_catalog'), (1247, 'pg_type', 'pg_catalog'),
        (2615, 'pg_namespace', 'pg_catalog'), (1255, 'pg_proc', 'pg_catalog'), (1262, 'pg_database', 'pg_catalog'),
        (2606, 'pg_constraint', 'pg_catalog'), (1249, 'pg_attribute', 'pg_catalog')) AS t(oid, name, schema_name))
    WHERE replace(relation, '"', '') IN (name, schema_name || '.' || name));
-- Regular expressions, which find a part of a text here; DuckDB's ~ is true for whole texts only. The server's
-- `postgres::dialect` writes ~@ for ~. A dot matches a line feed, too.
CREATE MACRO pg."~@"(number) AS ~number, (searched, pattern) AS regexp_matches(searched, pattern, 's');
CREATE MACRO pg."!~@"(searched, pattern) AS NOT regexp_matches(searched, pattern, 's');
CREATE MACRO pg."~*"(searched, pattern) AS regexp_matches(searched, pattern, 'is');
CREATE MACRO pg."!~*"(searched, pattern) AS NOT regexp_matches(searched, pattern, 'is');
CREATE MACRO pg.quote_ident(identifier) AS CASE
    WHEN regexp_full_match(identifier, '[a-z_][a-z0-9_$]*') THEN identifier
    ELSE '"' || replace(identifier, '"', '""') || '"' END;
CREATE MACRO pg.quote_literal(literal) AS '''' || replace(literal::VARCHAR, '''', '''''') || '''';
CREATE MACRO pg.parse_ident(identifier) AS
    list_transform(regexp_extract_all(identifier, '"(?:[^"]|"")*"|[^."]+'), lambda part: CASE
        WHEN part[1] = '"' THEN replace(part[2:-2], '""', '"') ELSE lower(part) END);
-- `x = ANY (list)` is rewritten to x IN same_list(list).
CREATE MACRO pg.same_list(list) AS list;
CREATE MACRO pg.array_lower(list, dimension) AS CASE WHEN len(list) > 0 THEN 1 END;
CREATE MACRO pg.array_upper(list, dimension) AS CASE WHEN len(list) > 0 THEN len(list) END;
CREATE MACRO pg.cardinality(list) AS len(list);
-- pgjdbc expands the columns of primary keys, of which takt has none.
CREATE MACRO information._pg_expandarray(list) AS {'x': list[1], 'n': 1};
CREATE MACRO pg.array_to_string(list, separator) AS list_aggregate(list, 'string_agg', separator);
CREATE MACRO pg.json_build_object(a, b, c, d, e, f, g, h, i, j, k, l, m, n) AS NULL::VARCHAR;
CREATE MACRO pg.has_schema_privilege(schema_name, privilege) AS true, (role, schema_name, privilege) AS true;
CREATE MACRO pg.has_table_privilege(relation, privilege) AS privilege ILIKE 'select',
    (role, relation, privilege) AS privilege ILIKE 'select';
CREATE MACRO pg.has_any_column_privilege(relation, privilege) AS privilege ILIKE 'select',
    (role, relation, privilege) AS privilege ILIKE 'select';
CREATE MACRO pg.has_database_privilege(database_name, privilege) AS privilege ILIKE 'connect',
    (role, database_name, privilege) AS privilege ILIKE 'connect';
CREATE MACRO pg.has_function_privilege(f, privilege) AS true;
CREATE MACRO pg.current_database() AS 'takt';
CREATE MACRO pg.current_catalog() AS 'takt';
CREATE MACRO pg.current_schema() AS 'public';
CREATE MACRO pg.current_schemas(implicit) AS CASE WHEN implicit THEN ['pg_catalog', 'public', 'metrics']
    ELSE ['public', 'metrics'] END;
CREATE MACRO pg.version() AS 'PostgreSQL 16.0 (takt, on DuckDB)';
-- Does not query pg_settings: Grafana calls it where DuckDB allows no query.
CREATE MACRO pg.setting_value(setting_name) AS CASE lower(setting_name) WHEN 'server_version' THEN '16.0'
    WHEN 'server_version_num' THEN '160000' WHEN 'search_path' THEN '"$user", public, metrics'
    WHEN 'timezone' THEN 'UTC' WHEN 'standard_conforming_strings' THEN 'on' WHEN 'max_index_keys' THEN '32'
    WHEN 'default_transaction_read_only' THEN 'on' WHEN 'client_encoding' THEN 'UTF8' END;
CREATE MACRO pg.current_setting(setting_name) AS pg.setting_value(setting_name),
    (setting_name, missing_ok) AS pg.setting_value(setting_name);
CREATE MACRO pg.set_config(setting_name, setting_value, is_local) AS setting_value;
CREATE MACRO pg.pg_advisory_unlock_all() AS NULL::VARCHAR;
CREATE MACRO pg.inet_server_addr() AS NULL::VARCHAR;
CREATE MACRO pg.inet_server_port() AS 9857;
-- Seconds since 1970 as DuckDB's TIMESTAMP, which is UTC; its own to_timestamp needs a time zone.
CREATE MACRO pg.to_timestamp(seconds) AS make_timestamp((seconds::DOUBLE * 1000000)::BIGINT);
CREATE MACRO pg.date_bin(stride, instant, origin) AS time_bucket(stride::INTERVAL, instant, origin);
CREATE MACRO pg.every(condition) AS bool_and(condition);
CREATE MACRO pg.width_bucket(number, low, high, buckets) AS CASE WHEN number < low THEN 0
    WHEN number >= high THEN buckets + 1 ELSE floor((number - low) / ((high - low) / buckets))::INTEGER + 1 END;

CREATE VIEW information.schemata AS
SELECT 'takt' AS catalog_name, nspname AS schema_name, 'takt' AS schema_owner,
    NULL::VARCHAR AS default_character_set_catalog, NULL::VARCHAR AS default_character_set_schema,
    NULL::VARCHAR AS default_character_set_name, NULL::VARCHAR AS sql_path
FROM pg.pg_namespace;

CREATE VIEW information.tables AS
SELECT 'takt' AS table_catalog, schema_name AS table_schema, name AS table_name,
    CASE kind WHEN 'r' THEN 'BASE TABLE' ELSE 'VIEW' END AS table_type,
    NULL::VARCHAR AS self_referencing_column_name, NULL::VARCHAR AS reference_generation,
    NULL::VARCHAR AS user_defined_type_catalog, NULL::VARCHAR AS user_defined_type_schema,
    NULL::VARCHAR AS user_defined_type_name, 'NO' AS is_insertable_into, 'NO' AS is_typed,
    NULL::VARCHAR AS commit_action
FROM pg.relations;

CREATE VIEW information.views AS
SELECT 'takt' AS table_catalog, schema_name AS table_schema, name AS table_name, NULL::VARCHAR AS view_definition,
    'NONE' AS check_option, 'NO' AS is_updatable, 'NO' AS is_insertable_into
FROM pg.relations WHERE kind = 'v';

CREATE VIEW information.columns AS
SELECT 'takt' AS table_catalog, c.schema_name AS table_schema, c.table_name, c.column_name,
    c.column_index AS ordinal_position, NULL::VARCHAR AS column_default, 'YES' AS is_nullable,
    coalesce(t.sql_name, 'ARRAY') AS data_type, NULL::INTEGER AS character_maximum_length,
    NULL::INTEGER AS character_octet_length,
    CASE t.typname WHEN 'int2' THEN 16 WHEN 'int4' THEN 32 WHEN 'int8' THEN 64 WHEN 'float4' THEN 24
        WHEN 'float8' THEN 53 END AS numeric_precision,
    CASE WHEN t.typcategory = 'N' THEN 2 END AS numeric_precision_radix,
    CASE WHEN t.typname LIKE 'int%' THEN 0 END AS numeric_scale,
    CASE WHEN t.typname LIKE 'timestamp%' THEN 6 END AS datetime_precision, NULL::VARCHAR AS interval_type,
    NULL::INTEGER AS interval_precision, NULL::VARCHAR AS character_set_catalog,
    NULL::VARCHAR AS character_set_schema, NULL::VARCHAR AS character_set_name, NULL::VARCHAR AS collation_catalog,
    NULL::VARCHAR AS collation_schema, NULL::VARCHAR AS collation_name, NULL::VARCHAR AS domain_catalog,
    NULL::VARCHAR AS domain_schema, NULL::VARCHAR AS domain_name, 'takt' AS udt_catalog, 'pg_catalog' AS udt_schema,
    coalesce(t.typname, '_text') AS udt_name, c.column_index::VARCHAR AS dtd_identifier, 'NO' AS is_self_referencing,
    'NO' AS is_identity, NULL::VARCHAR AS identity_generation, 'NEVER' AS is_generated,
    NULL::VARCHAR AS generation_expression, 'NO' AS is_updatable
FROM pg.columns AS c LEFT JOIN pg.types AS t ON t.oid = c.type_oid;

CREATE VIEW information.table_constraints AS
SELECT '' AS constraint_catalog, '' AS constraint_schema, '' AS constraint_name, '' AS table_catalog,
    '' AS table_schema, '' AS table_name, '' AS constraint_type WHERE false;
CREATE VIEW information.key_column_usage AS
SELECT '' AS constraint_catalog, '' AS constraint_schema, '' AS constraint_name, '' AS table_catalog,
    '' AS table_schema, '' AS table_name, '' AS column_name, 0 AS ordinal_position,
    0 AS position_in_unique_constraint WHERE false;
CREATE VIEW information.referential_constraints AS
SELECT '' AS constraint_catalog, '' AS constraint_schema, '' AS constraint_name, '' AS unique_constraint_name WHERE false;
CREATE VIEW information.constraint_column_usage AS
SELECT '' AS table_catalog, '' AS table_schema, '' AS table_name, '' AS column_name, '' AS constraint_name WHERE false;
CREATE VIEW information.routines AS
SELECT '' AS routine_catalog, '' AS routine_schema, '' AS routine_name, '' AS routine_type, '' AS data_type WHERE false;
CREATE VIEW information.table_privileges AS
SELECT 'takt' AS grantor, 'takt' AS grantee, 'takt' AS table_catalog, schema_name AS table_schema,
    name AS table_name, 'SELECT' AS privilege_type, 'NO' AS is_grantable, 'YES' AS with_hierarchy
FROM pg.relations;

USE memory;
